"""Read the subscriber's reports from its log, over all its processes of this run."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

__all__ = ["SubscriberLog", "TopicFigures"]

_REPORT_BEGINS = b'{"report":'


class TopicFigures(Struct):
    """A subscriber's figures of one topic; `lost` is only in the final report."""

    topic: str
    acked: int
    doubled: int
    redelivered: int
    lost: int | None = None


class SubscriberReport(Struct):
    """One line of ``python -m subscriber --report json``."""

    report: str
    seconds: float
    per_second: float
    latency_ms: dict[str, float | None]
    topics: list[TopicFigures]


class SubscriberLog:
    """The last report of each process; when the seconds decrease, another process has begun."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = path.stat().st_size if path.exists() else 0
        self._rest = b""
        self._ended: list[SubscriberReport] = []
        self.last: SubscriberReport | None = None

    def read(self) -> None:
        """Read the new lines of the log."""
        if not self._path.exists():
            return
        with self._path.open("rb") as log:
            log.seek(self._position)
            gained = log.read()
        self._position += len(gained)
        *lines, self._rest = (self._rest + gained).split(b"\n")
        for line in lines:
            if line.startswith(_REPORT_BEGINS):
                # A killed process may leave half a line, which is then joined to the first line of the next process.
                with suppress(msgspec.DecodeError):
                    self._take(msgspec.json.decode(line, type=SubscriberReport))

    def total(self, topic: str, figure: str) -> int:
        """Return the sum of a figure of `topic` over all processes."""
        reports = [*self._ended, *([self.last] if self.last else [])]
        every: list[Any] = [getattr(of, figure) for report in reports for of in report.topics if of.topic == topic]
        return sum(value or 0 for value in every)

    def _take(self, report: SubscriberReport) -> None:
        if self.last is not None and report.seconds < self.last.seconds:
            self._ended.append(self.last)
        self.last = report
