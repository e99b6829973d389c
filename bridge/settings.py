"""Flags and environment variables of `python -m bridge`."""

from typing import Annotated, Final, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from bridge.route import Route, check_routes, parse_in, parse_out, read_routes
from tweetwire.runtime.kinds import Metavar, OptionalFile, Seconds
from tweetwire.runtime.program import ClientSettings, settings_config

__all__ = ["BridgeSettings", "EngineSettings"]

ADDRESS_MAX: Final = 200

OutRoute = Annotated[str, Metavar("ROUTE", "'orders -> redis://host:6379/orders'")]
InRoute = Annotated[str, Metavar("ROUTE", "'redis://host:6379/payments -> payments'")]


class EngineSettings(ClientSettings):
    """How to reach the broker and the central engines."""

    redis_user: str | None = Field(None, description="user at Redis, if it has users")
    redis_password: SecretStr | None = Field(
        None, description="password at Redis; pass it as an environment variable, because others can see flags"
    )
    redis_tls_ca: OptionalFile = Field(
        None, description="PEM file of the authority that signed the certificate of Redis (default: the system's)"
    )
    nats_user: str | None = Field(None, description="user at NATS, if it has users")
    nats_password: SecretStr | None = Field(
        None, description="password at NATS; pass it as an environment variable, because others can see flags"
    )
    nats_token: SecretStr | None = Field(
        None, description="token at NATS, if it has one for all clients; pass it as an environment variable"
    )
    nats_credentials: OptionalFile = Field(None, description="file with the JWT and the key of a user at NATS")
    nats_tls_ca: OptionalFile = Field(
        None, description="PEM file of the authority that signed the certificate of NATS (default: the system's)"
    )
    kafka_user: str | None = Field(None, description="user at Kafka, if it has users")
    kafka_password: SecretStr | None = Field(
        None, description="password at Kafka; pass it as an environment variable, because others can see flags"
    )
    kafka_mechanism: Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"] = Field(
        "SCRAM-SHA-512",
        description="how Kafka checks the password; PLAIN shows it to the server, so use it with TLS only",
    )
    kafka_tls_ca: OptionalFile = Field(
        None, description="PEM file of the authority that signed the certificates of Kafka (default: the system's)"
    )
    engine_timeout: Seconds = Field(
        "10s", validate_default=True, gt=0, description="longest wait for one answer of an engine"
    )


class BridgeSettings(EngineSettings):
    """Carries topics to and from a central engine, each event once.

    To compare topics with their central copies: python -m bridge verify ROUTE
    """

    model_config = settings_config("python -m bridge")

    out: list[OutRoute] = Field([], description="topic that is sent, and the stream that gets it: 'TOPIC -> ADDRESS'")
    in_: list[InRoute] = Field(
        [], alias="in", description="stream that is read, and the topic that gets its entries: 'ADDRESS -> TOPIC'"
    )
    routes: OptionalFile = Field(None, description="TOML file with more routes, in tables [[out]] and [[in]]")
    new_identity: bool = Field(
        False,
        description="send a topic as another broker where the engine's position is not that of this data folder, "
        "because it was copied or restored",
    )
    heartbeat: Seconds = Field(
        "10s",
        validate_default=True,
        ge=0,
        description="time between two heartbeats of the broker at each engine, by which brokers see each other; 0s: none",
    )
    advertise: str | None = Field(
        None,
        description="address of the broker that the others are shown "
        "(default: --broker, with the name of this machine for a loopback address)",
    )
    metrics_port: int = Field(9605, ge=0, le=65535, description="port of Prometheus metrics, 0 for none")

    @field_validator("out")
    @classmethod
    def _lead_out(cls, texts: list[str]) -> list[str]:
        for text in texts:
            parse_out(text)
        return texts

    @field_validator("in_")
    @classmethod
    def _lead_in(cls, texts: list[str]) -> list[str]:
        for text in texts:
            parse_in(text)
        return texts

    @field_validator("advertise")
    @classmethod
    def _show_one_line(cls, text: str | None) -> str | None:
        if text and (not text.isprintable() or len(text) > ADDRESS_MAX):
            raise ValueError(f"an address has at most {ADDRESS_MAX} printable characters")
        return text or None

    @model_validator(mode="after")
    def _have_routes(self) -> Self:
        if not self.all_routes():
            raise ValueError("there is no route; give one with --out or --in, or a file with --routes")
        return self

    def all_routes(self) -> list[Route]:
        """Return all routes. Raises ValueError for a file that is unusable, and for two routes with one name."""
        routes = [*map(parse_out, self.out), *map(parse_in, self.in_)]
        if self.routes is not None:
            routes += read_routes(self.routes)
        check_routes(routes)
        return routes
