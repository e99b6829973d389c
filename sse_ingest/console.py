"""The telnet port: people start, watch and stop the ingester, several at once."""

from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
from anyio.abc import ByteStream, SocketAttribute, SocketStream, TaskGroup
from anyio.streams.buffered import BufferedByteReceiveStream

from broker.program import logger
from sse_ingest.ingest import Ingest
from sse_ingest.onlookers import Onlooker
from sse_ingest.status import hashtag_lines, status_lines, worker_lines

__all__ = ["Console"]

LINE_BYTES_MAX = 4096
SEND_TIMEOUT_S = 30.0
HELP = [
    "twitter   start ingesting and show each tweet here",
    "stop      show no more; ingesting stops too, unless others watch or it started by itself",
    "status    what was read, stored and rejected, and how things are",
    "workers   the worker processes of each source",
    "hashtags  the most frequent hashtags (hashtags N: N of them)",
    "quit      close this connection",
]
_HTTP = (b"GET ", b"POST ", b"HEAD ", b"PUT ", b"Host:", b"\x16\x03")

log = logger()


class Console:
    """Serves people. With `is_autostarted` ingesting does not depend on who watches."""

    def __init__(self, ingest: Ingest, *, is_autostarted: bool) -> None:
        self.ingest = ingest
        self.is_autostarted = is_autostarted

    async def serve(self, stream: SocketStream) -> None:
        """Serve one connection; nothing that goes wrong on it reaches the others."""
        peer = stream.extra(SocketAttribute.remote_address)
        try:
            async with stream:
                await _Conversation(self, stream).hold()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, TimeoutError, OSError):
            log.debug("telnet connection ended", peer=peer)
        except Exception:
            log.exception("telnet connection failed", peer=peer)

    async def stop(self) -> str:
        """End ingesting unless somebody needs it. Returns what came of it in words."""
        if self.is_autostarted:
            return "ingesting goes on: it started by itself"
        if len(self.ingest.onlookers):
            return f"ingesting goes on: {len(self.ingest.onlookers)} watching"
        await self.ingest.pause()
        return "ingesting stopped"


class _Conversation:
    """One connection: its commands, and the tweets it watches."""

    def __init__(self, console: Console, stream: ByteStream) -> None:
        self._console = console
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
                line = await incoming.receive_until(b"\n", LINE_BYTES_MAX)
            except (anyio.EndOfStream, anyio.IncompleteRead):
                return
            except anyio.DelimiterNotFound:
                await self._say([f"error: a line has at most {LINE_BYTES_MAX} bytes"])
                return
            if line.startswith(_HTTP):
                log.warning("a telnet connection spoke HTTP or TLS and was closed")
                return
            yield line.decode("utf-8", "replace").split()

    async def _obey(self, words: list[str]) -> bool:
        if not words:
            return True
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
        await self._say(status_lines(self._ingest))

    async def _workers(self, _: list[str]) -> None:
        await self._say(worker_lines(self._ingest))

    async def _hashtags(self, words: list[str]) -> None:
        most = int(words[0]) if words and words[0].isdecimal() else 20
        await self._say(hashtag_lines(self._ingest.hashtags, most))

    async def _help(self, _: list[str]) -> None:
        await self._say(HELP)

    async def _say(self, lines: list[str]) -> None:
        text = "".join(f"{line}\r\n" for line in lines)
        async with self._sending:
            with anyio.fail_after(SEND_TIMEOUT_S):
                await self._stream.send(text.encode("utf-8", "replace"))
