"""``fsck``: what is in a data directory that no broker uses, and what is wrong with it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from os import close
from pathlib import Path
from typing import Final

import msgspec
from pydantic import Field
from pydantic_settings import BaseSettings, CliPositionalArg

from broker.cli.connection import command_config
from broker.cli.display import print_json, table, terminal
from broker.core.slots import runs
from broker.data_directory import lock_directory
from broker.errors import StartError
from broker.log.check import SegmentCheck, check_topic, orphans_of, repair_topic, segments_of
from broker.state import cut_torn_end, damaged_lines, is_whole_snapshot
from broker.units import format_bytes

__all__ = ["Fsck"]

OFFSETS_SHOWN: Final = 10


@dataclass
class Found:
    """A file and what it holds: a segment's events, the state's records.

    What is `lost` cannot be had again; what is `mendable` is mended by --repair or at the next start, and `mended` says
    that it was.
    """

    file: str
    holds: str
    count: int
    bytes: int
    lost: list[str] = field(default_factory=list)
    mendable: list[str] = field(default_factory=list)
    mended: bool = False


class Fsck(BaseSettings):
    """Check a data directory that no broker uses: each event, each index, the state; nothing is changed without --repair.

    Exit status: 0 where nothing is wrong or all of it was mended, 1 where something is wrong or was lost, 2 where the
    folder cannot be checked.
    """

    model_config = command_config("fsck")

    directory: CliPositionalArg[Path] = Field(description="the broker's data directory")
    repair: bool = Field(
        False,
        description="make indexes again, and cut what a crash left behind the last event; events are never removed",
    )
    is_json: bool = Field(False, alias="json", description="write one line of JSON instead of a table")

    def carry_out(self) -> int:
        """Check, and show what there is. Returns the exit status. Raises StartError."""
        if not ((self.directory / "topics").is_dir() or (self.directory / "state").is_dir()):
            raise StartError(f"{self.directory} is no broker's data directory")
        try:
            lock = lock_directory(self.directory)
        except OSError as error:
            raise StartError(f"cannot check {self.directory}: {error.strerror}") from error
        try:
            found = list(self._check())
        except OSError as error:
            raise StartError(f"cannot check {error.filename or self.directory}: {error.strerror}") from error
        finally:
            close(lock)
        self._show(found)
        return int(any(one.lost or (one.mendable and not one.mended) for one in found))

    def _check(self) -> Iterator[Found]:
        for directory in sorted(path for path in (self.directory / "topics").glob("*") if path.is_dir()):
            found = [_segment(one) for one in check_topic(directory)]
            found += _beside(directory)
            if self.repair and any(one.mendable for one in found):
                repair_topic(directory)
                for one in found:
                    one.mended = bool(one.mendable)
            for one in found:
                one.file = f"topics/{directory.name}/{one.file}"
            yield from found
        for path in sorted((self.directory / "state").iterdir()) if (self.directory / "state").is_dir() else ():
            of_state = _state(path)
            if self.repair and of_state.mendable:
                cut_torn_end(path)
                of_state.mended = True
            yield of_state

    def _show(self, found: list[Found]) -> None:
        if self.is_json:
            print_json([msgspec.to_builtins(one) for one in found])
            return
        columns = ("file", "holds", "events or records", "size", "lost", "mended" if self.repair else "can be mended")
        rows = [
            (one.file, one.holds, one.count, format_bytes(one.bytes), ", ".join(one.lost), ", ".join(one.mendable))
            for one in found
        ]
        console = terminal()
        console.print(table("", columns, rows))
        console.print(_summary(found))


def _summary(found: list[Found]) -> str:
    wrong = [one for one in found if one.lost or one.mendable]
    if not wrong:
        return "nothing is wrong"
    left = sum(bool(one.mendable) and not one.mended for one in wrong)
    lost = sum(bool(one.lost) for one in wrong)
    advice = f"; {left} can be mended, by --repair or the next start of the broker" if left else ""
    return f"{len(wrong)} of {len(found)} files are not as they should be; from {lost} something is lost{advice}"


def _segment(check: SegmentCheck) -> Found:
    lost = []
    if check.damaged:
        lost.append(f"damaged: {_offsets(check.damaged)}")
    if check.missing:
        lost.append(f"missing: @{check.next} to @{check.next + check.missing - 1}")
    holds = f"@{check.first} to @{check.next - 1}" if check.next > check.first else "nothing"
    return Found(check.path.name, holds, check.next - check.first, check.size, lost, check.mendable)


def _beside(directory: Path) -> Iterator[Found]:
    """Tell of what lies beside the segments."""
    for path in orphans_of(directory, segments_of(directory)):
        yield Found(path.name, "an index", 0, path.stat().st_size, [], ["its segment is gone"])
    for path in sorted(directory.glob("*.cut-*")):
        yield Found(path.name, "what a start cut off and kept", 0, path.stat().st_size)


def _state(path: Path) -> Found:
    good, damaged, is_torn = damaged_lines(path)
    found = Found(f"state/{path.name}", "state", good, path.stat().st_size)
    if path.name in {"snapshot", "snapshot.before"}:
        if not is_whole_snapshot(path):
            found.lost = ["it is damaged; the other snapshot and the journals are used"]
    elif path.suffix[1:].isdecimal():
        if damaged:
            found.lost = [f"{damaged} damaged records; what they settled is given again"]
    else:
        found.holds = "a snapshot that is not used"
    if is_torn and path.suffix[1:].isdecimal() and not found.lost:
        found.mendable = ["the last record was not written to its end"]
    return found


def _offsets(offsets: Iterable[int]) -> str:
    """Write offsets as runs, the first few of them."""
    found = [f"@{first}" if first == last else f"@{first} to @{last}" for first, last in runs(list(offsets))]
    more = f" and {len(found) - OFFSETS_SHOWN} more" if len(found) > OFFSETS_SHOWN else ""
    return ", ".join(found[:OFFSETS_SHOWN]) + more
