"""The records of pattern subscriptions. The subscriptions on their topics have their usual records."""

from msgspec import Struct

from tweetwire.protocol.policy import Policy

__all__ = ["EndedPatternRecord", "PatternRecord"]


class PatternRecord(Struct, tag="pattern"):
    """A durable pattern subscription. Each topic that matches has a subscription with its name.

    The journal has this record only after the records of these subscriptions. So a matching topic that has no subscription
    at a start was created later.

    - `policy`: the policy of the subscription on a new topic.
    - `owners`: the users that own it.
    - `reads`: the permissions of its owner: patterns of the topics that the owner may read.
    """

    pattern: str
    name: str
    policy: Policy
    owners: list[str] = []
    reads: list[str] = []


class EndedPatternRecord(Struct, tag="pattern_ended"):
    """The end of a pattern subscription. The records of the ends of its subscriptions follow."""

    pattern: str
    name: str
