"""The telnet port, on which people and programs start, watch and stop the ingester.

The answers of `status`, `workers`, `hashtags` and `help` have any number of lines and end with a line of one dot. Other answers
have one line; `twitter` has no answer. An answer is sent as a whole, so no tweet appears inside it. All other lines begin with
``tweet: ``, or with ``(`` if tweets were left out.
"""

from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
from anyio.abc import ByteStream, SocketStream, TaskGroup
from anyio.streams.buffered import BufferedByteReceiveStream

from sse_ingest.ingest import Ingest
from sse_ingest.onlookers import Onlooker
from sse_ingest.status import hashtag_lines, status_lines, worker_lines
from tweetwire.protocol import is_foreign_protocol
from tweetwire.protocol.errors import Refusal
from tweetwire.runtime.admission import Admission, AdmissionLimits, AdmissionPlace
from tweetwire.runtime.listening import peer_of
from tweetwire.runtime.program import logger

__all__ = ["Console"]

END = "."
"""The line after an answer of several lines. No line of an answer equals it, because each line of an answer contains words."""

CONNECTIONS_MAX = 200
FIRST_COMMAND_S = 60.0
LAST_LINE_S = 1.0
LINE_BYTES_MAX = 4096
SEND_TIMEOUT_S = 30.0
HELP = [
    "twitter   start ingesting and show each tweet here",
    "stop      stop showing tweets; ingesting stops too, unless others watch or it started automatically",
    "status    the counts of read, stored and rejected events, and the state of each source",
    "workers   the worker processes of each source",
    "hashtags  the most frequent hashtags (hashtags N: N of them)",
    "quit      close this connection",
    "The answers of status, workers, hashtags and help end with a line that holds one dot.",
]

log = logger()


class Console:
    """Serves the connections of the telnet port. With `is_autostarted`, it ingests also while no connection watches.

    A connection that sends no command is closed after `FIRST_COMMAND_S`, or earlier if there are too many connections.
    """

    def __init__(self, ingest: Ingest, *, is_autostarted: bool) -> None:
        self.ingest = ingest
        self.is_autostarted = is_autostarted
        self._admission = Admission(AdmissionLimits(CONNECTIONS_MAX, FIRST_COMMAND_S))

    async def serve(self, stream: SocketStream) -> None:
        """Serve one connection; an error on it does not affect the others."""
        peer, scope = peer_of(stream), anyio.CancelScope()
        try:
            place = self._admission.admit(peer.host, anyio.current_time(), lambda _: scope.cancel())
        except Refusal as refusal:
            with anyio.move_on_after(LAST_LINE_S):
                await stream.send(f"error: {refusal.text}\r\n".encode())
            return
        try:
            with scope:
                async with stream:
                    await _Conversation(self, stream, place).hold()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, TimeoutError, OSError):
            log.debug("telnet connection ended", peer=peer.name)
        except Exception:
            log.exception("telnet connection failed", peer=peer.name)
        finally:
            place.leave()

    async def stop(self) -> str:
        """Stop ingesting unless it is still needed. Returns a sentence about the result."""
        if self.is_autostarted:
            return "ingesting continues: it started automatically"
        if len(self.ingest.onlookers):
            return f"ingesting continues: {len(self.ingest.onlookers)} watching"
        await self.ingest.pause()
        return "ingesting stopped"


class _Conversation:
    """One connection: its commands, and its view of the tweets."""

    def __init__(self, console: Console, stream: ByteStream, place: AdmissionPlace) -> None:
        self._console = console
        self._place = place
        self._has_typed = False
        self._ingest = console.ingest
        self._stream = stream
        self._sending = anyio.Lock()
        self._onlooker: Onlooker | None = None
        self._commands: dict[str, Callable[[list[str]], Awaitable[None]]] = {
            "twitter": self._twitter,
            "stop": self._stop,
            "status": self._status,
            "workers": self._workers,
            "hashtags": self._hashtags,
            "help": self._help,
        }

    async def hold(self) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks: TaskGroup = tasks
                await self._say(["tweetwire ingester; type twitter, or help"])
                async for words in self._lines():
                    if not await self._obey(words):
                        break
                tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            self._watch_no_more()

    async def _lines(self) -> AsyncIterator[list[str]]:
        incoming = BufferedByteReceiveStream(self._stream)
        while True:
            try:
                with anyio.fail_after(None if self._has_typed else FIRST_COMMAND_S):
                    line = await incoming.receive_until(b"\n", LINE_BYTES_MAX)
            except (anyio.EndOfStream, anyio.IncompleteRead):
                return
            except anyio.DelimiterNotFound:
                await self._say([f"error: a line has at most {LINE_BYTES_MAX} bytes"])
                return
            if is_foreign_protocol(line):
                log.warning("telnet connection closed, it spoke HTTP or TLS")
                return
            if words := line.decode("utf-8", "replace").split():
                self._has_typed = True
                self._place.keep()
                yield words

    async def _obey(self, words: list[str]) -> bool:
        if (verb := words[0].lower()) in ("quit", "exit"):
            await self._say(["bye"])
            return False
        command = self._commands.get(verb)
        if command is None:
            await self._say([f"error: no command {verb[:40]!r}; type help"])
        else:
            await command(words[1:])
        return True

    async def _twitter(self, _: list[str]) -> None:
        if self._onlooker is None:
            self._onlooker = self._ingest.onlookers.join()
            self._tasks.start_soon(self._show, self._onlooker)
        self._ingest.start()

    async def _show(self, onlooker: Onlooker) -> None:
        with onlooker.lines:
            async for line in onlooker.lines:
                missed, onlooker.missed = onlooker.missed, 0
                await self._say(
                    [f"({missed} tweets not shown: this connection is too slow)", line] if missed else [line]
                )

    def _watch_no_more(self) -> None:
        if self._onlooker is not None:
            self._ingest.onlookers.leave(self._onlooker)
            self._onlooker = None

    async def _stop(self, _: list[str]) -> None:
        self._watch_no_more()
        await self._say([await self._console.stop()])

    async def _status(self, _: list[str]) -> None:
        await self._say([*status_lines(self._ingest), END])

    async def _workers(self, _: list[str]) -> None:
        await self._say([*worker_lines(self._ingest), END])

    async def _hashtags(self, words: list[str]) -> None:
        most = int(words[0]) if words and words[0].isdecimal() else 20
        await self._say([*hashtag_lines(self._ingest.hashtags, most), END])

    async def _help(self, _: list[str]) -> None:
        await self._say([*HELP, END])

    async def _say(self, lines: list[str]) -> None:
        text = "".join(f"{line}\r\n" for line in lines)
        async with self._sending:
            with anyio.fail_after(SEND_TIMEOUT_S):
                await self._stream.send(text.encode("utf-8", "replace"))
