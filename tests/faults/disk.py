"""A model of a disk that keeps only synced data at a power cut.

Bytes of a file are on the disk once a sync that began after their write has ended. Names are there once their folder was
synced. At a power cut, any part of the other data may be there: all of it, none of it, single sectors, or NULs where a file
grew. A sector is written completely or not at all. The changes of a folder are written in their order, as on a file system with
a journal. As on Linux, if a sync fails to write data, later syncs do not write it either.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from random import Random
from typing import Final

from tests.faults.shim import Call

__all__ = ["CUTS", "Disk"]

SECTOR: Final = 512
CUTS: Final = ("killed", "dropped", "torn", "reordered", "filled")


@dataclass
class _Step:
    number: int
    call: Call
    is_synced: bool = False
    is_doomed: bool = False


@dataclass
class _File:
    """The bytes of a file that are on the disk, and the steps from the first unsynced one on."""

    base: bytearray = field(default_factory=bytearray)
    steps: list[_Step] = field(default_factory=list)

    def sync(self, begun: int) -> None:
        """Move the bytes written before call number `begun` to the disk, except those that an earlier sync failed to write."""
        for step in self.steps:
            step.is_synced |= step.number < begun and not step.is_doomed
        while self.steps and self.steps[0].is_synced:
            _apply(self.base, self.steps.pop(0).call)

    def doom(self) -> None:
        """Note that a sync failed. As on Linux, no later sync writes the unsynced steps to the disk."""
        for step in self.steps:
            step.is_doomed |= not step.is_synced


class Disk:
    """Carries out recorded calls one by one. `cut` returns the files that survive a power cut at this point."""

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self.taken = 0
        self._files = {
            inode: _File(bytearray(files[name])) for inode, name in enumerate(sorted(files or {}), 1) if files
        }
        self._names = {name: inode for inode, name in enumerate(sorted(files or {}), 1)}
        self._pending: dict[str, list[Call]] = {}
        self._folders = {"", *(str(parent) for name in self._names for parent in PurePosixPath(name).parents)}

    def take(self, calls: Iterable[Call]) -> None:
        """Carry out the next calls."""
        for call in calls:
            self._take(call)
            self.taken += 1

    def _take(self, call: Call) -> None:
        match call.kind:
            case "create":
                self._files[call.inode] = _File()
                self._pending.setdefault(_folder(call.path), []).append(call)
            case "rename" | "unlink" | "mkdir":
                self._pending.setdefault(_folder(call.path), []).append(call)
            case "write" | "truncate":
                self._files[call.inode].steps.append(_Step(self.taken, call))
            case "sync":
                self._files[call.inode].sync(call.at)
            case "not synced" if call.inode:
                self._files[call.inode].doom()
            case "syncdir":
                for one in self._pending.pop(call.path, []):
                    _rename(self._names, self._folders, one)

    def cut(self, how: str, dice: Random) -> dict[str, bytes]:
        """Return the files that exist after a power cut of the kind `how` (one of `CUTS`), by name."""
        names, folders = dict(self._names), set(self._folders)
        for pending in self._pending.values():
            kept = len(pending) if how == "killed" else 0 if how == "dropped" else dice.randint(0, len(pending))
            for call in pending[:kept]:
                _rename(names, folders, call)
        # A file is lost if one of its folders is lost.
        there = {name: inode for name, inode in names.items() if _is_reached(name, folders)}
        return {name: bytes(self._content(self._files[inode], how, dice)) for name, inode in there.items()}

    def write(self, files: dict[str, bytes], root: Path) -> None:
        """Write files that `cut` returned."""
        root.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content)

    def _content(self, file: _File, how: str, dice: Random) -> bytearray:
        content = bytearray(file.base)
        unsynced = sum(not step.is_synced for step in file.steps)
        torn_at = dice.randrange(unsynced) if unsynced else 0
        likelihood = dice.choice((0.1, 0.5, 0.9))
        number = 0
        for step in file.steps:
            if step.is_synced or how == "killed":
                _apply(content, step.call)
                continue
            if how == "torn":
                _tear(content, step.call, number - torn_at)
            elif how != "dropped":
                _scatter(content, step.call, lambda _: dice.random() < likelihood, is_filled=how == "filled")
            number += 1
        return content


def _tear(content: bytearray, call: Call, behind: int) -> None:
    """Apply calls before the torn one completely, half of the torn one, and nothing of later ones."""
    if behind < 0:
        _apply(content, call)
    elif behind == 0:
        half = len(call.data) // SECTOR // 2
        _scatter(content, call, lambda number: number < half, is_filled=False)


def _scatter(content: bytearray, call: Call, is_there: Callable[[int], bool], *, is_filled: bool) -> None:
    """Write the sectors of a call that survive. Holes before them become NULs; with `is_filled`, holes after them, too."""
    if call.kind == "truncate":
        if is_there(0):
            _apply(content, call)
        return
    end = call.at + len(call.data)
    first, last = call.at // SECTOR, max(call.at, end - 1) // SECTOR
    for number in range(first, last + 1):
        if is_there(number - first):
            start, stop = max(call.at, number * SECTOR), min(end, (number + 1) * SECTOR)
            _apply(content, Call("write", call.path, call.inode, start, call.data[start - call.at : stop - call.at]))
    if is_filled:
        content.extend(bytes(max(0, end - len(content))))


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _is_reached(name: str, folders: set[str]) -> bool:
    return all(str(parent) in folders or str(parent) == "." for parent in PurePosixPath(name).parents)


def _rename(names: dict[str, int], folders: set[str], call: Call) -> None:
    if call.kind == "mkdir":
        folders.add(call.path)
    elif call.kind == "create":
        names[call.path] = call.inode
    elif call.kind == "unlink":
        names.pop(call.path, None)
    elif call.path in names:
        names[call.other] = names.pop(call.path)


def _apply(content: bytearray, call: Call) -> None:
    if call.kind == "truncate":
        del content[call.at :]
        content.extend(bytes(call.at - len(content)))
    else:
        content.extend(bytes(max(0, call.at - len(content))))
        content[call.at : call.at + len(call.data)] = call.data
