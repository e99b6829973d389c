"""The simulator's HTTP server: four routes, GET only, one request per connection."""

import random
import time
from collections.abc import AsyncIterator, Callable
from typing import Protocol

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream
from msgspec import Struct

from sse_ingest.simulator.dice import dice_of
from sse_ingest.simulator.emotions import emotion_values
from sse_ingest.simulator.recording import Recording
from sse_ingest.simulator.settings import SimulatorSettings
from sse_ingest.simulator.tweets import Timeline
from sse_ingest.simulator.wire import BATCH, PANIC, chunks, message, pause_s
from tweetwire.runtime.listening import accept_forever, listen
from tweetwire.runtime.program import logger, ready

__all__ = ["Simulator", "serve"]

REQUEST_BYTES_MAX = 16_384
ROUTES = {"/tweets/1": 1, "/tweets/2": 2}
_HEAD = b"HTTP/1.1 %b\r\nServer: tweetwire\r\nConnection: close\r\n%b\r\n"

log = logger()


class Tweets(Protocol):
    """The source of a route's tweets."""

    def tweet(self, number: int) -> bytes: ...


class Route(Struct):
    """The state of one path; `position` is the number of the first tweet that no client has received."""

    tweets: Tweets
    dice: random.Random
    position: int = 0
    is_over: bool = False


async def serve(settings: SimulatorSettings, stop: anyio.Event) -> None:
    """Serve until `stop`."""
    simulator = Simulator(settings)
    async with (
        await listen(settings.host, settings.port, "--port") as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(accept_forever, listener, simulator.answer, tasks)
        ready("sse_ingest.simulator", "{}:{}".format(*listener.extra(SocketAttribute.local_address)))
        await stop.wait()
        tasks.cancel_scope.cancel()


class Simulator:
    """The routes and the state of each."""

    def __init__(self, settings: SimulatorSettings) -> None:
        self._settings = settings
        recording = None if settings.replay is None else Recording(settings.replay)
        self._count = settings.count or (len(recording) if recording and not settings.loop else 0)
        seed, base_s = settings.seed, None
        if seed is None:
            seed, base_s = random.SystemRandom().randrange(1 << 32), time.time()
        self._routes = {
            path: Route(recording or Timeline(seed, number, base_s), dice_of(seed, "pauses", number))
            for path, number in ROUTES.items()
        }

    async def answer(self, stream: SocketStream) -> None:
        """Answer one request; a disconnected client ends only its own connection."""
        try:
            async with stream:
                await self._respond(stream)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            log.debug("client disconnected")

    async def _respond(self, stream: SocketStream) -> None:
        try:
            with anyio.fail_after(10):
                request = await BufferedByteReceiveStream(stream).receive_until(b"\r\n\r\n", REQUEST_BYTES_MAX)
        except (anyio.EndOfStream, anyio.IncompleteRead, anyio.DelimiterNotFound, TimeoutError):
            return
        method, _, rest = request.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if method != "GET":
            await _send(stream, b"405 Method Not Allowed", b"text/plain", b"GET only\n")
        elif path in self._routes:
            await self._stream(stream, self._routes[path])
        elif path == "/emotion_values":
            await _send(stream, b"200 OK", b"text/plain; charset=utf-8", emotion_values())
        elif path == "/":
            about = {"about": "tweet server (simulator)", "routes": [*self._routes, "/emotion_values"]}
            await _send(stream, b"200 OK", b"application/json", msgspec.json.encode(about))
        else:
            await _send(stream, b"404 Not Found", b"text/plain", b"no such route; see /\n")

    async def _stream(self, stream: SocketStream, route: Route) -> None:
        if route.is_over:
            await stream.send(_HEAD % (b"204 No Content", b""))
            return
        await stream.send(
            _HEAD
            % (
                b"200 OK",
                b"Content-Type: text/event-stream\r\nCache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n",
            )
        )
        first = route.position if self._settings.live else 0
        numbers = _paced(self._settings.rate, anyio.current_time) if self._settings.rate else _bursts(route.dice)
        number = first
        async for due in numbers:
            last = min(number + due, self._count) if self._count else number + due
            await stream.send(b"".join(self._chunks(route, number, last)))
            number = last
            route.position = max(route.position, number)
            if number == self._count:
                break
        route.is_over = True
        await stream.send(b"0\r\n\r\n")

    def _chunks(self, route: Route, first: int, last: int) -> list[bytes]:
        sent = []
        for number in range(first, last):
            sent.append(chunks(message(route.tweets.tweet(number), time.time())))
            if self._settings.panic_every and (number + 1) % self._settings.panic_every == 0:
                sent.append(chunks(PANIC))
        return sent


async def _paced(rate: float, now: Callable[[], float]) -> AsyncIterator[int]:
    """Yield the numbers of tweets that are due at `rate` a second, in at most 200 steps a second."""
    began, sent = now(), 0
    while True:
        await anyio.sleep(max((sent + 1) / rate - (now() - began), 0.005))
        # After the client has stalled, continue at `rate`. Of the delayed tweets, send at most those of one second.
        due = min(int((now() - began) * rate) - sent, max(int(rate), 1))
        if due > 0:
            yield due
            sent = int((now() - began) * rate)


async def _bursts(dice: random.Random) -> AsyncIterator[int]:
    """Yield the server's batches: a hundred tweets, each tweet followed by the batch's pause."""
    while True:
        pause = pause_s(dice.random())
        if not pause:
            await anyio.lowlevel.checkpoint()
            yield BATCH
            continue
        for _ in range(BATCH):
            yield 1
            await anyio.sleep(pause)


async def _send(stream: SocketStream, status: bytes, content_type: bytes, body: bytes) -> None:
    head = b"Content-Type: %b\r\nContent-Length: %d\r\n" % (content_type, len(body))
    await stream.send(_HEAD % (status, head) + body)
