"""Append to streams of NATS JetStream.

The position is a header of the newest message of the route's filter, so it is written with the records or not at all. Each
write is an atomic batch under a condition: no other message has come since the newest one that we know. In a stream that takes
the messages of this route alone, the condition names the last sequence of the stream. In other streams, it names the last
sequence of the filter.
"""

import secrets
import time
from collections.abc import AsyncIterator, Sequence
from typing import Final

from nats.aio.msg import Msg

from bridge.central import (
    Arrival,
    CentralLost,
    EngineUnreachable,
    Found,
    PositionMoved,
    Record,
)
from bridge.engines.jetstream_link import ApiError, JetStreamLink, NatsLogin, status_of
from bridge.engines.jetstream_messages import FORGOTTEN, MessageWriter
from bridge.engines.jetstream_reading import entries_of
from bridge.engines.jetstream_streams import Newest, find_stream, newest_of, provide_stream
from bridge.engines.jetstream_subjects import DEFAULT_SUBJECT, Subjects
from tweetwire.protocol.errors import StartError

__all__ = ["JetStreamDestination"]

_BATCH_MAX: Final = 1000
_BATCH_ID_BYTES: Final = 12
_LOOK_EVERY_S: Final = 30.0
"""How often a route looks whether the stream was deleted and made again, because another stream could take our batches."""
_MOVED: Final = frozenset({10071, 10164})
_WRONG_STREAM: Final = 10060


