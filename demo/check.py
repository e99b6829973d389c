"""The closing check: whether each document in MongoDB went through the whole stack exactly once.

It consists of pure functions of the evidence. Their rows serve three purposes: to wait until the stack has caught up, to
print the table at the end, and to decide the exit status.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from msgspec import Struct

from demo.evidence import CountedWindow, Evidence, SubscriberAccount
from demo.programs import Death

__all__ = ["CheckRow", "check", "is_right"]


class CheckRow(Struct, frozen=True, kw_only=True):
    """One row of the table: the property, the expected figure, the actual figure, and the faults.

    `to_come` is the number of items that may still arrive; while it is not 0, it makes sense to wait.
    """

    what: str
    wanted: int
    found: int
    faults: str = ""
    to_come: int = 0

    @property
    def is_right(self) -> bool:
        return not self.faults and self.wanted == self.found


def check(evidence: Evidence) -> list[CheckRow]:
    """Check every part of the evidence. Each row is independent; the run is right if all rows are."""
    return [
        *(_stored_row(topic, stored, evidence.brought[topic]) for topic, stored in evidence.stored.items()),
        _state_row(evidence.stored["users"], evidence.seen),
        *(_account_row(topic, account) for topic, account in evidence.accounts.items()),
        *(_windows_row(topic, windows, evidence.counted) for topic, windows in evidence.windows.items()),
        *(_sum_row(topic, windows, evidence.counted) for topic, windows in evidence.windows.items()),
        _deaths_row(evidence.deaths),
    ]


def is_right(rows: Iterable[CheckRow]) -> bool:
    """Whether all rows are right."""
    return all(row.is_right for row in rows)


def _stored_row(topic: str, stored: Collection[str], brought: Counter[str]) -> CheckRow:
    missing = sum(1 for document in stored if not brought[document])
    return CheckRow(
        what=f"{topic} in MongoDB that are in the topic once",
        wanted=len(stored),
        found=sum(1 for document in stored if brought[document] == 1),
        to_come=missing,
        faults=_faults(
            missing=missing,
            doubled=sum(1 for times in brought.values() if times > 1),
            unknown_to_mongodb=sum(1 for document in brought if document not in stored),
        ),
    )


def _state_row(stored: dict[str, int | None], seen: dict[str, int | None]) -> CheckRow:
    found = sum(1 for user, tweets in stored.items() if seen.get(user) == tweets)
    return CheckRow(
        what="users whose last event is their state in MongoDB",
        wanted=len(stored),
        found=found,
        to_come=len(stored) - found,
    )


def _account_row(topic: str, account: SubscriberAccount) -> CheckRow:
    found = account.acked if account.is_whole else account.owed - account.unsettled - account.dead
    return CheckRow(
        what=f"events of {topic} acked by the subscriber once",
        wanted=account.owed,
        found=found,
        to_come=max(account.owed - found - account.dead, account.unsettled),
        faults=_faults(lost=account.lost, doubled=account.doubled, dead=account.dead, unsettled=account.unsettled),
    )


def _windows_row(topic: str, windows: Sequence[CountedWindow], counted: Counter[int]) -> CheckRow:
    times = Counter(window.start for window in windows)
    # If all tweets of a window arrived late, the window was final while it was empty, so it correctly has no event.
    missing = [start for start in counted if not times[start]]
    is_late = sum(counted[start] for start in missing) <= sum(window.late for window in windows)
    wanted = len(counted) - (len(missing) if is_late else 0)
    return CheckRow(
        what=f"final windows of {topic}, each once",
        wanted=wanted,
        found=sum(1 for start in counted if times[start] == 1),
        to_come=0 if is_late else len(missing),
        faults=_faults(
            missing=0 if is_late else len(missing),
            doubled=sum(1 for count in times.values() if count > 1),
            without_tweets=sum(1 for window in windows if window.tweets and window.start not in counted),
        ),
    )


def _sum_row(topic: str, windows: Sequence[CountedWindow], counted: Counter[int]) -> CheckRow:
    late = sum(window.late for window in windows)
    found = sum(window.tweets for window in windows) + late
    return CheckRow(
        what=f"tweets in the windows of {topic}" + (f", {late} of them late" if late else ""),
        wanted=counted.total(),
        found=found,
        to_come=max(counted.total() - found, 0),
        faults=_faults(windows_with_too_many=sum(1 for window in windows if window.tweets > counted[window.start])),
    )


def _deaths_row(deaths: dict[str, list[Death]]) -> CheckRow:
    every = [(name, death) for name, of_one in deaths.items() for death in of_one]
    faults = Counter((name, death.reason) for name, death in every if not death.is_explained).items()
    return CheckRow(
        what="restarts that have a cause outside the program",
        wanted=len(every),
        found=sum(1 for _, death in every if death.is_explained),
        faults="; ".join(
            f"{name} {reason}" + (f" ({times} times)" if times > 1 else "") for (name, reason), times in faults
        ),
    )


def _faults(**counts: int) -> str:
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count)
