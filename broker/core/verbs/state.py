"""Copy the durable state for backups: all records of the journal at one moment, in parts.

The first ``state`` command of a connection makes the copy and replies with its first part; later commands get the other parts.
So all parts belong to one moment, even if the client asks slowly. A copy takes about as much memory as a snapshot of the
journal, until its last part was sent or the connection ends.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from broker.core.access import Access
from broker.core.desk import Desk
from broker.core.session import Session, StateCopy
from broker.core.steps import Steps, sliced
from broker.core.verbs.handler import Handlers
from broker.journal.pattern_records import EndedPatternRecord, PatternRecord
from broker.journal.records import ClientRecord, Record
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.patterns import is_pattern
from tweetwire.protocol.verbs import state as commands

__all__ = ["StateVerbs"]

PART_CHARACTERS: Final = 1 << 20
RECORDS_A_SLICE: Final = 50

_encode = msgspec.json.encode


class StateVerbs:
    """Copies the state that `records` returns."""

    def __init__(self, desk: Desk, records: Callable[[], list[Record]]) -> None:
        self._desk = desk
        self._records = records
        self.handlers: Handlers = {commands.State: self.state}

    def state(self, session: Session, command: commands.State, now_ms: int) -> None:
        """Reply with a part of the session's copy of the state. A request for the beginning makes a new copy."""
        self._desk.begin_job(session, self._part(session, command.start), PART_CHARACTERS)

    def _part(self, session: Session, start: int) -> Steps[bytes]:
        if start == 0:
            session.state_copy = yield from self._copy(session.access)
        copy = session.state_copy
        if copy is None or start > len(copy.lines):
            raise Refusal("bad_arguments", f"there is no copy that reaches from={start}; begin with state")
        end = min(start + PART_CHARACTERS, len(copy.lines))
        is_last = end == len(copy.lines)
        if is_last:
            session.state_copy = None
        part = {"next": None if is_last else end, "left_out": copy.left_out, "records": copy.lines[start:end]}
        return b"+OK state %b\n" % _encode(part)

    def _copy(self, access: Access) -> Steps[StateCopy]:
        records = self._records()
        names = [topic.name for topic in self._desk.topics]
        readable = yield from sliced(names, lambda some: {name for name in some if access.may_read(name)})
        seen = set().union(*readable)
        parts = yield from sliced(records, lambda some: _lines(some, seen), RECORDS_A_SLICE)
        return StateCopy("".join(parts), sorted(set(names) - seen))


def _lines(records: Sequence[Record], seen: set[str]) -> str:
    shown = (_shown(record, seen) for record in records)
    return "".join(_encode(record).decode() + "\n" for record in shown if record is not None)


def _shown(record: Record, seen: set[str]) -> Record | None:
    """Return the part of a record that belongs to the topics in `seen`, or None if it has no such part."""
    if isinstance(record, ClientRecord):
        attached = [place for place in record.attached if place[0] in seen or is_pattern(place[0])]
        return ClientRecord(record.client, attached) if attached else None
    if isinstance(record, PatternRecord | EndedPatternRecord):
        return record
    return record if record.topic in seen else None
