"""Find the dead events that a command names by offset, or by an id that is looked up in the log."""

from broker.core.steps import Interrupt, Steps
from broker.core.topic.subscription import Subscription
from broker.core.topic.topic import Topic
from broker.core.verbs.search import find_ids
from tweetwire.protocol.errors import Refusal

__all__ = ["dead_offsets", "look_up_dead"]


def look_up_dead(
    topic: Topic, subscription: Subscription, refs: list[int | str] | None
) -> Steps[list[int | str] | None]:
    """Replace the ids in `refs` by the offsets of dead events.

    If several events have an id, the oldest one counts. Unknown ids stay.
    """
    ids = {ref for ref in refs or () if isinstance(ref, str)}
    if not ids:
        return refs
    dead = sorted(subscription.dead)

    def find(interrupt: Interrupt) -> dict[str, int]:
        found: dict[str, int] = {}
        for offset, id_ in find_ids(topic, dead, ids, interrupt):
            found.setdefault(id_, offset)
            if len(found) == len(ids):
                break
        return found

    found: dict[str, int] = yield find
    return [found.get(ref, ref) if isinstance(ref, str) else ref for ref in refs or ()]


def dead_offsets(subscription: Subscription, refs: list[int | str] | None) -> list[int]:
    """Return the offsets of dead events, each once. None stands for all. Raises Refusal ``no_event`` for other events."""
    if refs is None:
        return sorted(subscription.dead)
    return list(dict.fromkeys(_dead_offset(subscription, ref) for ref in refs))


def _dead_offset(subscription: Subscription, ref: int | str) -> int:
    if isinstance(ref, int) and ref in subscription.dead:
        return ref
    raise Refusal(
        "no_event", f"{ref if isinstance(ref, str) else f'@{ref}'} is not a dead event of {subscription.name}"
    )
