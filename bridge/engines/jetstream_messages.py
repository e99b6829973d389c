"""Turn records into messages of NATS, and messages into entries. No I/O.

An attribute of a record is a header of the message. The names of CloudEvents begin with ``ce-``, as the NATS protocol binding
of CloudEvents 1.0.2 asks. Values are percent-encoded where a header could not hold them. An empty payload is a tombstone.

Each message has the header ``Tweetwire-Position``, ``<broker>/<topic>/<offset>/<id of the log>``: our position, if it is the
newest one. The id of the topic's log is missing in messages of earlier releases.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote, unquote

import msgspec

from bridge.central import Arrival, Record, RecordRefused
from bridge.engines.jetstream_subjects import Subjects

__all__ = ["FORGOTTEN", "POSITION", "MessageWriter", "arrival_of", "position_in"]

POSITION: Final = "Tweetwire-Position"
FORGOTTEN: Final = "none"
"""A message with this word in place of the offset makes the position before it void. It is not an entry."""

_JSON: Final = "headers"
"""The attribute whose value is a JSON object, which a header can hold as it is."""
_SAFE: Final = re.compile(r"[!#$&-~]*")
_UNQUOTED: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
_HEADERS_MAX: Final = 65_535
"""The server refuses more bytes of headers."""
_LAYOUTS_MAX: Final = 1000
_STATUS: Final = "NATS/1.0\r\n"

_encode = msgspec.json.Encoder().encode


class MessageWriter:
    """Writes the messages of one route as commands of the NATS protocol.

    Args:
        subjects: The subjects of the route.
        route: The broker and the topic, as ``<broker>/<topic>``.
        payload_max: The most bytes of headers and payload that the server and the stream take.
        log: The id of the topic's log, "" if it is not known.
    """

    def __init__(self, subjects: Subjects, route: str, payload_max: int, log: str = "") -> None:
        self._subjects = subjects
        self._position = f"{POSITION}: {route}/"
        self._log = f"/{log}" if log else ""
        self._payload_max = payload_max
        self._lines: dict[tuple[str, ...], str] = {}

    def batch(self, records: Sequence[Record], batch: str, conditions: str, reply: str) -> list[bytes]:
        """Return the commands that publish records as one atomic batch. Only the last message asks for a reply.

        Args:
            batch: The id of the batch.
            conditions: Header lines of the first message.
            reply: The subject of the reply.

        Raises:
            RecordRefused: A message is too large for the server.
        """
        head = f"{_STATUS}{conditions}Nats-Batch-Id: {batch}\r\nNats-Batch-Sequence: "
        commands = []
        for number, record in enumerate(records, 1):
            commands.append(self._command(record, f"{head}{number}\r\n", ""))
            if number == 1:
                head = f"{_STATUS}Nats-Batch-Id: {batch}\r\nNats-Batch-Sequence: "
        commands[-1] = self._command(records[-1], f"{head}{len(records)}\r\nNats-Batch-Commit: 1\r\n", f"{reply} ")
        return commands

    def single(self, record: Record, conditions: str, reply: str) -> bytes:
        """Return the command that publishes one record. Raises RecordRefused."""
        return self._command(record, f"{_STATUS}{conditions}", f"{reply} ")

    def forgotten(self, conditions: str, reply: str) -> bytes:
        """Return the command that publishes a message which makes the position void."""
        headers = f"{_STATUS}{conditions}{self._position}{FORGOTTEN}\r\n\r\n".encode()
        return b"HPUB %b %b %d %d\r\n%b\r\n" % (
            *(self._subjects.of(None).encode(), reply.encode(), len(headers), len(headers), headers),
        )

    def _command(self, record: Record, head: str, reply: str) -> bytes:
        fields = record.fields
        names, values = tuple(fields[::2]), tuple(fields[1::2])
        lines = self._lines.get(names) or self._lines_of(names)
        if not _SAFE.fullmatch("".join(values)):
            values = tuple(map(_value, names, values))
        headers = f"{head}{self._position}{record.offset}{self._log}\r\n{lines % values}\r\n".encode()
        payload = record.value or b""
        size = len(headers) + len(payload)
        if size > self._payload_max or len(headers) > _HEADERS_MAX:
            raise RecordRefused(
                record.offset,
                f"the message has {size} bytes, {len(headers)} of them headers; the server takes {self._payload_max} bytes, "
                f"{_HEADERS_MAX} of them headers",
            )
        command = f"HPUB {self._subjects.of(record.key)} {reply}{len(headers)} {size}\r\n".encode()
        return b"%b%b%b\r\n" % (command, headers, payload)

    def _lines_of(self, names: tuple[str, ...]) -> str:
        """Return the header lines of attributes, with a place for each value. Most records have the same attributes."""
        headers = (f"ce-{name[3:]}" if name.startswith("ce_") else name for name in names)
        lines = "".join(f"{header.replace('%', '%%')}: %s\r\n" for header in headers)
        if len(self._lines) < _LAYOUTS_MAX:
            self._lines[names] = lines
        return lines


def arrival_of(place: int, subject: str, timestamp: int, headers: Mapping[str, str], payload: bytes) -> Arrival | None:
    """Return the entry of a message, None if the message only says that a position is void.

    A message of another program keeps its headers as headers of the event, and its subject as the key.
    """
    position = headers.get(POSITION)
    if position is not None and position.endswith(f"/{FORGOTTEN}"):
        return None
    fields: dict[str, str] = {}
    others: dict[str, str] = {}
    for name, value in headers.items():
        if name.startswith("ce-"):
            fields[f"ce_{name[3:]}"] = _read(value)
        elif name == POSITION or name.startswith("Nats-"):
            continue
        elif position is None and name != "via":
            others[name] = value
        else:
            fields[name] = value if name == _JSON else _read(value)
    key = subject if position is None else None
    if others:
        fields[_JSON] = _encode(others).decode()
    return Arrival(str(place), timestamp, key, payload or None, fields)


def _value(name: str, value: str) -> str:
    if name == _JSON or _SAFE.fullmatch(value):
        return value
    return quote(value, safe=_UNQUOTED)


def _read(value: str) -> str:
    return unquote(value) if "%" in value else value


def position_in(headers: bytes) -> str:
    """Return the position in the raw headers of a message, "" if there is none."""
    for line in headers.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name == POSITION.encode():
            return value.strip().decode(errors="replace")
    return ""
