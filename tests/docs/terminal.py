"""A bash in a pseudo-terminal, like the one in which a reader of the documentation types."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

__all__ = ["Terminal"]

_PROMPT = "ready:"
_PROMPT_PATTERN = re.compile(rf"{_PROMPT}(\d+) ")
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>()][0-9A-B]?|\r")
_END_S = 20.0
_PLAIN = {"VIRTUAL_ENV_DISABLE_PROMPT": "1"}


class Terminal:
    """One terminal, whose commands run in `folder`. `shown` is the output of the last commands."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.shown = ""
        self._begin = 0
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            os.chdir(folder)
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"], _settings(environment))
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", 60, 120, 0, 0))
        self._read(_PROMPT_PATTERN, 10)
        self.type("stty -echo")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
        # Send SIGTERM to end the programs. The SIGHUP of a closed terminal does not end them: they read their files again.
        self._signal_session(signal.SIGTERM)
        os.kill(self._pid, signal.SIGHUP)
        deadline = time.monotonic() + _END_S
        while self._session():
            if time.monotonic() > deadline:
                self._signal_session(signal.SIGKILL)
            time.sleep(0.02)
        os.waitpid(self._pid, 0)

    def type(self, commands: str, *, until: str | None = None, timeout_s: float = 240.0) -> int:
        """Type commands, and wait for their end or for an output. Returns the last exit status, or 0 after an output."""
        self.shown = ""
        *first, last = _commands(commands)
        for command in first:
            status = self._carry_out(command, timeout_s)
            if status:
                return status
        if until is None:
            return self._carry_out(last, timeout_s)
        os.write(self._fd, f"{last}\n".encode())
        self._read(re.compile(f"({re.escape(until)}.*\n)"), timeout_s)
        return 0

    def wait_for(self, text: str, timeout_s: float = 120.0) -> None:
        """Wait until `text` is in the output since the last commands began."""
        self._read(re.compile(f"({re.escape(text)})"), timeout_s, begin=0)

    def converse(self, lines: Sequence[str], timeout_s: float = 120.0) -> None:
        """Type the input lines into the running program, and wait for its output lines. … stands for any text."""
        for line in lines:
            if line.startswith(("+", "-", "@", "!")):
                pattern = ".*".join(re.escape(part) for part in line.split("…"))
                self._read(re.compile(f"({pattern})"), timeout_s, begin=self._begin)
                self._begin = self.shown.index("\n", self._begin) + 1
            else:
                self._begin = len(self.shown)
                os.write(self._fd, f"{line}\r".encode())
        if "quit" in lines:
            self._read(_PROMPT_PATTERN, timeout_s, begin=self._begin)

    def press_ctrl_c(self, timeout_s: float = 120.0) -> int:
        """Press Ctrl-C and wait for the program's end. Returns its exit status."""
        self.shown = ""
        os.write(self._fd, b"\x03")
        try:
            return int(self._read(_PROMPT_PATTERN, timeout_s / 2))
        except AssertionError:
            # Java was seen to lose the first one on a busy machine.
            os.write(self._fd, b"\x03")
            return int(self._read(_PROMPT_PATTERN, timeout_s / 2))

    def _session(self) -> list[int]:
        """Return the running processes of this terminal: bash, and those in the foreground and the background."""
        processes = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
        return [process for process in processes if _running_session(process) == self._pid]

    def _signal_session(self, number: signal.Signals) -> None:
        for process in self._session():
            with suppress(ProcessLookupError):
                os.kill(process, number)

    def _carry_out(self, command: str, timeout_s: float) -> int:
        os.write(self._fd, f"{command}\n".encode())
        return int(self._read(_PROMPT_PATTERN, timeout_s))

    def _read(self, wanted: re.Pattern[str], timeout_s: float, begin: int | None = None) -> str:
        deadline = time.monotonic() + timeout_s
        begin = len(self.shown) if begin is None else begin
        while True:
            found = wanted.search(self.shown, begin)
            if found is not None:
                if wanted is _PROMPT_PATTERN:
                    self.shown = _PROMPT_PATTERN.sub("", self.shown)
                return found[1]
            assert time.monotonic() < deadline, f"{wanted.pattern!r} did not come in {timeout_s:g} s:\n{self.shown}"
            if select.select([self._fd], [], [], 0.1)[0]:
                self.shown = _CONTROL.sub("", self.shown + os.read(self._fd, 1 << 16).decode(errors="replace"))


def _running_session(process: int) -> int | None:
    """Return the session of a process, or None if it has ended."""
    try:
        state, _, _, session, *_ = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state == "Z" else int(session)


def _settings(environment: Mapping[str, str]) -> dict[str, str]:
    return {**environment, "PS1": f"{_PROMPT}$? ", "PS2": "", "TERM": "dumb", "NO_COLOR": "1", "HISTFILE": "", **_PLAIN}


def _commands(text: str) -> list[str]:
    """Split typed text into whole commands; lines that belong to one command stay together."""
    commands: list[str] = []
    open_document = ""
    for line in text.splitlines():
        is_more = bool(commands) and (
            bool(open_document) or commands[-1].endswith("\\") or line.startswith((" ", "\t", "}"))
        )
        if is_more:
            commands[-1] += f"\n{line}"
        elif line and not line.startswith("#"):
            commands.append(line)
        started = re.search(r"<<-?\s*'?(\w+)'?", line)
        if open_document and line == open_document:
            open_document = ""
        elif started:
            open_document = started[1]
    return commands
