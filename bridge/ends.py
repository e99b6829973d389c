"""Make the central end of a route. Only the modules of the engines that the routes name are imported."""

from typing import TYPE_CHECKING

from bridge.central import Destination, Origin
from bridge.route import Route
from bridge.settings import EngineSettings

if TYPE_CHECKING:
    from bridge.engines.redis_link import RedisLogin

__all__ = ["destination_of", "origin_of"]


def destination_of(route: Route, settings: EngineSettings, identity: str) -> Destination:
    """Return the destination of a route outwards, not yet connected. `identity` is that of the broker."""
    from bridge.engines.redis import RedisDestination  # noqa: PLC0415 — an engine's library may be missing

    options = route.options
    return RedisDestination(
        _redis_login(route, settings),
        route.stream_at(identity),
        route.topic,
        trim=options.trim,
        replicas=options.replicas,
        create=options.create,
    )


def origin_of(route: Route, settings: EngineSettings, identity: str) -> Origin:
    """Return the origin of a route inwards, not yet connected."""
    from bridge.engines.redis import RedisOrigin  # noqa: PLC0415 — an engine's library may be missing

    return RedisOrigin(_redis_login(route, settings), route.stream_at(identity), batch=route.options.batch)


def _redis_login(route: Route, settings: EngineSettings) -> "RedisLogin":
    from bridge.engines.redis_link import RedisLogin  # noqa: PLC0415 — an engine's library may be missing

    (host, port), *_ = route.hosts
    password = settings.redis_password
    return RedisLogin(
        host,
        port,
        db=route.options.db,
        user=settings.redis_user or None,
        password=None if password is None else password.get_secret_value() or None,
        is_tls=route.scheme == "rediss",
        tls_ca=settings.redis_tls_ca,
        timeout_s=settings.engine_timeout,
    )
