"""Marks: how far other systems have the events of a topic, and the confirmations that wait for them.

A change is confirmed once it is on the disk.
"""

from typing import Any

import msgspec

from broker.core.access import EVERYTHING
from broker.core.desk import Desk
from broker.core.session import Session
from broker.core.topic.marks import Mark
from broker.core.topic.topic import Topic
from broker.core.verbs.handler import Handlers
from broker.journal.mark_records import ConfirmRecord, MarkedRecord, UnmarkedRecord
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.verbs import marking as commands

__all__ = ["Marking"]


class Marking:
    """Makes, moves, shows and forgets marks, and sets which of them confirmations wait for."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.handlers: Handlers = {
            commands.Mark: self.mark,
            commands.Unmark: self.unmark,
            commands.Marks: self.marks,
            commands.Confirm: self.confirm,
        }

    def mark(self, session: Session, command: commands.Mark, now_ms: int) -> None:
        """Move a mark, making it if it is missing. A mark that is already further stays, and the reply has its offset."""
        topic = self._desk.topics.find(command.topic, command.log)
        _check_offsets(topic, command)
        known = topic.marks.by_name.get(command.name)
        if known is None:
            # Moving a mark is accepted on a full disk, since retention may then remove events.
            self._desk.topics.check_room()
        else:
            _check_owner(session, topic, known)
        mark = topic.marks.make(command.name)
        is_claimed = _claim(session, mark, is_new=known is None)
        if is_claimed or command.offset >= mark.offset:
            try:
                self._advance(topic, mark, command)
            except Refusal:
                if known is None:
                    topic.marks.forget(mark.name)
                elif is_claimed:
                    mark.owners = ()
                raise
        self._desk.reply_after_record(session, mark.ticket, f"+OK mark {topic.name} {mark.name} @{mark.offset}")
        # The other system has the events, also if a crash takes the mark back before its record is on the disk.
        self._desk.release_marked(topic)

    def _advance(self, topic: Topic, mark: Mark, command: commands.Mark) -> None:
        new: list[int] = []
        if command.offset >= mark.offset:
            new = topic.marks.advance(mark, command.offset, command.excepted, command.checkpoint, topic.log.earliest)
        record = MarkedRecord(topic.name, mark.name, mark.offset, new, mark.checkpoint, list(mark.owners))
        mark.ticket = self._desk.work.keep(record)

    def unmark(self, session: Session, command: commands.Unmark, now_ms: int) -> None:
        """Forget a mark. The reply is the same for a mark that does not exist."""
        topic = self._desk.topics.find(command.topic)
        mark = topic.marks.by_name.get(command.name)
        if mark is not None:
            _check_owner(session, topic, mark)
            topic.marks.forget(mark.name)
            self._desk.release_marked(topic)
        line = f"+OK unmark {topic.name} {command.name}"
        self._desk.reply_when_kept(session, UnmarkedRecord(topic.name, command.name), line)

    def marks(self, session: Session, command: commands.Marks, now_ms: int) -> None:
        """Show the marks of a topic."""
        topic = self._desk.topics.find(command.topic)
        shown = [_shown(topic, mark) for _, mark in sorted(topic.marks.by_name.items())]
        self._desk.reply(session, f"+OK marks {topic.name} {msgspec.json.encode(shown).decode()}")

    def confirm(self, session: Session, command: commands.Confirm, now_ms: int) -> None:
        """Change which marks the confirmations of a topic wait for, and reply with the setting."""
        topic = self._desk.topics.find(command.topic)
        if command.change is None:
            self._desk.reply(session, f"+OK confirm {topic.name} {topic.confirmation}")
            return
        self._desk.topics.check_room()
        topic.confirmation = topic.confirmation.changed(command.change)
        record = ConfirmRecord(topic.name, topic.confirmation)
        self._desk.reply_when_kept(session, record, f"+OK confirm {topic.name} {topic.confirmation}")


def _shown(topic: Topic, mark: Mark) -> dict[str, Any]:
    return {
        "name": mark.name,
        "offset": mark.offset,
        "lag": mark.lag(topic.log.earliest, topic.visible),
        "excepted": mark.excepts(topic.log.earliest, mark.offset),
        "checkpoint": mark.checkpoint,
        "overtaken": mark.overtaken,
        "owners": mark.owners,
    }


def _check_offsets(topic: Topic, command: commands.Mark) -> None:
    if command.offset > topic.visible:
        raise Refusal(
            "bad_arguments", f"{topic.name} ends before @{topic.visible}, so no mark can be above that offset"
        )
    for offset in command.excepted:
        if offset >= command.offset:
            raise Refusal("bad_arguments", f"@{offset} is not below @{command.offset}, so it needs no exception")


def _check_owner(session: Session, topic: Topic, mark: Mark) -> None:
    access = session.access
    if mark.owners and not access.is_admin and access.user not in mark.owners:
        raise Refusal("forbidden", f"the mark {mark.name} of {topic.name} belongs to {', '.join(mark.owners)}")


def _claim(session: Session, mark: Mark, *, is_new: bool) -> bool:
    """Make the user the owner of a mark without owners. Return whether that changed the mark.

    A broker without users makes marks without owners. An administrator becomes the owner only of a mark that is new.
    """
    access = session.access
    if mark.owners or access is EVERYTHING or (access.is_admin and not is_new):
        return False
    mark.owners = (str(access.user),)
    return True
