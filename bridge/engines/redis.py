"""Streams of Redis and Valkey.

The position lies in a hash beside the stream, and one script writes both. See `bridge.engines.redis_scripts`.
"""

import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from bridge.central import (
    Arrival,
    CentralLost,
    EngineRefused,
    EntriesRemoved,
    Found,
    NotThereYet,
    PositionMoved,
    Record,
    Source,
)
from bridge.engines.redis_batch import DATA, packed
from bridge.engines.redis_link import RedisLink, RedisLogin
from bridge.engines.redis_scripts import APPEND, FORGET, OPEN
from tweetwire.protocol.errors import StartError

__all__ = ["RedisDestination", "RedisOrigin"]

_PAGE: Final = 1000
_REPLICAS_WAIT_MS: Final = 1000
_FIRST: Final = "0-0"
_LOG_AT: Final = 3
"""The place of the log's id among the words that follow the offset of a position."""

_encode = msgspec.json.Encoder().encode


def _positions_of(stream: str) -> str:
    # The hash has to lie on the node of the stream, also in a cluster.
    return f"{stream}:tweetwire" if "{" in stream else f"{{{stream}}}:tweetwire"


class RedisDestination:
    """Appends to a stream.

    Args:
        login: The server.
        stream: The key of the stream.
        topic: The topic whose events are sent.
        trim: The approximate number of entries to keep; 0 for all.
        replicas: The number of replicas that must have each write.
        create: Whether to make the stream if it does not exist.
    """

    def __init__(
        self, login: RedisLogin, stream: str, topic: str, *, trim: int = 0, replicas: int = 0, create: bool = True
    ) -> None:
        self._link = RedisLink(login, stream)
        self._keys = (stream, _positions_of(stream))
        self._topic = topic
        self._trim = str(trim)
        self._replicas = replicas
        self._create = "yes" if create else "no"
        self._field = ""
        self._log = ""
        self._kept = ""
        self._centre = ""

    async def open(self, identity: str, log: str = "") -> Found:
        """Connect, and return the position of a broker. Raises the errors of `Destination.open`."""
        await self._link.connect()
        self._field, self._log = f"{identity}/{self._topic}", log
        reply = await self._link.run(OPEN, self._keys, self._field, secrets.token_urlsafe(16), self._create)
        if reply[0] == b"absent":
            raise NotThereYet(f"there is no stream {self._keys[0]}")
        self._kept, self._centre = _text(reply[1]), _text(reply[2])
        await self._wait_for_replicas()
        offset, *others = self._kept.split(" ")
        if self._kept and not offset.isdecimal():
            raise StartError(f"{self._keys[1]} has a position of {self._field} that no bridge wrote: {self._kept:.80}")
        return Found(
            int(offset) if self._kept else None,
            self._centre,
            is_replaced=reply[3] == b"yes",
            log="".join(others[_LOG_AT:]),
        )

    async def forget(self) -> None:
        """Delete our position."""
        self._centre = _text(await self._link.run(FORGET, self._keys, self._field, secrets.token_urlsafe(16)))
        self._kept = ""

    async def append(self, records: Sequence[Record]) -> None:
        """Write records and the position, or nothing. Raises the errors of `Destination.append`."""
        batch = packed(records)
        words = (self._field, self._kept, self._centre, batch, self._trim, self._create, records[-1].offset, self._log)
        reply = await self._link.run(APPEND, self._keys, *words)
        match reply:
            case [b"stored", kept]:
                await self._wait_for_replicas()
                self._kept = _text(kept)
            case [b"moved", _]:
                raise PositionMoved("another bridge has written to the stream")
            case [b"absent"]:
                raise NotThereYet(f"there is no stream {self._keys[0]}")
            case [b"ids", last]:
                raise StartError(
                    f"the newest id of {self._keys[0]} is {_text(last)}, and no id of ours can follow it; choose another stream"
                )
            case _:
                raise CentralLost(f"the stream {self._keys[0]} was deleted")

    def entries(self) -> AsyncIterator[list[Arrival]]:
        """Read the whole stream."""
        return _entries(self._link, self._keys[0])

    async def aclose(self) -> None:
        """Close the connection."""
        await self._link.aclose()

    async def _wait_for_replicas(self) -> None:
        """Wait until the replicas have all writes of this connection. Raises EngineRefused if there are too few of them."""
        if self._replicas:
            found = await self._link.command("WAIT", self._replicas, _REPLICAS_WAIT_MS)
            if found < self._replicas:
                raise EngineRefused(f"{found} of {self._replicas} replicas have the events")


