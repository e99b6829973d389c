"""Make the central end of a route. Only the modules of the engines that the routes name are imported."""

from typing import TYPE_CHECKING

from pydantic import SecretStr

from bridge.central import Destination, Origin, Partitions, Registry
from bridge.route import ENGINES, Route
from bridge.settings import EngineSettings

if TYPE_CHECKING:
    from bridge.engines.jetstream_link import NatsLogin
    from bridge.engines.kafka_link import KafkaLogin
    from bridge.engines.redis_link import RedisLogin

__all__ = ["destination_of", "origin_of", "partitions_of", "registry_of"]


def destination_of(route: Route, settings: EngineSettings, identity: str) -> Destination:
    """Return the destination of a route outwards, not yet connected. `identity` is that of the broker."""
    options = route.options
    if ENGINES[route.scheme].name == "nats":
        from bridge.engines.jetstream import JetStreamDestination  # noqa: PLC0415 — an engine's library may be missing

        return JetStreamDestination(
            _nats_login(route, settings),
            route.stream_at(identity),
            route.topic,
            subject=options.subject,
            replicas=options.replicas,
            create=options.create,
        )
    if ENGINES[route.scheme].name == "kafka":
        from bridge.engines.kafka import KafkaDestination  # noqa: PLC0415 — an engine's library may be missing

        return KafkaDestination(
            _kafka_login(route, settings),
            route.stream_at(identity),
            route.topic,
            partitions=options.partitions,
            replicas=options.replicas,
            create=options.create,
        )
    from bridge.engines.redis import RedisDestination  # noqa: PLC0415 — an engine's library may be missing

    return RedisDestination(
        _redis_login(route, settings),
        route.stream_at(identity),
        route.topic,
        trim=options.trim,
        replicas=options.replicas,
        create=options.create,
    )


def partitions_of(route: Route, settings: EngineSettings, identity: str) -> Partitions | None:
    """Return the partitions of a route inwards, not yet connected, None if its engine has one order for all entries."""
    if ENGINES[route.scheme].name != "kafka":
        return None
    from bridge.engines.kafka_origin import KafkaPartitions  # noqa: PLC0415 — an engine's library may be missing

    return KafkaPartitions(_kafka_login(route, settings), route.stream_at(identity), batch=route.options.batch)


def origin_of(route: Route, settings: EngineSettings, identity: str) -> Origin:
    """Return the origin of a route inwards that has no partitions, not yet connected."""
    if ENGINES[route.scheme].name == "nats":
        from bridge.engines.jetstream_origin import JetStreamOrigin  # noqa: PLC0415 — an engine's library may be missing

        return JetStreamOrigin(_nats_login(route, settings), route.stream_at(identity), batch=route.options.batch)
    from bridge.engines.redis import RedisOrigin  # noqa: PLC0415 — an engine's library may be missing

    return RedisOrigin(_redis_login(route, settings), route.stream_at(identity), batch=route.options.batch)


def registry_of(route: Route, settings: EngineSettings) -> Registry | None:
    """Return the registry of brokers at the engine of a route, not yet connected; None if the engine has none."""
    match ENGINES[route.scheme].name:
        case "nats":
            from bridge.engines.jetstream_registry import JetStreamRegistry  # noqa: PLC0415 — a library may be missing

            return JetStreamRegistry(_nats_login(route, settings), replicas=route.options.replicas)
        case "redis":
            from bridge.engines.redis_registry import RedisRegistry  # noqa: PLC0415 — a library may be missing

            return RedisRegistry(_redis_login(route, settings))
        case "kafka":
            from bridge.engines.kafka_registry import KafkaRegistry  # noqa: PLC0415 — a library may be missing

            return KafkaRegistry(_kafka_login(route, settings), replicas=route.options.replicas)
    return None


def _redis_login(route: Route, settings: EngineSettings) -> "RedisLogin":
    from bridge.engines.redis_link import RedisLogin  # noqa: PLC0415 — an engine's library may be missing

    (host, port), *_ = route.hosts
    return RedisLogin(
        host,
        port,
        db=route.options.db,
        user=settings.redis_user or None,
        password=_secret(settings.redis_password),
        is_tls=route.scheme == "rediss",
        tls_ca=settings.redis_tls_ca,
        timeout_s=settings.engine_timeout,
    )


def _nats_login(route: Route, settings: EngineSettings) -> "NatsLogin":
    from bridge.engines.jetstream_link import NatsLogin  # noqa: PLC0415 — an engine's library may be missing

    return NatsLogin(
        route.hosts,
        user=settings.nats_user or None,
        password=_secret(settings.nats_password),
        token=_secret(settings.nats_token),
        credentials=settings.nats_credentials,
        is_tls=route.scheme == "tls",
        tls_ca=settings.nats_tls_ca,
        timeout_s=settings.engine_timeout,
    )


def _kafka_login(route: Route, settings: EngineSettings) -> "KafkaLogin":
    from bridge.engines.kafka_link import KafkaLogin  # noqa: PLC0415 — an engine's library may be missing

    return KafkaLogin(
        route.hosts,
        user=settings.kafka_user or None,
        password=_secret(settings.kafka_password),
        mechanism=settings.kafka_mechanism,
        is_tls=route.scheme == "kafka+ssl",
        tls_ca=settings.kafka_tls_ca,
        timeout_s=settings.engine_timeout,
    )


def _secret(text: SecretStr | None) -> str | None:
    return None if text is None else text.get_secret_value() or None
