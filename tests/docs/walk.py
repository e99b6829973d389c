"""Follow a page like a reader: type its commands, write its files, compare the output."""

import os
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from demo.ports import free_port
from tests.docs.page import Block, read_blocks
from tests.docs.terminal import Terminal

__all__ = ["Walk", "match", "walk"]

ROOT: Final = Path(__file__).parents[2]
_PORTS: Final = {
    "8000": ("TWEETWIRE_BROKER_PORT",),
    "9600": ("TWEETWIRE_BROKER_METRICS_PORT",),
    "8088": ("TWEETWIRE_DASHBOARD_PORT",),
    "9605": ("TWEETWIRE_BRIDGE_METRICS_PORT",),
    "7379": (),
}
"""The ports that pages name, and the settings that give the programs other ports in the tests."""
_ANSWER_S: Final = 20.0
_COMMAND_S: Final = 240.0
_ANSWERS: Final = ("+", "-", "!", "{")


class Walk:
    """One page's terminals and connections, all in one folder, with free ports in place of the usual ones."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._ports = {port: str(free_port()) for port in _PORTS}
        self._terminals: dict[str, Terminal] = {}
        self._connections: dict[str, socket.SocketIO] = {}
        self._current = ""
        for name in (".venv", "deploy"):
            (folder / name).symlink_to(ROOT / name)

    def take(self, block: Block) -> None:
        """Carry out a block. Raises AssertionError if the result differs from the page."""
        text = self._with_ports(block.text)
        match block.action:
            case "run":
                self._run(block, text)
            case "file":
                (self._folder / block.words[""]).write_text(f"{text}\n")
            case "edit":
                self._edit(self._folder / block.words[""], text)
            case "press":
                self._terminals[block.words["terminal"]].press_ctrl_c()
            case "waits":
                for line in text.splitlines():
                    self._terminals[block.words["terminal"]].wait_for(line)
            case "shell":
                self._terminals[block.words["terminal"]].converse(text.splitlines())
            case "telnet":
                self._talk(block.words.get("as", ""), text)
            case _:
                assert_shown(text, self._terminals[self._current].shown)

    def _run(self, block: Block, text: str) -> None:
        self._current = block.words.get("terminal", "")
        if self._current not in self._terminals:
            self._terminals[self._current] = self._stack.enter_context(Terminal(self._folder, self._environment()))
        terminal = self._terminals[self._current]
        until = block.words.get("until")
        until = None if until is None else self._with_ports(until)
        status = terminal.type(text, until=until, timeout_s=float(block.words.get("timeout", _COMMAND_S)))
        assert (status != 0) == (block.words.get("") == "fails"), f"exit status {status}:\n{terminal.shown}"

    def _edit(self, file: Path, text: str) -> None:
        lines, first = file.read_text().splitlines(), text.split(maxsplit=1)[0]
        (place,) = [number for number, line in enumerate(lines) if line.split()[:1] == [first]]
        lines[place] = text
        file.write_text("\n".join([*lines, ""]))

    def _talk(self, name: str, text: str) -> None:
        lines = [line for line in text.splitlines() if line and not line.startswith("$ ")]
        if name not in self._connections:
            connection = socket.create_connection(("127.0.0.1", int(self._ports["8000"])), _ANSWER_S)
            self._connections[name] = self._stack.enter_context(connection.makefile("rwb", buffering=0))
            connection.close()
            if not lines[0].startswith("+OK tweetwire broker"):
                self._connections[name].readline()
        connection_file = self._connections[name]
        for line in lines:
            if line.startswith(_ANSWERS):
                answer = connection_file.readline().decode().rstrip("\r\n")
                assert match(line, answer), f"wanted: {line}\nfound:  {answer}"
            else:
                connection_file.write(f"{line}\r\n".encode())

    def _with_ports(self, text: str) -> str:
        for port, free in self._ports.items():
            text = re.sub(rf"(?<![\d.]){port}\b", free, text)
        return text

    def _environment(self) -> dict[str, str]:
        ports = {name: self._ports[port] for port, names in _PORTS.items() for name in names}
        address = f"127.0.0.1:{self._ports['8000']}"
        programs = ("TWEETWIRE_BROKER", "TWEETWIRE_DASHBOARD_BROKER", "TWEETWIRE_BRIDGE_BROKER")
        clients = dict.fromkeys((*programs, "TWEETWIRE_BRIDGE_VERIFY_BROKER"), address)
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {**os.environ, **ports, **clients, "PYTHONPATH": str(ROOT), "PATH": path}


@contextmanager
def walking(folder: Path) -> Iterator[Walk]:
    """Yield a walk whose programs end with the block."""
    with ExitStack() as stack:
        yield Walk(folder, stack)


def walk(page: Path, folder: Path) -> None:
    """Carry out all marked blocks of a page in order. Raises AssertionError with the place of the failed block."""
    with walking(folder) as walked:
        for block in read_blocks(page):
            try:
                walked.take(block)
            except (AssertionError, OSError) as error:
                raise AssertionError(f"{page}:{block.line}: {error}") from error


def match(wanted: str, found: str) -> bool:
    """Whether a line equals the wanted one, in which … stands for any text."""
    pattern = ".*".join(re.escape(part) for part in wanted.split("…"))
    return re.fullmatch(pattern, found) is not None


def assert_shown(wanted: str, shown: str) -> None:
    """Check that the lines of `wanted` were shown in this order. They must be adjacent, except where `wanted` has a line …."""
    lines = [line.rstrip() for line in shown.splitlines() if line.strip()]
    rows = [line.rstrip() for line in wanted.splitlines() if line.strip()]
    assert _is_shown(rows, lines), f"wanted:\n{wanted}\nshown:\n{shown}"


def _is_shown(rows: list[str], lines: list[str]) -> bool:
    return any(_fits(rows, lines[begin:]) for begin in range(len(lines) + 1))


def _fits(rows: list[str], lines: list[str]) -> bool:
    if not rows:
        return True
    if rows[0] == "…":
        return _is_shown(rows[1:], lines)
    return bool(lines) and match(rows[0], lines[0]) and _fits(rows[1:], lines[1:])
