"""Make the heartbeat of a broker from the answer to its command ``stats``. No I/O."""

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any, Final

from bridge.central import HEARTBEAT_BYTES_MAX
from tweetwire.cluster import CLUSTER_VIEW, Heartbeat, TopicHeld, bounded_heartbeat
from tweetwire.version import VERSION

__all__ = ["advertised", "heartbeat_of"]

TOPICS_MAX: Final = 100


def heartbeat_of(
    stats: Mapping[str, Any], address: str, now_ms: int, every_s: float, *, is_last: bool = False
) -> Heartbeat:
    """Return the heartbeat of a broker.

    Args:
        stats: The broker's answer.
        address: The address to show.
        now_ms: The time of this machine.
        every_s: The seconds between two heartbeats.
        is_last: Whether the bridge stops.
    """
    held = [
        TopicHeld(
            name,
            figures["earliest"],
            figures["next"],
            {mark: report["lag"] for mark, report in figures.get("marks", {}).items()},
        )
        for name, figures in stats["topics"].items()
        if name != CLUSTER_VIEW
    ]
    # Keep the topics with marks if there is no room for all, since another system has their events.
    held.sort(key=lambda one: (not one.lag, one.topic))
    heartbeat = Heartbeat(
        broker=str(stats["identity"]),
        address=address,
        version=VERSION,
        at_ms=now_ms,
        every_s=every_s,
        is_last=is_last,
        topics=held[:TOPICS_MAX],
        left_out=max(0, len(held) - TOPICS_MAX),
    )
    return bounded_heartbeat(heartbeat, HEARTBEAT_BYTES_MAX)


def advertised(address: str, machine: str) -> str:
    """Return an address that other machines understand: a loopback address becomes the name of this `machine`."""
    host, colon, port = address.rpartition(":")
    plain = host.strip("[]")
    try:
        is_loopback = ip_address(plain).is_loopback
    except ValueError:
        is_loopback = plain == "localhost"
    return f"{machine}{colon}{port}" if is_loopback else address
