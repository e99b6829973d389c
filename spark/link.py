"""The broker as Spark's processes reach it: a connection that is made again, and what a topic holds."""

import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

from broker import BrokerError, BrokerLost, BrokerUnreachable, Refusal, SyncClient
from broker.errors import StartError, TlsFailed, TlsFileUnusable
from broker.login import Login
from spark.errors import DataLossError, FileOptionError
from spark.progress import Head
from spark.rows import event_time_ms, offset_of

__all__ = ["Link", "chunks_back", "chunks_between", "may_pass", "read_some", "see_broker"]

T = TypeVar("T")
Read = Callable[[int, int], tuple[list[bytes], int]]

_LINES_PER_READ = 20_000
_BYTES_PER_READ = 8 << 20
_LINES_BACK = (1, 32, 1_000)
"""Events looked at together, from a topic's end back; mostly what is looked for is in the last one."""
_PAUSE_FIRST_S = 0.1
_PAUSE_MAX_S = 2.0


class Link:
    """A connection to the broker of `login` that survives the broker's restarts.

    A command whose connection is lost is sent again for `retry_s` seconds; every command used here may be repeated.
    `name` is what this client calls itself where the broker has no users.
    """

    def __init__(self, login: Login, *, name: str = "spark", retry_s: float = 60.0) -> None:
        self._login = login
        self._name = name
        self._retry_s = retry_s
        self._client: SyncClient | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next command makes a new one."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def call(self, command: Callable[[SyncClient], T]) -> T:
        """Run `command` on the connection.

        Raises BrokerUnreachable or BrokerLost when `retry_s` is over, TlsFailed and OptionError at once, and so Refusal unless
        it is retryable.
        """
        deadline = time.monotonic() + self._retry_s
        pause = _PAUSE_FIRST_S
        while True:
            try:
                return command(self._connected())
            except (BrokerLost, BrokerUnreachable, Refusal) as error:
                if not may_pass(error):
                    raise
                self.close()
                if time.monotonic() + pause > deadline:
                    raise
            time.sleep(pause)
            pause = min(pause * 2, _PAUSE_MAX_S)

    def heads(self, topics: Iterable[str]) -> dict[str, Head]:
        """Say what each of `topics` holds; one that the broker does not have yet is empty."""
        known = {info.topic: Head(info.earliest, info.next) for info in self.call(lambda client: client.topics())}
        return {topic: known.get(topic, Head(0, 0)) for topic in topics}

    def times(self, topic: str, offset: int) -> tuple[int, int]:
        """Give the event time and the broker's time of the event at `offset`, in milliseconds since 1970 UTC."""
        lines, _ = self.call(lambda client: client.read_lines(topic, offset, limit=1))
        return event_time_ms(lines[0])

    def chunks(self, topic: str, start: int, end: int) -> Iterator[list[bytes]]:
        """Read the lines of the offsets `start` up to, not including, `end`, as far as the topic has them still.

        See `chunks_between`.
        """

        def read(offset: int, most: int) -> tuple[list[bytes], int]:
            return self.call(lambda client: read_some(client, topic, offset, most))

        try:
            yield from chunks_between(read, topic, start, end)
        except LookupError:
            if self.heads([topic])[topic].next >= end:
                raise

    def whole_chunks(self, topic: str, start: int, end: int) -> Iterator[list[bytes]]:
        """Read them as `chunks` does. Raises DataLossError at the end where the topic has some of them no longer."""
        found = 0
        for lines in self.chunks(topic, start, end):
            found += len(lines)
            yield lines
        # Planned is not read: a batch that was written down runs again after any time.
        if found < end - start:
            head = self.heads([topic])[topic]
            if head.earliest > start or head.next < end:
                raise DataLossError(topic, start, head.earliest, head.next)

    def offset_at(self, topic: str, moment: datetime) -> int:
        """Find the first offset whose event the broker stored at or after `moment`; the head where there is none."""
        wanted = round(moment.timestamp() * 1000)
        head = self.heads([topic])[topic]
        low, high = head.earliest, head.next
        while low < high:
            middle = (low + high) // 2
            if self.times(topic, middle)[1] < wanted:
                low = middle + 1
            else:
                high = middle
        return low

    def _connected(self) -> SyncClient:
        if self._client is None:
            try:
                self._client = self._login.sync_client(self._name)
            except TlsFileUnusable as error:
                raise FileOptionError(
                    f"tls{error.setting.capitalize()}: {error.why}; each executor needs it, too"
                ) from error
        return self._client


def may_pass(error: BrokerError) -> bool:
    """Say whether a broker that could not be asked now may answer later."""
    return isinstance(error, BrokerLost | BrokerUnreachable) or (isinstance(error, Refusal) and error.is_retryable)


def read_some(client: SyncClient, topic: str, offset: int, most: int) -> tuple[list[bytes], int]:
    """Read from `offset` on what is no trouble to hold, `most` lines at most; gives also the offset behind it."""
    return client.read_lines(topic, offset, limit=min(most, _LINES_PER_READ), bytes_max=_BYTES_PER_READ)


def chunks_between(read: Read, topic: str, start: int, end: int) -> Iterator[list[bytes]]:
    """Give the lines of the offsets `start` up to, not including, `end`, as much at a time as `read` does.

    `read` takes an offset and how many lines are wanted. Raises LookupError where the topic ends before.
    """
    while start < end:
        lines, after = read(start, end - start)
        if after <= start:
            raise LookupError(f"the topic {topic} ends at offset {start}, before {end}, which it had")
        # What retention has removed, or is damaged on the broker's disk, is passed over, and what lies behind comes instead.
        if after > end:
            lines = [line for line in lines if offset_of(line) < end]
        if lines:
            yield lines
        start = after


def chunks_back(client: SyncClient, topic: str) -> Iterator[tuple[int, Iterator[list[bytes]]]]:
    """Give what a topic holds in stretches from its end back: the offset where each begins, and its lines in their order."""
    info = next((info for info in client.topics() if info.topic == topic), None)
    if info is None:
        return
    end, counts = info.next, iter(_LINES_BACK)
    count = 0
    while end > info.earliest:
        count = next(counts, count)
        start = max(info.earliest, end - count)
        yield start, chunks_between(partial(read_some, client, topic), topic, start, end)
        end = start


def see_broker(login: Login, topics: Iterable[str] = (), *, within_s: float = 10.0) -> None:
    """See at the start that a broker answers within so many seconds, lets this program in, and lets it read `topics`.

    Raises BrokerUnreachable and StartError.
    """
    with Link(login, retry_s=within_s) as link:
        try:
            link.call(lambda client: client.topics())
            for topic in topics:
                _see_topic(link, topic)
        except TlsFailed as error:
            raise StartError(login.reason(error)) from error
        except Refusal as refusal:
            # One that may let this program in later is as good as away: a running job tries again.
            if refusal.is_retryable:
                raise BrokerUnreachable(login.address, str(refusal)) from refusal
            raise StartError(f"the broker at {login.address} refuses: {login.reason(refusal)}") from refusal


def _see_topic(link: Link, topic: str) -> None:
    # What one may not read looks like a topic that is not there yet, and would be waited for.
    try:
        link.call(lambda client: client.read_lines(topic, "latest", limit=1))
    except Refusal as refusal:
        if refusal.code != "unknown_topic":
            raise
