"""Topics that the broker and our programs write, and which of them hold payloads or errors of other topics.

They are like other topics on the disk and on the wire; only permissions distinguish them.
"""

from collections.abc import Mapping
from typing import Final

from tweetwire.cluster import CLUSTER_VIEW
from tweetwire.protocol.request_reply import REPLIES
from tweetwire.protocol.retention import Retention

__all__ = [
    "BROKER_TOPICS",
    "CONFIDENTIAL_TOPICS",
    "DEFAULT_RETENTION",
    "INTERNAL_TOPICS",
    "PROGRAM_TOPICS",
    "UNMATCHED_TOPICS",
]

BROKER_TOPICS: Final = frozenset({"dead_letters", "rejected_lines", "audit"})
"""Topics that only the broker writes, whether or not it has users."""

PROGRAM_TOPICS: Final = frozenset({"handler_history", "rejected_changes", "logger_stats", CLUSTER_VIEW})
"""Topics that our programs write. Publishing to them needs a pattern that names them."""

INTERNAL_TOPICS: Final = BROKER_TOPICS | PROGRAM_TOPICS

CONFIDENTIAL_TOPICS: Final = (INTERNAL_TOPICS - {"logger_stats"}) | {REPLIES}
"""Topics that may be read only with a pattern that names them.

They hold payloads, errors or names of other topics' clients. A client gets the replies to its own requests without this right.

`logger_stats` holds only counts and durations.
"""

UNMATCHED_TOPICS: Final = INTERNAL_TOPICS | {REPLIES}
"""Topics that belong to no pattern subscription. They can be subscribed to by name."""

DEFAULT_RETENTION: Final[Mapping[str, Retention]] = {
    "rejected_lines": Retention(age_ms=7 * 24 * 3600 * 1000, at_most_bytes=1 << 30),
    REPLIES: Retention(age_ms=24 * 3600 * 1000, at_most_bytes=1 << 30),
    CLUSTER_VIEW: Retention(age_ms=3600 * 1000, at_most_bytes=128 << 20),
}
"""Retention that applies until a client sets another.

Any client can cause rejected lines, a reply is of no use once its requester has it, and of the views of a cluster only the
newest matter. So these are removed after some time.
"""
