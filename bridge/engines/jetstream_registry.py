"""The registry of brokers in NATS JetStream: a small stream with one message for each broker.

The server dates the messages and the answer that describes the stream, so ages need no other clock. The stream keeps only the
newest message of a subject, and removes it after some time.
"""

from datetime import datetime
from typing import Final
from urllib.parse import quote

from bridge.central import BROKERS_MAX, HEARTBEAT_BYTES_MAX, KEPT_S, EngineUnreachable, Sighting
from bridge.engines.jetstream_link import ApiError, JetStreamLink, NatsLogin, status_of
from bridge.engines.jetstream_reading import StreamReader
from bridge.engines.jetstream_streams import MADE_BY
from bridge.engines.seen_brokers import SeenBrokers

__all__ = ["JetStreamRegistry"]

STREAM: Final = "tweetwire-brokers"
_SUBJECT: Final = "tweetwire.brokers"
_NOT_FOUND: Final = 10059
_EXISTS: Final = 10058
_PAGE: Final = 1000
_HEADERS_MAX: Final = 1024


class JetStreamRegistry:
    """Keeps the heartbeats of brokers in a stream, which it makes."""

    def __init__(
        self, login: NatsLogin, *, replicas: int = 0, kept_s: float = KEPT_S, brokers_max: int = BROKERS_MAX
    ) -> None:
        self._link = JetStreamLink(login)
        self._replicas = max(1, replicas)
        self._kept_s = kept_s
        self._brokers_max = brokers_max
        self._reader = StreamReader(self._link, STREAM)
        self._created = ""
        self._after = 0
        self._seen = SeenBrokers(kept_s, brokers_max)

    async def open(self) -> None:
        """Connect, and make the stream if it does not exist. Raises the errors of `Registry.open`."""
        await self._link.connect()
        self._reader.reset()
        try:
            await self._link.api(f"STREAM.INFO.{STREAM}")
        except ApiError as error:
            if error.number != _NOT_FOUND:
                raise
            await self._make()

    async def announce(self, broker: str, heartbeat: bytes) -> None:
        """Replace the heartbeat of a broker."""
        token, reply = self._link.reply_subject()
        subject = f"{_SUBJECT}.{quote(broker, safe='').replace('.', '%2E')}"
        command = b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), reply.encode(), len(heartbeat), heartbeat)
        message = await self._link.exchange([command], token)
        if status_of(message):
            raise EngineUnreachable(f"there is no stream {STREAM}, or it has no leader")
        self._link.answer_of(message)

    async def sightings(self) -> list[Sighting]:
        """Return the newest heartbeat of each broker. Only the messages that came since the last call are read."""
        info = await self._link.api(f"STREAM.INFO.{STREAM}")
        if info["created"] != self._created:
            self._created, self._after = info["created"], 0
            self._seen.clear()
        now_ms = _milliseconds(info["ts"])
        while self._after < int(info["state"]["last_seq"]):
            found = await self._reader.read(self._after, _PAGE, 0)
            if not found:
                break
            for one in found:
                if one.entry is not None and one.entry.key is not None:
                    broker = one.entry.key.removeprefix(f"{_SUBJECT}.")
                    self._seen.note(broker, one.entry.timestamp, one.entry.value or b"")
            self._after = found[-1].sequence
        return self._seen.sightings(now_ms)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._link.aclose()

    async def _make(self) -> None:
        config = {
            "name": STREAM,
            "subjects": [f"{_SUBJECT}.*"],
            "storage": "file",
            "retention": "limits",
            "discard": "old",
            "max_consumers": -1,
            "max_msgs": self._brokers_max,
            "max_msgs_per_subject": 1,
            "max_bytes": -1,
            "max_age": round(self._kept_s * 10**9),
            "max_msg_size": HEARTBEAT_BYTES_MAX + _HEADERS_MAX,
            "num_replicas": self._replicas,
            "metadata": dict([MADE_BY]),
        }
        try:
            await self._link.api(f"STREAM.CREATE.{STREAM}", config)
        except ApiError as error:
            # Another bridge has made it at the same time.
            if error.number != _EXISTS:
                raise


def _milliseconds(text: str) -> int:
    """Return a date of the server, which has up to nine digits after the point, in milliseconds since 1970."""
    whole, _, rest = text.removesuffix("Z").partition(".")
    second = datetime.fromisoformat(f"{whole}+00:00").timestamp()
    return round(second * 1000) + int(rest[:3].ljust(3, "0"))
