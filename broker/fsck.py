"""The command ``fsck``: check and repair the data directory of a broker that is stopped."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from os import close
from pathlib import Path
from typing import Annotated, Final

import msgspec

from broker.core.topic.slots import runs
from broker.data_directory import DROPPED_NAME, lock_directory
from broker.identity import IDENTITY_NAME, find_identity, make_identity
from broker.journal import cut_torn_end, damaged_lines, is_whole_snapshot
from broker.log.check import SegmentCheck, check_topic, orphans_of, repair_topic, segments_of, strange_files
from broker.tiers.chain_file import forget_chain
from tweetwire.cli.connection import JsonSwitch
from tweetwire.cli.display import print_json, table, terminal
from tweetwire.cli.flags import Command, Flag, argument
from tweetwire.cli.kinds import FOLDER, SWITCH, URL
from tweetwire.cli.progress import Progress
from tweetwire.files import refuse_other_kinds
from tweetwire.protocol.errors import StartError
from tweetwire.protocol.units import format_bytes
from tweetwire.runtime.extras import needs_extra

__all__ = ["Fsck"]

OFFSETS_SHOWN: Final = 10


@dataclass
class Found:
    """The findings about one file, for example a segment or a journal.

    - `holds`: the kind of contents, or a segment's offsets; `count` is the number of events or records.
    - `lost`: the losses that cannot be mended.
    - `mendable`: the faults that --repair or the next start mends. `mended` is set after --repair.
    """

    file: str
    holds: str
    count: int
    bytes: int
    lost: list[str] = field(default_factory=list)
    mendable: list[str] = field(default_factory=list)
    mended: bool = False


class Fsck(Command, kw_only=True):
    """Check the data directory of a stopped broker: each event, each index, the state. Nothing changes without --repair.

    Exit status: 0 if nothing is wrong or all faults were mended, 1 if faults or losses remain, 2 if the directory cannot
    be checked.
    """

    examples = (
        "tweetwire fsck data/broker --repair",
        "tweetwire fsck data/broker --tiers s3://bucket/prefix",
    )

    directory: Annotated[Path, argument(FOLDER, "the broker's data directory")]
    repair: Annotated[
        bool,
        Flag(
            SWITCH,
            "rebuild indexes, and cut the bytes that a crash left after the last event; events are never removed",
        ),
    ] = False
    new_identity: Annotated[
        bool,
        Flag(
            SWITCH,
            "give the folder a new identity, for a copy of another broker's folder; the copy then uses no tier of the other",
        ),
    ] = False
    tiers: Annotated[
        str | None, Flag(URL, "URL of the broker's --tier: also read every object that its newest manifest names")
    ] = None
    is_json: JsonSwitch = False

    def run_command(self) -> int:
        """Check the directory and print the findings. Returns the exit status. Raises StartError."""
        if not ((self.directory / "topics").is_dir() or (self.directory / "state").is_dir()):
            raise StartError(
                f"{self.directory} is not a broker's data directory; pass the folder that the broker's --data-dir names"
            )
        try:
            lock = lock_directory(self.directory)
        except StartError:
            raise StartError(f"a broker uses {self.directory}; stop it, then check again") from None
        except OSError as error:
            raise StartError(f"cannot check {self.directory}: {error.strerror}") from error
        try:
            found = self._checked()
        except OSError as error:
            raise StartError(f"cannot check {error.filename or self.directory}: {error.strerror}") from error
        finally:
            close(lock)
        self._show(found)
        return int(any(one.lost or (one.mendable and not one.mended) for one in found))

    def _checked(self) -> list[Found]:
        """Check the directory, and show on a terminal how many files were checked."""
        found = []
        with Progress("checking", "", "files") as progress:
            tier = () if self.tiers is None else _tier(self.directory, self.tiers)
            for one in chain(self._check(), tier):
                found.append(one)
                progress.advance()
        return found

    def _check(self) -> Iterator[Found]:
        if self.new_identity:
            make_identity(self.directory)
            forget_chain(self.directory)
        if (self.directory / IDENTITY_NAME).is_symlink() or (self.directory / IDENTITY_NAME).exists():
            yield _strange(self.directory / IDENTITY_NAME, IDENTITY_NAME) or _identity(self.directory)
        for directory in sorted((self.directory / "topics").glob("*")):
            if directory.is_file() and not directory.is_symlink():
                continue
            strange = _strange(directory, f"topics/{directory.name}", is_folder=True)
            if strange is not None:
                yield strange
                continue
            found = [_segment(one) for one in check_topic(directory)]
            found += _beside(directory)
            if self.repair and any(one.mendable for one in found):
                repair_topic(directory)
                for one in found:
                    one.mended = bool(one.mendable)
            for one in found:
                one.file = f"topics/{directory.name}/{one.file}"
            yield from found
        for path in sorted((self.directory / DROPPED_NAME).glob("*")):
            size = sum(one.lstat().st_size for one in path.glob("*"))
            yield Found(f"{DROPPED_NAME}/{path.name}", "a dropped topic, which the next start deletes", 0, size)
        for path in sorted((self.directory / "state").iterdir()) if (self.directory / "state").is_dir() else ():
            of_state = _strange(path, f"state/{path.name}") or _state(path)
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
            if one.lost or one.mendable
        ]
        console = terminal()
        if rows:
            console.print(table("", columns, rows))
        identity = "".join(f"; {one.holds}" for one in found if one.file == IDENTITY_NAME and not one.lost)
        console.print(f"{_summary(found)}{identity}", soft_wrap=True)


def _summary(found: list[Found]) -> str:
    wrong = [one for one in found if one.lost or one.mendable]
    if not wrong:
        size = format_bytes(sum(one.bytes for one in found))
        return f"no faults found in {len(found):,} files with {sum(one.count for one in found):,} events and records ({size})"
    left = sum(bool(one.mendable) and not one.mended for one in wrong)
    lost = sum(bool(one.lost) for one in wrong)
    advice = f"; {left} can be mended by --repair or the next start of the broker" if left else ""
    return f"{len(wrong)} of {len(found)} files have faults; {lost} have lost events or records{advice}"


def _segment(check: SegmentCheck) -> Found:
    lost = []
    if check.damaged:
        lost.append(f"damaged: {_offsets(check.damaged)}")
    if check.missing:
        lost.append(f"missing: @{check.next} to @{check.next + check.missing - 1}")
    holds = f"@{check.first} to @{check.next - 1}" if check.next > check.first else "nothing"
    return Found(check.path.name, holds, check.next - check.first, check.size, lost, check.mendable)


def _beside(directory: Path) -> Iterator[Found]:
    """Yield the findings about the files in a topic's folder that are not segments."""
    for path in strange_files(directory):
        if (strange := _strange(path, path.name)) is not None:
            yield strange
    for path in orphans_of(directory, segments_of(directory)):
        yield Found(path.name, "an index", 0, path.stat().st_size, [], ["its segment is missing"])
    for path in sorted(directory.glob("*.cut-*")):
        yield Found(path.name, "events that a start cut and kept", 0, path.stat().st_size)


