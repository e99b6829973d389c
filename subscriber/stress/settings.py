"""The settings of the stress subscriber."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from tweetwire.runtime.kinds import Bytes, Seconds
from tweetwire.runtime.program import ClientSettings, Name, settings_config

__all__ = ["SubscriberSettings"]

Share = Annotated[float, Field(ge=0, le=1)]


class SubscriberSettings(ClientSettings):
    """Read topics, ack all events, and report the speed. Also report whether events were lost, doubled or out of order.

    With --publish-rate it also publishes, at a fixed rate; latency is then measured from when an event was due. Exit status: 0
    if there was no fault, 1 if there was one, 2 if the broker could not be reached. Other commands: publish, history (python -m
    subscriber COMMAND --help).
    """

    model_config = settings_config("python -m subscriber")

    topic: list[Name] = Field(min_length=1, description="topic to subscribe to")
    as_: Name | None = Field(
        None,
        alias="as",
        description="name of a durable subscription, shared by all who use it (default: one each connection)",
    )
    from_: str = Field(
        "latest",
        alias="from",
        description="where a new subscription begins: latest, earliest, an offset, or a time (2026-11-27T20:00:00Z)",
    )
    prefetch: int = Field(1000, ge=1, le=100_000, description="events in flight on a connection")
    connections: int = Field(1, ge=1, le=10_000, description="connections to the broker")
    delay: Seconds = Field("0s", validate_default=True, description="time that each event takes before its ack")
    timeout: Seconds | None = Field(None, gt=0, description="time the broker waits for an ack (default: the broker's)")
    nack_share: Share = Field(0.0, description="fault on purpose: share of the deliveries that are refused (0-1)")
    stall: Share = Field(0.0, description="fault on purpose: share of the deliveries that get no answer (0-1)")
    vanish: Share = Field(
        0.0, description="fault on purpose: share of the deliveries after which the connection is dropped (0-1)"
    )
    publish_rate: float | None = Field(
        None,
        gt=0,
        description="events a second to publish, even if the broker is slow (default: nothing is published)",
    )
    publishers: int = Field(1, ge=1, le=64, description="processes that share the publishing")
    priorities: int = Field(1, ge=1, le=256, description="priorities 0 … n - 1 of the published events, drawn")
    size: list[Bytes] = Field(
        ["200"],
        min_length=1,
        validate_default=True,
        description="length of published messages; of several values, one is drawn for each event",
    )
    drain: Seconds = Field(
        "30s", validate_default=True, description="time that published events have to arrive after the last one"
    )
    seed: int = Field(1, description="seed of the random faults, priorities and sizes")
    html: Path | None = Field(None, description="file for a page with the figures and their plots")
    json_file: Path | None = Field(None, description="file for the final report as JSON")
    count: int | None = Field(None, ge=1, description="end after this many acked events (default: no limit)")
    seconds: float | None = Field(
        None, gt=0, description="end (with --publish-rate: stop publishing) after this many seconds (default: no limit)"
    )
    report: Literal["text", "json"] = Field("text", description="how to report: for people, or one JSON line a second")
    metrics_port: int = Field(9603, ge=0, le=65535, description="port of Prometheus metrics, 0 for none")

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.publish_rate is not None and self.seconds is None:
            raise ValueError("--publish-rate needs --seconds")
        if self.vanish and self.as_ is None:
            raise ValueError("--vanish needs --as: a subscription without a name ends with its connection")
        if self.nack_share + self.stall + self.vanish > 1:
            raise ValueError("--nack-share, --stall and --vanish together must not exceed 1")
        return self
