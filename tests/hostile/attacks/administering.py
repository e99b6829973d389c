"""Attacks by administration: seeks over a large topic, and topics or patterns that are made and ended in a loop."""

from typing import Final

from tests.hostile.attacks.attack import Attack, send_and_wait
from tests.hostile.target import Target

__all__ = ["ATTACKS"]

SEEKS: Final = 10_000
DROPS: Final = 5_000
EVENTS: Final = 1_000_000
PART: Final = 10_000
MATCHED: Final = 3000
PATTERNS: Final = 500


def seeks_on_a_large_topic(target: Target, size: float) -> int:
    """Seek repeatedly between both ends of a topic with many events."""
    events = max(2 * PART, int(EVENTS * size))
    for first in range(0, events, PART):
        send_and_wait(
            target.port, [f'pub sought {{"id":"{n}","priority":{n % 5},"msg":1}}' for n in range(first, first + PART)]
        )
    count = max(200, int(SEEKS * size))
    jumps = [f"seek sought as=s to={'earliest' if n % 2 else 'latest'}" for n in range(count)]
    # After each seek to the end, the broker may forget where the old events are, and the next seek reads it again.
    send_and_wait(target.port, ["sub sought as=s prefetch=1000", *jumps, "unsub sought as=s end", "drop sought"])
    return count


def topics_made_and_dropped(target: Target, size: float) -> int:
    """Create a topic with events and subscriptions, purge it and drop it, repeatedly on one connection."""
    count = max(50, int(DROPS * size))
    lines = [
        *(f'pub dropped {{"id":"{n}","msg":"{"x" * 1000}"}}' for n in range(20)),
        *(f"sub dropped as=s{n} from=earliest" for n in range(5)),
        *("pause dropped as=s1", "purge dropped before=10", "drop dropped", "create dropped age=1d", "drop dropped"),
    ]
    for _ in range(count):
        send_and_wait(target.port, lines)
    return count * len(lines)


def patterns_made_and_ended(target: Target, size: float) -> int:
    """Make and end subscriptions to a pattern of every topic, with and without a name, repeatedly on one connection."""
    topics, count = max(100, int(MATCHED * size)), max(20, int(PATTERNS * size))
    send_and_wait(target.port, [f"create matched.{n}" for n in range(topics)])
    lines = ["sub matched.* as=p prefetch=1000", "sub matched.>", "unsub matched.>", "unsub matched.* as=p end"]
    for _ in range(count):
        send_and_wait(target.port, lines)
    send_and_wait(target.port, [f"drop matched.{n}" for n in range(topics)])
    return count * len(lines)


ATTACKS: Final = (
    Attack("patterns made and ended", "open", patterns_made_and_ended, "commands"),
    Attack("seeks on a large topic", "open", seeks_on_a_large_topic, "commands"),
    Attack("topics made and dropped", "open", topics_made_and_dropped, "commands"),
)