def _strange(path: Path, name: str, *, is_folder: bool = False) -> Found | None:
    """Return a finding if `path` is not a regular file, or with `is_folder` if it is not a folder. Else return None.

    Such a path, for example a symbolic link or a pipe, is never opened.
    """
    try:
        refuse_other_kinds(path, is_folder=is_folder)
    except OSError as error:
        kind = (error.strerror or "").removeprefix(f"{path} is ")
        return Found(name, "not read", 0, path.lstat().st_size, [f"it is {kind}"])
    return None


def _identity(directory: Path) -> Found:
    found = Found(IDENTITY_NAME, "the identity", 0, (directory / IDENTITY_NAME).stat().st_size)
    try:
        found.holds = f"identity {find_identity(directory)}"
    except StartError:
        found.lost = ["it is damaged; --new-identity makes another one"]
    return found


def _tier(directory: Path, url: str) -> Iterator[Found]:
    """Yield the findings about the objects of a tier. Raises StartError."""
    with needs_extra("--tiers", "tiers"):
        from broker.tiers.contents import check_chain_of  # noqa: PLC0415 — the packages of an extra
    for one in check_chain_of(directory, url):
        yield Found(f"tier/{one.name}", one.holds, one.events, one.bytes, [one.fault] if one.fault else [])


def _state(path: Path) -> Found:
    good, damaged, is_torn = damaged_lines(path)
    found = Found(f"state/{path.name}", "state", good, path.stat().st_size)
    if path.name in {"snapshot", "snapshot.before"}:
        if not is_whole_snapshot(path):
            found.lost = ["it is damaged; the other snapshot and the journals are used"]
    elif path.suffix[1:].isdecimal():
        if damaged:
            found.lost = [f"{damaged} damaged records; the events that they settled are delivered again"]
    else:
        found.holds = "an unused snapshot"
    if is_torn and path.suffix[1:].isdecimal() and not found.lost:
        found.mendable = ["the last record is incomplete"]
    return found


def _offsets(offsets: Iterable[int]) -> str:
    """Format offsets as runs, at most `OFFSETS_SHOWN` of them."""
    found = [f"@{first}" if first == last else f"@{first} to @{last}" for first, last in runs(list(offsets))]
    more = f" and {len(found) - OFFSETS_SHOWN} more" if len(found) > OFFSETS_SHOWN else ""
    return ", ".join(found[:OFFSETS_SHOWN]) + more
