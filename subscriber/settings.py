"""What the stress subscriber can be told."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from broker.program import ProgramSettings, settings_config
from broker.units import Seconds

__all__ = ["SubscriberSettings"]

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}$")]
"""A name as the broker takes it for topics and subscriptions."""


class SubscriberSettings(ProgramSettings):
    """Read topics, ack everything at once, and tell how fast it came and whether anything was lost or doubled.

    Exit status: 0 when nothing was lost or doubled, 1 when something was, 2 when the broker could not be reached.
    """

    model_config = settings_config("python -m subscriber")

    broker: str = Field("127.0.0.1:8000", description="address of the broker (host:port)")
    topic: list[Name] = Field(min_length=1, description="topic to subscribe to; give it several times for several")
    as_: Name | None = Field(
        None,
        alias="as",
        description="name of a durable subscription, shared by all who use it; none: one each connection",
    )
    from_: str = Field(
        "latest",
        alias="from",
        description="where a new subscription begins: latest, earliest, an offset, or a time (2026-11-27T20:00:00Z)",
    )
    prefetch: int = Field(1000, ge=1, le=100_000, description="events in flight on a connection (events)")
    connections: int = Field(1, ge=1, le=10_000, description="connections to the broker (connections)")
    delay: Seconds = Field(
        "0s", validate_default=True, description="time that each event takes before its ack (duration)"
    )
    count: int | None = Field(None, ge=1, description="end after so many acked events (events); none: go on")
    seconds: float | None = Field(None, gt=0, description="end after so long (seconds); none: go on")
    report: Literal["text", "json"] = Field("text", description="how to report: for people, or one JSON line a second")
    metrics_port: int = Field(9603, ge=0, le=65535, description="port of Prometheus metrics, 0 for none")
