"""``shell``: a telnet that knows the protocol, with line editing, history, completion and colours.

The main thread reads what is typed and sends it as it is; a second one shows what comes, at any time: it clears the line
that is being typed, writes above it, and puts the line back. Without a terminal it sends its input and writes what
comes byte for byte, so that a script can use it.
"""

import readline
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Final

from pydantic import Field
from rich.console import Console

from broker.cli.completion import Completion
from broker.cli.connection import Connection, command_config
from broker.cli.display import event_text, reply_text, terminal
from broker.errors import BrokerLost
from broker.program import Name
from broker.protocol import replies

__all__ = ["Conversation", "Screen", "Shell"]

PROMPT: Final = "> "
HISTORY_LINES: Final = 1000
LEAVING_S: Final = 10.0
AGAIN_S: Final = 0.2


class Shell(Connection):
    """Talk to the broker by hand: the protocol of telnet, with history, completion (Tab) and colours. Ctrl-D ends it."""

    model_config = command_config("shell")

    name: Name = Field("shell", description="name that this client gives itself, or that of a user")
    history: Path = Field(
        Path("~/.tweetwire_history"), description="file of the lines typed before; those with a token are left out"
    )

    def carry_out(self) -> None:
        """Converse until either side ends it. Raises BrokerLost where the broker did."""
        is_interactive = sys.stdin.isatty() and sys.stdout.isatty()
        with self.connect_socket() as connection:
            screen = Screen(terminal()) if is_interactive else _Pipe()
            conversation = Conversation(connection, screen, self.broker)
            conversation.send(replies.hello_line(self.name, self.plain_token).decode().rstrip("\n"))
            conversation.begin()
            with self._editing() if is_interactive else nullcontext():
                conversation.converse(screen.typed())

    @contextmanager
    def _editing(self) -> Iterator[None]:
        """Have lines edited, completed and remembered."""
        path = self.history.expanduser()
        with suppress(OSError):
            path.touch(mode=0o600)
            readline.read_history_file(path)
        readline.set_auto_history(False)
        readline.set_history_length(HISTORY_LINES)
        readline.set_completer_delims(" ")
        readline.parse_and_bind("bind ^I rl_complete" if "libedit" in (readline.__doc__ or "") else "tab: complete")
        with self.connect() as client:
            readline.set_completer(Completion(client).complete)
            try:
                yield
            finally:
                with suppress(OSError):
                    readline.write_history_file(path)


class _Pipe:
    """Writes what comes as it is."""

    def typed(self) -> Iterator[str]:
        """Yield the lines of the input."""
        for line in sys.stdin:
            yield line.rstrip("\n")

    def show(self, lines: list[bytes]) -> None:
        """Write lines."""
        sys.stdout.write("".join(f"{line.decode(errors='replace')}\n" for line in lines))
        sys.stdout.flush()


class Screen:
    """Shows what comes above the line that is being typed."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._has_prompt = False

    def show(self, lines: list[bytes]) -> None:
        """Show lines in colour, and the prompt with what has been typed below them."""
        with self._console.capture() as captured:
            for line in lines:
                if line.startswith(b"{"):
                    self._console.print(event_text(line), soft_wrap=True)
                else:
                    self._console.print(reply_text(line.decode(errors="replace")), soft_wrap=True)
        typed = PROMPT + readline.get_line_buffer() if self._has_prompt else ""
        rows_above = max(0, len(typed) - 1) // self._console.width
        up = f"\x1b[{rows_above}A" if rows_above else ""
        sys.stdout.write(f"{up}\r\x1b[J{captured.get()}{typed}")
        sys.stdout.flush()

    def typed(self) -> Iterator[str]:
        """Yield what is typed, until Ctrl-D; lines with a token are not remembered."""
        # Called when readline has written the prompt: from then on it is there to be put back.
        readline.set_pre_input_hook(self._prompted)
        while True:
            try:
                line = input(PROMPT)
            except EOFError:
                sys.stdout.write("\n")
                return
            finally:
                self._has_prompt = False
            if line.strip():
                if "token=" not in line:
                    readline.add_history(line)
                yield line

    def _prompted(self) -> None:
        self._has_prompt = True


class Conversation:
    """The two directions of one connection."""

    def __init__(self, connection: socket.socket, screen: Screen | _Pipe, address: str) -> None:
        self._connection = connection
        self._screen = screen
        self._address = address
        self._is_leaving = False
        self._has_ended = False
        self._is_hearing = self._is_told = False
        self._telling = threading.Lock()
        self._listener = threading.Thread(target=self._listen, daemon=True, name="listener")

    def begin(self) -> None:
        """Begin to show what comes."""
        self._listener.start()

    def send(self, line: str) -> None:
        """Send one line. Raises BrokerLost."""
        try:
            self._connection.sendall(f"{line}\n".encode())
        except OSError as error:
            raise BrokerLost(self._address) from error

    def converse(self, lines: Iterator[str]) -> None:
        """Send lines until they or the connection end, and wait for what is still to come. Raises BrokerLost."""
        try:
            with self._hearing():
                for line in lines:
                    if line.strip().lower() == "quit":
                        break
                    self.send(line)
                self._is_leaving = True
                self.send("quit")
        except KeyboardInterrupt:
            if not self._has_ended:
                raise
        if self._has_ended and not self._is_leaving:
            raise BrokerLost(self._address)
        self._listener.join(LEAVING_S)

    def _listen(self) -> None:
        """Show what comes, as much at a time as has arrived."""
        rest = b""
        with suppress(OSError):
            while data := self._connection.recv(64 << 10):
                *lines, rest = (rest + data).split(b"\n")
                if lines:
                    self._screen.show(lines)
        self._has_ended = True
        if not self._is_leaving and isinstance(self._screen, Screen):
            self._tell()

    def _tell(self) -> None:
        """Interrupt the main thread, which waits for a key that may never come.

        A signal that comes when readline has shown its prompt and does not wait yet is noticed with the next key only; so it
        is sent until it is heard.
        """
        while True:
            with self._telling:
                if self._is_told:
                    return
                if self._is_hearing:
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            time.sleep(AGAIN_S)

    @contextmanager
    def _hearing(self) -> Iterator[None]:
        """Be interrupted once, however often it is told that the connection has ended."""
        before = signal.signal(signal.SIGINT, self._interrupt)
        self._is_hearing = True
        try:
            yield
        finally:
            # Before the wait, which an interrupt must not end: the handler would stay.
            self._is_told = True
            with self._telling:
                signal.signal(signal.SIGINT, before)

    def _interrupt(self, *_: object) -> None:
        if not self._is_told:
            self._is_told = self._has_ended
            raise KeyboardInterrupt
