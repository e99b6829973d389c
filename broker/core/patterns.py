"""The pattern subscriptions: each is one name on many topics, which has an ordinary subscription on every topic.

Always true:

- a topic has the subscription of each pattern that takes it, from its creation on;
- no topic can be taken by two patterns with the same name.
"""

from collections.abc import Iterator
from typing import Final

from broker.core.access import Access
from broker.core.internal_topics import UNMATCHED_TOPICS
from broker.core.session import Session
from broker.core.topic.share import Share
from broker.core.topic.subscription import Consumer
from broker.journal.pattern_records import PatternRecord
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.patterns import do_overlap, literal_start, matches
from tweetwire.protocol.policy import Policy

__all__ = ["Pattern", "Patterns"]

PATTERNS_MAX: Final = 1000
PLACES_MAX: Final = 100_000
"""How many subscriptions and consumers all patterns may have together: about 2 KB of memory each."""


class Pattern:
    """One pattern subscription. `topics` are those that it has a subscription on.

    The permissions of its `owner` decide which topics it takes, also without a connection. It is kept in the journal once it
    `is_whole`: once all topics that match have its subscription.
    """

    __slots__ = ("is_durable", "is_kept", "is_whole", "name", "owner", "owners", "policy", "shares", "topic", "topics")

    def __init__(self, pattern: str, name: str, policy: Policy, reads: tuple[str, ...], *, is_durable: bool) -> None:
        # Permissions of subscriptions look at `topic`, `name` and `owners`. Here, the topic is the pattern.
        self.topic = pattern
        self.name = name
        self.policy = policy
        self.owner = Access("", (), reads)
        self.is_durable = is_durable
        self.is_whole = False
        # Whether the journal has the record of the current state
        self.is_kept = False
        self.owners: tuple[str, ...] = ()
        self.topics: set[str] = set()
        # The connections that are attached, and their consumers
        self.shares: dict[Session, Share[Consumer]] = {}

    @property
    def reads(self) -> tuple[str, ...]:
        """The owner's permissions to read."""
        return self.owner.subscribe

    @property
    def key(self) -> tuple[str, str]:
        """The pattern and the name."""
        return self.topic, self.name

    def takes(self, topic: str) -> bool:
        """Whether the pattern takes a topic: it matches, its owner may read the topic, and patterns may include it."""
        return topic not in UNMATCHED_TOPICS and matches(self.topic, topic) and self.owner.may_read(topic)

    def record(self) -> PatternRecord:
        """Return the record that keeps the pattern."""
        return PatternRecord(self.topic, self.name, self.policy, list(self.owners), list(self.reads))


class Patterns:
    """All pattern subscriptions by pattern and name."""

    def __init__(self) -> None:
        self.by_key: dict[tuple[str, str], Pattern] = {}
        # The durable patterns whose subscriptions are being ended
        self.ending: set[Pattern] = set()

    def __iter__(self) -> Iterator[Pattern]:
        return iter(self.by_key.values())

    def add(self, pattern: Pattern) -> None:
        """Add a new pattern.

        Raises Refusal ``too_many``, ``bad_name`` if another one may take the same topics, and ``busy`` while such a one ends.
        """
        if len(self.by_key) >= PATTERNS_MAX:
            raise Refusal("too_many", f"there are {PATTERNS_MAX} pattern subscriptions")
        self.check_alone(pattern, pattern.reads)
        for other in self.ending:
            if other.name == pattern.name and do_overlap(other.topic, pattern.topic):
                raise Refusal("busy", f"{other.topic} as={other.name} is being ended; try again")
        self.by_key[pattern.key] = pattern

    def check_alone(self, pattern: Pattern, reads: tuple[str, ...]) -> None:
        """Raise Refusal ``bad_name`` if another pattern with the same name may take a topic of this one with `reads`."""
        for other in self:
            if other.name == pattern.name and other is not pattern and do_overlap(other.topic, pattern.topic):
                # Users that may read none of each other's topics do not block each other's names.
                starts = literal_start(other.topic), literal_start(pattern.topic)
                if _may_meet(other.reads, starts) and _may_meet(reads, starts):
                    raise Refusal(
                        "bad_name", f"{other.topic} as={other.name} may match the same topics; choose another name"
                    )

    def taking(self, topic: str) -> list[Pattern]:
        """Return the patterns that take a topic."""
        return [pattern for pattern in self if pattern.takes(topic)]

    def of_subscription(self, topic: str, name: str) -> Pattern | None:
        """Return the pattern that a subscription on a topic belongs to."""
        return next((one for one in self if one.name == name and topic in one.topics), None)

    @property
    def room(self) -> int:
        """How many more subscriptions and consumers all patterns together may have. This looks at each pattern."""
        return PLACES_MAX - sum(
            len(one.topics) + sum(len(share.members) for share in one.shares.values()) for one in self
        )

    def forget_topic(self, topic: str) -> None:
        """Forget a topic that was dropped."""
        for pattern in self:
            pattern.topics.discard(topic)

    def records(self) -> list[PatternRecord]:
        """Return the records that the journal must keep."""
        return [pattern.record() for pattern in self if pattern.is_durable and pattern.is_whole]


def _may_meet(reads: tuple[str, ...], starts: tuple[str, ...]) -> bool:
    """Whether permission patterns may allow a topic whose name begins with all of `starts`."""
    return any(
        all(allowed.startswith(start) or start.startswith(allowed) for start in starts)
        for allowed in map(literal_start, reads)
    )
