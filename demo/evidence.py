"""What is known about a run when its closing check is made; gathered elsewhere, judged in `check`."""

from collections import Counter

from msgspec import Struct, field

from demo.programs import Death

__all__ = ["Account", "Change", "Evidence", "Window", "window_start"]


class Change(Struct, frozen=True):
    """A change of MongoDB as its topic tells it: what happened to which document, `at` in ms since 1970."""

    op: str
    id: str
    at: int

    @property
    def is_new(self) -> bool:
        """Whether it brings a document into the topic for the first time."""
        return self.op in ("insert", "snapshot")


class Window(Struct, frozen=True):
    """A final statistic: the window's start in ms since 1970, the tweets it counts, and how many came late.

    A late one came when its own window was final, after an outage; it is counted as late in the window then open.
    """

    start: int
    tweets: int
    late: int = 0


class Account(Struct, frozen=True, kw_only=True):
    """How a topic stands with the demo's subscriber.

    `owed` events were to be acked in this run; the subscriber's reports say `acked`, `lost` and `doubled`; the broker
    says `unsettled`, and `dead` for what it gave up on. `is_whole` tells whether one process saw the whole run: one
    that was killed takes its last second of reports with it, and then only the broker's word is whole.
    """

    owed: int
    acked: int
    lost: int
    doubled: int
    unsettled: int
    dead: int = 0
    is_whole: bool


class Evidence(Struct, kw_only=True):
    """Everything the check looks at; mappings go by topic.

    `stored` are the documents in MongoDB by id: for a user the number of tweets seen, which every change of a user
    raises, for a tweet nothing. `brought` tells how often each id came into the topic as new, `seen` each user's number
    by the last event. `counted` are the tweets by start of the window that they fall in, `windows` the final windows of
    each statistic.
    """

    stored: dict[str, dict[str, int | None]] = field(default_factory=dict)
    brought: dict[str, Counter[str]] = field(default_factory=dict)
    seen: dict[str, int | None] = field(default_factory=dict)
    counted: Counter[int] = field(default_factory=Counter)
    windows: dict[str, list[Window]] = field(default_factory=dict)
    accounts: dict[str, Account] = field(default_factory=dict)
    deaths: dict[str, list[Death]] = field(default_factory=dict)


def window_start(at_ms: int, window_ms: int) -> int:
    """Return the start of the tumbling window that a time falls in, as Spark lays them: aligned to 1970."""
    return at_ms - at_ms % window_ms