class RedisOrigin:
    """Reads a stream.

    A place is the id of an entry. An entry with a field `data` has that as its value. Any other entry was written by another
    program; its value is the JSON object of its fields.
    """

    def __init__(self, login: RedisLogin, stream: str, *, batch: int = _PAGE) -> None:
        self._link = RedisLink(login, stream)
        self._stream = stream
        self._batch = batch
        self._wait_s_max = login.timeout_s / 2
        self._expected = ""

    async def open(self, position: str, centre: str, *, is_exact: bool) -> Source:
        """Look whether reading can continue. Raises the errors of `Origin.open`."""
        await self._link.connect()
        if not await self._link.command("EXISTS", self._stream):
            if position:
                return Source("", "", is_replaced=True)
            raise NotThereYet(f"there is no stream {self._stream}")
        info = await self._link.command("XINFO", "STREAM", self._stream)
        last = _text(
            info["last-generated-id"] if isinstance(info, dict) else info[info.index(b"last-generated-id") + 1]
        )
        found = await self._centre()
        is_other = bool(centre) and centre != found
        self._expected = position if is_exact else ""
        return Source(found, last, is_replaced=bool(position) and (is_other or _id(position) > _id(last)))

    async def read(self, after: str, wait_s: float) -> list[Arrival]:
        """Return entries after a place. Raises the errors of `Origin.read`."""
        if not after:
            found = _arrivals(await self._link.command("XRANGE", self._stream, "-", "+", "COUNT", self._batch))
        else:
            # The entry at the place is read again: if it is missing, entries after it may be missing too.
            found = _arrivals(await self._link.command("XRANGE", self._stream, after, "+", "COUNT", self._batch + 1))
            if found and found[0].place == after:
                found = found[1:]
            elif found and self._expected == after:
                self._expected = ""
                raise EntriesRemoved(after, found[0].place)
        if not found and wait_s > 0:
            await self._wait(after, wait_s)
            return []
        if found:
            self._expected = found[-1].place
        return found

    async def _wait(self, after: str, wait_s: float) -> None:
        """Wait until there is an entry after a place."""
        block_ms = max(1, int(min(wait_s, self._wait_s_max) * 1000))
        await self._link.command("XREAD", "COUNT", 1, "BLOCK", block_ms, "STREAMS", self._stream, after or _FIRST)

    def check_place(self, text: str) -> str:
        """Return an id with both of its parts."""
        ms, _, number = text.partition("-")
        if not ms.isdecimal() or not (number or "0").isdecimal() or len(text) > 41:
            raise ValueError("write earliest, latest or the id of an entry")
        return f"{ms}-{number or '0'}"

    def entries(self) -> AsyncIterator[list[Arrival]]:
        """Read the whole stream."""
        return _entries(self._link, self._stream)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._link.aclose()

    async def _centre(self) -> str:
        positions = _positions_of(self._stream)
        try:
            await self._link.command("HSETNX", positions, "id", secrets.token_urlsafe(16))
            return _text(await self._link.command("HGET", positions, "id"))
        except EngineRefused:
            # A user who may only read, or a replica. The name of the stream has to be enough.
            return f"redis.{self._stream}"


async def _entries(link: RedisLink, stream: str) -> AsyncIterator[list[Arrival]]:
    await link.connect()
    start = "-"
    while found := _arrivals(await link.command("XRANGE", stream, start, "+", "COUNT", _PAGE)):
        yield found
        start = f"({found[-1].place}"


def _id(place: str) -> tuple[int, int]:
    ms, _, number = place.partition("-")
    return int(ms or -1), int(number or 0)


def _arrivals(reply: Any) -> list[Arrival]:
    return [_arrival(id_.decode(), fields) for id_, fields in reply or () if fields is not None]


def _arrival(place: str, raw: Mapping[bytes, bytes]) -> Arrival:
    fields = {_text(name): text for name, text in raw.items()}
    value = fields.pop(DATA, None)
    texts = {name: _text(text) for name, text in fields.items()}
    is_ours = "ce_source" in texts or "origin" in texts
    if value is None and not is_ours:
        return Arrival(place, int(place.partition("-")[0]), None, _encode(texts), {})
    return Arrival(place, int(place.partition("-")[0]), None, value, texts)


def _text(raw: bytes | str) -> str:
    return raw if isinstance(raw, str) else raw.decode(errors="backslashreplace")
