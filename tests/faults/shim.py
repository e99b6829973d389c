"""Record the calls that change files below a folder, and make some of them fail.

The broker changes its files through a dozen functions of `os`; these are replaced while the shim is in use.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from threading import RLock
from typing import Any, Final, Self

__all__ = ["WRITING", "Call", "Shim", "ShortWrite"]

WRITING: Final = ("create", "write", "truncate", "rename", "reserve")


class ShortWrite(Exception):
    """Raised by `before` to make a write stop halfway, like a disk that is almost full."""


@dataclass(frozen=True)
class Call:
    """One step: `kind` is create, write, truncate, sync, syncdir, not synced, rename, unlink, mkdir or reserve.

    `inode` identifies a file, also after it was renamed. `other` is the new name of a rename.
    """

    kind: str
    path: str
    inode: int = 0
    at: int = 0
    data: bytes = b""
    other: str = ""


class Shim:
    """Records the calls below `root`. `before` is called before each one and may raise OSError."""

    def __init__(self, root: Path, before: Callable[[Call], None] | None = None) -> None:
        self.root = str(root)
        self.calls: list[Call] = []
        self._before = before or (lambda call: None)
        self._real: dict[str, Any] = {}
        self._open: dict[int, tuple[str, int, bool]] = {}
        self._inodes: dict[str, int] = {}
        self._made = 0
        for path in sorted(root.rglob("*")):
            if path.is_file():
                self._made += 1
                self._inodes[str(path.relative_to(root))] = self._made
        # Calls come from several threads. The lock keeps the record in the order in which the calls were done.
        self._lock = RLock()

    def __enter__(self) -> Self:
        for name, replacement in self._replacements().items():
            self._real[name] = getattr(os, name)
            setattr(os, name, replacement)
        return self

    def __exit__(self, *_: object) -> None:
        for name, real in self._real.items():
            setattr(os, name, real)

    def _replacements(self) -> dict[str, Callable[..., Any]]:
        return {
            "open": self._open_file,
            "close": self._close,
            "write": self._write,
            "pwrite": self._pwrite,
            "ftruncate": self._ftruncate,
            "truncate": self._truncate,
            "fsync": self._sync("fsync"),
            "fdatasync": self._sync("fdatasync"),
            "rename": self._rename,
            "unlink": self._unlink,
            "mkdir": self._mkdir,
            "posix_fallocate": self._reserve,
        }

    def _name(self, path: Any) -> str | None:
        text = os.fspath(path)
        is_below = isinstance(text, str) and (text + "/").startswith(self.root + "/")
        return text[len(self.root) + 1 :] if is_below else None

    def _do(self, call: Call, real: Callable[..., Any], *words: Any) -> Any:
        self._before(call)
        done = real(*words)
        self.calls.append(call)
        return done

    def _open_file(self, path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        name = self._name(path)
        if name is None or more:
            return int(self._real["open"](path, flags, mode, **more))
        with self._lock:
            is_new = bool(flags & os.O_CREAT) and not os.path.exists(path)
            if is_new:
                self._made += 1
                call = Call("create", name, self._made)
                file = int(self._do(call, self._real["open"], path, flags, mode))
                self._inodes[name] = self._made
            else:
                file = int(self._real["open"](path, flags, mode))
            inode = self._inodes.get(name, 0)
            if flags & os.O_TRUNC and not is_new:
                self.calls.append(Call("truncate", name, inode, 0))
            self._open[file] = (name, inode, bool(flags & os.O_DIRECTORY))
            return file

    def _close(self, file: int) -> None:
        with self._lock:
            self._open.pop(file, None)
            self._real["close"](file)

    def _write(self, file: int, data: Any) -> int:
        with self._lock:
            if file not in self._open:
                return int(self._real["write"](file, data))
            name, inode, _ = self._open[file]
            return self._put(Call("write", name, inode, os.fstat(file).st_size, bytes(data)), file, pwrite=False)

    def _pwrite(self, file: int, data: Any, at: int) -> int:
        with self._lock:
            if file not in self._open:
                return int(self._real["pwrite"](file, data, at))
            name, inode, _ = self._open[file]
            return self._put(Call("write", name, inode, at, bytes(data)), file, pwrite=True)

    def _put(self, call: Call, file: int, *, pwrite: bool) -> int:
        """Write the data of a call, or only half of it if `before` raises ShortWrite."""
        try:
            self._before(call)
        except ShortWrite:
            call = replace(call, data=call.data[: (len(call.data) + 1) // 2])
        where = (call.at,) if pwrite else ()
        done = int(self._real["pwrite" if pwrite else "write"](file, call.data, *where))
        self.calls.append(replace(call, data=call.data[:done]))
        return done

    def _ftruncate(self, file: int, size: int) -> None:
        with self._lock:
            if file not in self._open:
                self._real["ftruncate"](file, size)
                return
            name, inode, _ = self._open[file]
            self._do(Call("truncate", name, inode, size), self._real["ftruncate"], file, size)

    def _truncate(self, path: Any, size: int) -> None:
        with self._lock:
            name = self._name(path)
            if name is None:
                self._real["truncate"](path, size)
            else:
                self._do(Call("truncate", name, self._inodes[name], size), self._real["truncate"], path, size)

    def _sync(self, which: str) -> Callable[[int], None]:
        def sync(file: int) -> None:
            # Lock only the record, since a sync may take long. The sync covers no write that another thread makes meanwhile.
            with self._lock:
                known = self._open.get(file)
                if known is not None:
                    call = Call("syncdir" if known[2] else "sync", known[0], known[1])
                    begun = len(self.calls)
                    try:
                        self._before(call)
                    except OSError:
                        self.calls.append(replace(call, kind="not synced"))
                        raise
            self._real[which](file)
            if known is not None:
                with self._lock:
                    self.calls.append(replace(call, at=begun))

        return sync

    def _rename(self, path: Any, other: Any) -> None:
        with self._lock:
            name, new = self._name(path), self._name(other)
            if name is None or new is None:
                self._real["rename"](path, other)
                return
            self._do(Call("rename", name, self._inodes[name], other=new), self._real["rename"], path, other)
            self._inodes[new] = self._inodes.pop(name)

    def _unlink(self, path: Any, **more: Any) -> None:
        with self._lock:
            name = self._name(path)
            if name is None or more or not os.path.exists(path):
                self._real["unlink"](path, **more)
                return
            self._do(Call("unlink", name), self._real["unlink"], path)
            self._inodes.pop(name, None)

    def _mkdir(self, path: Any, mode: int = 0o777) -> None:
        with self._lock:
            name = self._name(path)
            if name is None or os.path.exists(path):
                self._real["mkdir"](path, mode)
            else:
                self._do(Call("mkdir", name), self._real["mkdir"], path, mode)

    def _reserve(self, file: int, at: int, size: int) -> None:
        with self._lock:
            if file in self._open:
                self._before(Call("reserve", self._open[file][0], 0, at, b""))
            self._real["posix_fallocate"](file, at, size)
