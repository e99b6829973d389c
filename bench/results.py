"""The results of a run as a file."""

from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.row import BenchRow, Growth

__all__ = ["Results", "read_results"]


class Results(Struct, kw_only=True):
    """A run: its machine, versions, settings and figures; `is_complete` is false after Ctrl-C."""

    began: datetime
    seconds: float
    is_complete: bool
    machine: dict[str, str]
    versions: dict[str, str]
    settings: dict[str, str]
    rows: list[BenchRow]
    growths: list[Growth]

    def write(self, path: Path) -> None:
        """Write the run as JSON, with medians and verdicts for readers without this program."""
        whole = msgspec.to_builtins(self)
        for written, row in zip(whole["rows"], self.rows, strict=True):
            written |= {"median": row.median, "verdict": row.verdict}
        for written, growth in zip(whole["growths"], self.growths, strict=True):
            written |= {"spread": growth.spread, "verdict": growth.verdict}
        path.write_bytes(msgspec.json.format(msgspec.json.encode(whole), indent=1) + b"\n")

    @property
    def stem(self) -> str:
        """The stem of the names of this run's files. Sorted by name, the files are in the order of time."""
        return f"bench-{self.began.astimezone(UTC):%Y%m%dT%H%M%SZ}"


def read_results(path: Path) -> Results:
    """Read a file that `Results.write` wrote. Raises OSError, and ValueError if it has another form."""
    return msgspec.json.decode(path.read_bytes(), type=Results)
