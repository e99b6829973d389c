"""The connection of Spark's processes to the broker, which reconnects, and its reads of topics."""

import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

from spark.connector.errors import DataLossError, FileOptionError
from spark.connector.progress import Head
from spark.connector.rows import event_time_ms, offset_of
from tweetwire import BrokerError, BrokerLost, BrokerUnreachable, Refusal, SyncClient
from tweetwire.backoff import Backoff
from tweetwire.protocol.errors import StartError, TlsFailed, TlsFileUnusable
from tweetwire.runtime.login import Login

__all__ = ["SparkLink", "chunks_back", "chunks_between", "may_pass", "read_some", "see_broker"]

T = TypeVar("T")
Read = Callable[[int, int], tuple[list[bytes], int]]

_LINES_PER_READ = 20_000
_BYTES_PER_READ = 8 << 20
_LINES_BACK = (1, 32, 1_000)
"""How many events each read takes, from a topic's end backwards. In most cases the last event is enough."""


class SparkLink:
    """A connection to the broker that survives the broker's restarts.

    Args:
        login: the broker's address and the user.
        name: the client's name if the broker has no users.
        retry_s: how long a command is repeated after its connection was lost, in seconds. Every command that is used here
            may be repeated.
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
        """Close the connection; the next command opens a new one."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def call(self, command: Callable[[SyncClient], T]) -> T:
        """Run `command` on the connection, and return its result.

        Raises:
            BrokerUnreachable, BrokerLost: the broker could not be reached for `retry_s` seconds.
            Refusal: the broker refuses; a retryable refusal is raised after `retry_s` seconds.
            TlsFailed, OptionError: TLS or its files cannot be used; raised at once.
        """
        deadline = time.monotonic() + self._retry_s
        backoff = Backoff()
        while True:
            try:
                return command(self._connected())
            except (BrokerLost, BrokerUnreachable, Refusal) as error:
                if not may_pass(error):
                    raise
                self.close()
                pause_s = backoff.next_pause_s()
                if time.monotonic() + pause_s > deadline:
                    raise
            time.sleep(pause_s)

    def heads(self, topics: Iterable[str]) -> dict[str, Head]:
        """Return the offsets that each of `topics` holds; a topic that does not exist yet is empty."""
        known = {info.topic: Head(info.earliest, info.next) for info in self.call(lambda client: client.topics())}
        return {topic: known.get(topic, Head(0, 0)) for topic in topics}

    def times(self, topic: str, offset: int) -> tuple[int, int]:
        """Return the event time and the broker's time of the event at `offset`, in milliseconds since 1970 UTC."""
        lines, _ = self.call(lambda client: client.read_lines(topic, offset, limit=1))
        return event_time_ms(lines[0])

    def chunks(self, topic: str, start: int, end: int) -> Iterator[list[bytes]]:
        """Yield the lines of the offsets from `start` up to, not including, `end`, without those already removed.

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
        """Yield the same lines as `chunks`. Raises DataLossError at the end if the topic no longer has all of them."""
        found = 0
        for lines in self.chunks(topic, start, end):
            found += len(lines)
            yield lines
        # A planned batch may run again much later, when retention has removed its events.
        if found < end - start:
            head = self.heads([topic])[topic]
            if head.earliest > start or head.next < end:
                raise DataLossError(topic, start, head.earliest, head.next)

    def offset_at(self, topic: str, moment: datetime) -> int:
        """Return the first offset whose event the broker stored at or after `moment`, the end of the topic if there is none.

        The broker searches, since it knows where its clock was set back and the times are out of order.
        """
        if self.heads([topic])[topic].next == 0:
            return 0
        at = datetime.fromtimestamp(moment.timestamp(), UTC).isoformat(timespec="microseconds")
        lines, after = self.call(lambda client: client.read_lines(topic, at, limit=1))
        return after - len(lines)

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
    """Return whether the error may be temporary, so that a later try may succeed."""
    return isinstance(error, BrokerLost | BrokerUnreachable) or (isinstance(error, Refusal) and error.is_retryable)


def read_some(client: SyncClient, topic: str, offset: int, most: int) -> tuple[list[bytes], int]:
    """Read up to `most` lines from `offset`, limited in number and bytes; also return the offset after them."""
    return client.read_lines(topic, offset, limit=min(most, _LINES_PER_READ), bytes_max=_BYTES_PER_READ)


def chunks_between(read: Read, topic: str, start: int, end: int) -> Iterator[list[bytes]]:
    """Yield the lines of the offsets from `start` up to, not including, `end`, in chunks.

    Args:
        read: takes an offset and the number of lines wanted; returns lines and the offset after them.
        topic: the topic's name, for the error.
        start: the first offset.
        end: the offset after the last one.

    Raises:
        LookupError: the topic ends before `end`.
    """
    while start < end:
        lines, after = read(start, end - start)
        if after <= start:
            raise LookupError(f"the topic {topic} now ends at offset {start}, but had offsets up to {end}")
        # A read skips removed and damaged events, so it may return later events in their place.
        if after > end:
            lines = [line for line in lines if offset_of(line) < end]
        if lines:
            yield lines
        start = after


def chunks_back(client: SyncClient, topic: str) -> Iterator[tuple[int, Iterator[list[bytes]]]]:
    """Yield stretches of a topic from its end backwards: the first offset of each, and its lines in order."""
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
    """Check at the start that the broker answers, accepts the login, and allows reading `topics`.

    Args:
        login: the broker's address and the user.
        topics: the topics to read.
        within_s: how long to try, in seconds.

    Raises:
        BrokerUnreachable: the broker does not answer in time.
        StartError: the broker refuses the login or a topic, or TLS fails.
    """
    with SparkLink(login, retry_s=within_s) as link:
        try:
            link.call(lambda client: client.topics())
            for topic in topics:
                _see_topic(link, topic)
        except TlsFailed as error:
            raise StartError(login.reason(error)) from error
        except Refusal as refusal:
            # A retryable refusal is like an unreachable broker: a running job tries again.
            if refusal.is_retryable:
                raise BrokerUnreachable(login.address, str(refusal)) from refusal
            raise StartError(f"the broker at {login.address} refuses: {login.reason(refusal)}") from refusal


def _see_topic(link: SparkLink, topic: str) -> None:
    # Without this check, a topic that the user may not read would look like a missing one, and the job would wait for it.
    try:
        link.call(lambda client: client.read_lines(topic, "latest", limit=1))
    except Refusal as refusal:
        if refusal.code != "unknown_topic":
            raise
