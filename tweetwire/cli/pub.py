"""``pub``: publish one event, or one event for each line of stdin."""

import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from tweetwire.cli.connection import CommandConnection, TopicArgument
from tweetwire.cli.display import print_json
from tweetwire.cli.event_ids import EventIds
from tweetwire.cli.flags import OUTPUT, Flag, argument
from tweetwire.cli.kinds import NAME, SECONDS, SWITCH, TEXT, Kind, whole
from tweetwire.cli.line_source import LineSource
from tweetwire.cli.places import DUE_TIME, EXPIRY
from tweetwire.cli.progress import Progress
from tweetwire.protocol.errors import BrokerLost, Refusal, StartError
from tweetwire.protocol.events import Event
from tweetwire.protocol.replies import Receipt
from tweetwire.protocol.units import format_seconds

if TYPE_CHECKING:
    from tweetwire.client.blocking import SyncClient

__all__ = ["Pub"]

T = TypeVar("T")

STDIN: Final = "-"
FAULTS_SHOWN: Final = 10

_see_json = msgspec.json.Decoder(Raw).decode
_Member = Callable[[Mapping[str, Any]], Any]


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ValueError(f"{text[:40]!r} is not NAME=VALUE")
    return name, value


_HEADER: Final = Kind("NAME=VALUE", _header)
_PATH: Final = TEXT._replace(word="PATH")


class Pub(CommandConnection, kw_only=True):
    """Publish one event, or with - one event for each line of stdin.

    The JSON is the payload, the member msg of the event. A topic that does not exist is made.
    """

    examples = (
        """tweetwire pub orders '{"total":12.5}' --priority 9 --delay 30m""",
        "tweetwire pub orders - --id-from msg.number --producer import-7 < orders.jsonl",
    )

    topic: TopicArgument
    payload: Annotated[str, argument(TEXT, "the payload, or - for a payload on each line of stdin", name="json")]
    event_id: Annotated[str | None, Flag(TEXT, "id of the event", name="id", default="new ones, in order of time")] = (
        None
    )
    id_from: Annotated[str | None, Flag(_PATH, "take the ids from this member of the payload, such as msg.id")] = None
    key: Annotated[str | None, Flag(TEXT, "key, which groups the events of one entity")] = None
    key_from: Annotated[str | None, Flag(_PATH, "take the keys from this member of the payload")] = None
    priority: Annotated[int, Flag(whole(0, 255), "priority; a higher one is delivered first")] = 0
    header: Annotated[list[tuple[str, str]], Flag(_HEADER, "a header; can be given several times")] = msgspec.field(
        default_factory=list
    )
    parent: Annotated[str | None, Flag(TEXT, "id of the event that caused this one")] = None
    delay: Annotated[
        float | None, Flag(SECONDS, "deliver the event this long after its arrival; at most 365d", default="at once")
    ] = None
    at: Annotated[datetime | None, Flag(DUE_TIME, "deliver the event at this time, not before", default="at once")] = (
        None
    )
    expires: Annotated[
        datetime | str | None,
        Flag(EXPIRY, "do not deliver the event after this time, or this long after its arrival", default="never"),
    ] = None
    producer: Annotated[
        str | None,
        Flag(NAME, "number the lines under this name, so that a line that is sent again is not stored twice"),
    ] = None
    skip_bad: Annotated[
        bool, Flag(SWITCH, "skip lines that are not JSON or that the broker refuses, and count them")
    ] = False
    is_json: Annotated[bool, Flag(SWITCH, "write the result as one line of JSON", name="json", group=OUTPUT)] = False

    def run_command(self) -> None:
        """Publish. Raises BrokerError, StartError."""
        if self.event_id is not None and self.id_from is not None:
            raise StartError("--id and --id-from exclude each other; pass one of them")
        if self.key is not None and self.key_from is not None:
            raise StartError("--key and --key-from exclude each other; pass one of them")
        if self.delay is not None and self.at is not None:
            raise StartError("--delay and --at exclude each other; pass one of them")
        maker = _EventMaker(self)
        if self.payload == STDIN:
            if self.event_id is not None:
                raise StartError("--id is for one event; take the ids of lines from a member with --id-from")
            with self.connect() as client:
                _Lines(self, maker, client).publish()
        else:
            self._publish_one(maker)

    def _publish_one(self, maker: "_EventMaker") -> None:
        if self.producer is not None:
            raise StartError("--producer numbers the lines of stdin; pass - instead of JSON")
        try:
            event = maker.make(self.payload.encode())
        except ValueError as error:
            raise StartError(f"""{error}; quote the JSON for the shell: '{{"total":12.5}}'""") from error
        with self.connect() as client:
            receipt = client.publish(self.topic, event)
        if self.is_json:
            print_json(msgspec.structs.asdict(receipt) | {"id": event.id})
        else:
            print(f"published {event.id} to {self.topic} @{receipt.first}")