class JetStreamDestination:
    """Appends to a stream.

    Args:
        login: The servers.
        stream: The name of the stream.
        topic: The topic whose events are sent.
        subject: The template of the subjects; "" for ``tw.{broker}.{topic}.{key}``.
        replicas: The least number of replicas that the stream has; 0 for any.
        create: Whether to make the stream if it does not exist.
    """

    def __init__(
        self,
        login: NatsLogin,
        stream: str,
        topic: str,
        *,
        subject: str = "",
        replicas: int = 0,
        create: bool = True,
    ) -> None:
        self._link = JetStreamLink(login)
        self._stream = stream
        self._topic = topic
        self._template = subject or DEFAULT_SUBJECT
        self._replicas = replicas
        self._create = create
        self._subjects = Subjects(self._template, "", topic)
        self._writer = MessageWriter(self._subjects, "", 0)
        self._centre = ""
        self._is_alone = False
        self._last = 0
        self._looked_at = 0.0

    async def open(self, identity: str, log: str = "") -> Found:
        """Connect, and return the position of a broker. Raises the errors of `Destination.open`."""
        await self._link.connect()
        subjects = self._subjects = Subjects(self._template, identity, self._topic)
        state = await provide_stream(
            self._link,
            self._stream,
            subjects.filter,
            # A stream with the broker in its name is for this broker alone.
            subjects.filter if identity in self._stream else subjects.shared,
            replicas=self._replicas,
            create=self._create,
        )
        # Read the state first: a message that is stored between the two reads is then part of both position and condition.
        newest = await newest_of(self._link, self._stream, subjects.filter)
        who = f"{identity}/{self._topic}"
        size = int(state.config.get("max_msg_size") or -1)
        payload_max = self._link.payload_max
        self._writer = MessageWriter(subjects, who, min(payload_max, size) if size > 0 else payload_max, log)
        self._centre, self._looked_at = state.centre, time.monotonic()
        self._is_alone = state.subjects == [subjects.filter]
        self._last = 0 if newest is None else newest.sequence
        if self._is_alone:
            self._last = max(self._last, state.last)
        has_expired = newest is None and state.first > 1
        position, of_log = self._position(newest, who)
        return Found(position, state.centre, has_expired=has_expired, log=of_log)

    async def forget(self) -> None:
        """Make our position void, by a message that says so."""
        newest = await newest_of(self._link, self._stream, self._subjects.filter)
        if newest is not None and not newest.position.endswith(f"/{FORGOTTEN}"):
            token, reply = self._link.reply_subject()
            await self._send([self._writer.forgotten(self._conditions(), reply)], token)

    async def append(self, records: Sequence[Record]) -> None:
        """Write records and the position, or nothing. Raises the errors of `Destination.append`.

        More than `_BATCH_MAX` records are written as several atomic batches. After an exception, the first batches may be
        written.
        """
        pieces = [records[start : start + _BATCH_MAX] for start in range(0, len(records), _BATCH_MAX)]
        if len(pieces) > 1:
            for piece in pieces:
                # A record that is too large is refused before anything is written.
                self._writer.batch(piece, "0" * 2 * _BATCH_ID_BYTES, self._conditions(), self._link.reply_subject()[1])
        await self._look_now_and_then()
        for number, piece in enumerate(pieces):
            try:
                await self._write(piece)
            except PositionMoved as moved:
                if number:
                    raise EngineUnreachable(
                        f"the first {number * _BATCH_MAX} records were written, then: {moved}"
                    ) from moved
                raise

    def entries(self) -> AsyncIterator[list[Arrival]]:
        """Read the whole stream."""
        return entries_of(self._link, self._stream)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._link.aclose()

    async def _write(self, records: Sequence[Record]) -> None:
        try:
            await self._publish(records)
        except PositionMoved:
            if not await self._has_expired():
                raise
            await self._publish(records)

    async def _publish(self, records: Sequence[Record]) -> None:
        token, reply = self._link.reply_subject()
        if len(records) == 1:
            commands = [self._writer.single(records[0], self._conditions(), reply)]
        else:
            commands = self._writer.batch(records, secrets.token_hex(_BATCH_ID_BYTES), self._conditions(), reply)
        await self._send(commands, token)

    async def _send(self, commands: Sequence[bytes], token: str) -> None:
        message = await self._link.exchange(commands, token)
        if status_of(message):
            await self._explain_silence(message)
        try:
            self._last = int(self._link.answer_of(message)["seq"])
        except ApiError as error:
            if error.number in _MOVED:
                raise PositionMoved(f"another bridge has written to the stream ({error})") from error
            if error.number == _WRONG_STREAM:
                raise StartError(
                    f"the subject {self._subjects.filter} belongs to another stream than {self._stream}"
                ) from error
            raise

    def _conditions(self) -> str:
        """Return the header lines of a first message."""
        stream = f"Nats-Expected-Stream: {self._stream}\r\n"
        if self._is_alone:
            return f"{stream}Nats-Expected-Last-Sequence: {self._last}\r\n"
        return (
            f"{stream}Nats-Expected-Last-Subject-Sequence: {self._last}\r\n"
            f"Nats-Expected-Last-Subject-Sequence-Subject: {self._subjects.filter}\r\n"
        )

    async def _explain_silence(self, message: Msg) -> None:
        """Raise CentralLost if no stream takes the message because ours was deleted, else EngineUnreachable."""
        state = await find_stream(self._link, self._stream)
        if state is None or state.centre != self._centre:
            raise CentralLost(f"the stream {self._stream} was deleted")
        raise EngineUnreachable(
            f"the stream {self._stream} has no leader, or the subject is no longer one of its subjects"
        )

    async def _has_expired(self) -> bool:
        """Whether the stream has removed all messages of the route because of their age. The next one is then the first."""
        if self._is_alone or not self._last:
            return False
        state = await find_stream(self._link, self._stream)
        if state is None or state.centre != self._centre or state.last < self._last:
            return False
        if await newest_of(self._link, self._stream, self._subjects.filter) is not None:
            return False
        self._last = 0
        return True

    async def _look_now_and_then(self) -> None:
        now = time.monotonic()
        if now - self._looked_at < _LOOK_EVERY_S:
            return
        state = await find_stream(self._link, self._stream)
        if state is None or state.centre != self._centre:
            raise CentralLost(f"the stream {self._stream} was deleted")
        self._looked_at = now

    def _position(self, newest: Newest | None, who: str) -> tuple[int | None, str]:
        """Return the offset in a position, and the id of the log that it counts in."""
        if newest is None:
            return None, ""
        broker, topic, offset, log, *_ = [*newest.position.split("/"), "", "", "", ""]
        found = f"{broker}/{topic}" if broker else ""
        if found != who or not (offset.isdecimal() or offset == FORGOTTEN):
            by = f"the route {found} has written" if found else "no bridge has written"
            raise StartError(
                f"message {newest.sequence} of the stream {self._stream}, which {by}, has a subject of {who}; "
                "give the route other subjects with subject="
            )
        return (None, "") if offset == FORGOTTEN else (int(offset), log)
