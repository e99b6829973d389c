"""The evidence about a run at its closing check; collected elsewhere, judged in `check`."""

from collections import Counter

from msgspec import Struct, field

from demo.programs import Death

__all__ = ["CountedWindow", "Evidence", "SubscriberAccount", "TopicChange", "window_start"]


class TopicChange(Struct, frozen=True):
    """A change of MongoDB as its topic reports it: the operation, the document, and `at` in ms since 1970."""

    op: str
    id: str
    at: int

    @property
    def is_new(self) -> bool:
        """Whether this change adds a document to the topic for the first time."""
        return self.op in ("insert", "snapshot")


class CountedWindow(Struct, frozen=True):
    """A final statistic: the window's start in ms since 1970, the tweets it counts, and the number of late tweets.

    A late tweet arrived after its own window was final, for example after an outage. The window that is open at that time
    counts it as late.
    """

    start: int
    tweets: int
    late: int = 0


class SubscriberAccount(Struct, frozen=True, kw_only=True):
    """The account of a topic for the demo's subscriber.

    `owed` is the number of events that it should ack in this run. The subscriber reports `acked`, `lost` and `doubled`. The
    broker reports `unsettled`, and `dead` for dead letters. `is_whole` is True if one process saw the whole run. A killed
    process loses its last second of reports; then only the broker's figures are complete.
    """

    owed: int
    acked: int
    lost: int
    doubled: int
    unsettled: int
    dead: int = 0
    is_whole: bool


class Evidence(Struct, kw_only=True):
    """All data for the check; mappings are by topic.

    - `stored`: the documents in MongoDB by id. A user's value is the number of tweets seen, which every change of the user
      increases; a tweet's value is None.
    - `brought`: how often each id arrived in the topic as new.
    - `seen`: each user's number of tweets by the last event.
    - `counted`: the number of tweets by the start of their window.
    - `windows`: the final windows of each statistic.
    """

    stored: dict[str, dict[str, int | None]] = field(default_factory=dict)
    brought: dict[str, Counter[str]] = field(default_factory=dict)
    seen: dict[str, int | None] = field(default_factory=dict)
    counted: Counter[int] = field(default_factory=Counter)
    windows: dict[str, list[CountedWindow]] = field(default_factory=dict)
    accounts: dict[str, SubscriberAccount] = field(default_factory=dict)
    deaths: dict[str, list[Death]] = field(default_factory=dict)


def window_start(at_ms: int, window_ms: int) -> int:
    """Return the start of the tumbling window that contains a time; as in Spark, windows are aligned to 1970."""
    return at_ms - at_ms % window_ms