class _EventMaker:
    """Makes events from payloads."""

    def __init__(self, command: Pub) -> None:
        self._command = command
        self._ids = EventIds()
        self._id_from = _member(command.id_from, "--id-from")
        self._key_from = _member(command.key_from, "--key-from")

    def make(self, line: bytes, sequence: int | UnsetType = UNSET) -> Event:
        """Return the event of a payload. Raises ValueError with a sentence if the payload cannot be used."""
        command = self._command
        try:
            _see_json(line)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            reason = str(error).removeprefix("JSON is malformed: ")
            raise ValueError(f"{line[:40].decode(errors='replace')!r} is not JSON: {reason}") from error
        key = self._taken(line, self._key_from, command.key_from)
        return Event(
            id=self._taken(line, self._id_from, command.id_from) or command.event_id or self._ids.make(),
            msg=Raw(line),
            priority=command.priority,
            key=_given(command.key if key is None else key),
            parent=_given(command.parent),
            headers=self._headers,
            producer=UNSET if sequence is UNSET else _given(command.producer),
            sequence=sequence,
            due=_given(command.at),
            delay=UNSET if command.delay is None else format_seconds(command.delay),
            expires=_given(command.expires),
        )

    @cached_property
    def _headers(self) -> dict[str, str] | UnsetType:
        return dict(self._command.header) or UNSET

    def _taken(self, line: bytes, member: _Member | None, path: str | None) -> str | None:
        if member is None:
            return None
        value = member({"msg": msgspec.json.decode(line)})
        if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
            raise ValueError(f"{path} is {'missing' if value is UNSET else 'neither a text nor a whole number'}")
        return str(value)


class _Lines:
    """Publishes the lines of stdin, and remembers which of them the broker has confirmed."""

    def __init__(self, command: Pub, maker: _EventMaker, client: "SyncClient") -> None:
        self._command = command
        self._maker = maker
        self._client = client
        self._progress = Progress("publishing", "published", "events", has_bar=not sys.stdin.isatty())
        # The numbers of the lines that were sent and not yet answered, in order
        self._sent: deque[int] = deque()
        self._duplicates = 0
        self._skipped = 0
        self._fault = ""
        # How many sent lines are before the fault; None means all.
        self._before_fault: int | None = None

    def publish(self) -> None:
        """Publish until the end of stdin. Raises BrokerLost and StartError with the number of confirmed events."""
        source = LineSource(sys.stdin.fileno())
        try:
            with self._progress:
                while not source.has_ended:
                    self._publish_burst(source)
                    self._raise_fault()
                self._progress.note = f"to {self._command.topic}{self._remarks()}"
        except BrokerLost as error:
            again = "; send all lines again, none is stored twice" if self._command.producer else ""
            raise BrokerLost(self._command.broker, f"{error}; {self._confirmed()}{again}") from error
        except (KeyboardInterrupt, SystemExit):
            # SIGTERM usually ends a command with status 0, but a script must not believe that all lines were published.
            raise StartError(f"interrupted; {self._confirmed()}") from None
        if self._command.is_json:
            stored = self._progress.count - self._duplicates
            print_json({"stored": stored, "duplicates": self._duplicates, "skipped": self._skipped})

    def _publish_burst(self, source: LineSource) -> None:
        events = self._events(source)
        while True:
            try:
                self._client.publish_many(self._command.topic, events, answered=self._note_answer)
            except Refusal:
                # `_note_answer` has noted the refusal. The client has sent no later event, so continue with the rest.
                if not self._fault:
                    continue
            return

    def _events(self, source: LineSource) -> Iterator[Event]:
        numbered = self._command.producer is not None
        try:
            for number, line in source.burst():
                try:
                    event = self._maker.make(line, number if numbered else UNSET)
                except ValueError as error:
                    if not self._command.skip_bad:
                        self._fault = f"line {number:,}: {error}"
                        return
                    self._skip(number, str(error))
                    continue
                self._sent.append(number)
                yield event
        except ValueError as error:
            self._fault = str(error)

    def _note_answer(self, answer: Receipt | Refusal) -> None:
        if isinstance(answer, Refusal):
            number, text = self._sent.popleft(), f"the broker refuses ({answer.code}): {answer.text}"
            # The broker refuses the later lines of a producer, too, until it has this one.
            if self._command.skip_bad and self._command.producer is None:
                self._skip(number, text)
            elif not self._fault:
                self._fault, self._before_fault = f"line {number:,}: {text}", self._progress.count
            return
        for _ in range(answer.count):
            self._sent.popleft()
        self._duplicates += answer.count if answer.is_duplicate else 0
        self._progress.advance(answer.count)

    def _skip(self, number: int, fault: str) -> None:
        self._skipped += 1
        if self._skipped <= FAULTS_SHOWN:
            print(f"tweetwire pub: line {number:,}: {fault}; skipped", file=sys.stderr, flush=True)

    def _raise_fault(self) -> None:
        if self._fault:
            stored = self._progress.count
            before = stored if self._before_fault is None else self._before_fault
            more = f", and {stored - before:,} after it" if stored > before else ""
            raise StartError(f"{self._fault}; {before:,} events before it were stored{more}")

    def _confirmed(self) -> str:
        return f"{self._progress.count:,} events are confirmed"

    def _remarks(self) -> str:
        remarks = [f"{self._duplicates:,} of them stored earlier"] if self._duplicates else []
        remarks += [f"{self._skipped:,} lines skipped"] if self._skipped else []
        return f" ({', '.join(remarks)})" if remarks else ""


def _member(path: str | None, flag: str) -> _Member | None:
    if path is None:
        return None
    from tweetwire.cli.where import read_member  # noqa: PLC0415 — only these flags need it

    return read_member(path, flag)


def _given(value: T | None) -> T | UnsetType:
    return UNSET if value is None else value
