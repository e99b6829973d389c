"""Decide where a route outwards continues, from the facts in the engine and in the broker.

Four facts are compared: the position in the engine, the note that our last mark left in the broker, the mark, and the ends of
the topic's log. The note shows which events the engine once had. So a deleted stream and a copied log are recognised.
"""

from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from bridge.central import Found

__all__ = ["Begin", "Local", "MarkNote", "OnGap", "OnLost", "Plan", "Policy", "Refused", "decide"]

OnLost: TypeAlias = Literal["fail", "resend", "skip"]
OnGap: TypeAlias = Literal["report", "fail"]
Begin: TypeAlias = Literal["earliest", "latest"] | int


class MarkNote(Struct, frozen=True):
    """The note that is stored with a mark, in the same write.

    Attributes:
        broker: The identity of the broker.
        identity: The identity under which our position is stored in the engine. It is that of the broker, unless the route
            was given a new one.
        centre: The identity of the stream.
        position: The offset of our last event in the engine, None if it has none.
        begin: The first offset of the route.
        through: The last offset that needs nothing more: it was sent, left out or rejected.
        log: The id of the topic's log, "" in a note of an earlier release.
    """

    broker: str
    identity: str
    centre: str
    position: int | None
    begin: int
    through: int
    log: str = ""

    @staticmethod
    def parse(text: str | None) -> "MarkNote | None":
        """Return the note in a mark's checkpoint, None if there is none or another program wrote it."""
        try:
            return None if not text else msgspec.json.decode(text, type=MarkNote)
        except msgspec.MsgspecError:
            return None

    def text(self) -> str:
        """Return the note as a checkpoint."""
        return msgspec.json.encode(self).decode()


class Local(Struct, frozen=True):
    """The broker's side.

    Attributes:
        identity: The broker's identity.
        mark: Every event before this offset is done; 0 if there is no mark.
        note: The note of the mark.
        earliest: The first offset of the log.
        end: The offset that the next event will have.
        log: The id of the log, "" if the broker shows none.
    """

    identity: str
    mark: int
    note: MarkNote | None
    earliest: int
    end: int
    log: str = ""


class Policy(Struct, frozen=True):
    """The options that the user has set for a new route and for abnormal cases."""

    begin: Begin = "earliest"
    on_lost: OnLost = "fail"
    on_gap: OnGap = "report"
    takes_new_identity: bool = False


class Plan(Struct, frozen=True):
    """How the route continues.

    Attributes:
        start: The offset of the next event to send.
        first: The first offset of the route, for the note.
        gap: The first and the last offset that retention removed before they were sent.
        resent: The first and the last offset that are sent again, because the engine no longer has them.
        forgets: Whether the position in the engine is void, and must be deleted first.
        lost: Why the central copy is not complete, "" if it is.
        is_new: Whether the route starts from the beginning, without a position.
    """

    start: int
    first: int
    gap: tuple[int, int] | None = None
    resent: tuple[int, int] | None = None
    forgets: bool = False
    lost: str = ""
    is_new: bool = False


class Refused(Struct, frozen=True):
    """The route cannot continue. `why` is one sentence; `needs_identity` if a new identity would solve it."""

    why: str
    needs_identity: bool = False


def decide(found: Found, local: Local, policy: Policy, name: str) -> Plan | Refused:
    """Return how a route continues, or why it cannot. `name` is the route, for the sentence."""
    note = local.note
    if note is not None and note.broker != local.identity:
        return _foreign(
            policy, f"{name}: the mark was set for the broker {note.broker}, and this one is {local.identity}"
        )
    before = found.log if found.position is not None else "" if note is None else note.log
    if before and local.log and before != local.log:
        return _foreign(
            policy,
            f"{name}: the topic was dropped and made again after events of it were sent",
            "start the bridge once with --new-identity to send it as the topic of another broker",
        )
    if found.position is not None and not found.is_replaced and found.position >= local.end:
        return _foreign(
            policy,
            f"{name}: the engine has our event {found.position}, and the topic ends before {local.end}",
        )
    if found.position is None or found.is_replaced:
        return _without_position(found, local, policy, name)
    return _with_position(found, found.position, local, policy, name)


def _with_position(found: Found, position: int, local: Local, policy: Policy, name: str) -> Plan | Refused:
    note = local.note
    first = local.earliest if note is None else note.begin
    # Events that were left out after the last sent one are known only to the note. A newer position makes the note void.
    through = note.through if note is not None and note.position == position else position
    if note is not None and note.centre != found.centre:
        return _lost(local, policy, name, "the stream is another one than before", first)
    start = max(position, through) + 1
    resent = None
    if position + 1 < local.mark and through == position:
        resent = (max(position + 1, local.earliest), local.mark - 1)
    if start < local.earliest:
        if policy.on_gap == "fail":
            return _gap_refused(name, start, local)
        return Plan(local.earliest, first, gap=(start, local.earliest - 1), resent=resent)
    return Plan(start, first, resent=resent)


def _without_position(found: Found, local: Local, policy: Policy, name: str) -> Plan | Refused:
    note = local.note
    # A stream that has removed all of our messages by its limits is like one that never had any.
    was_empty = note is not None and (note.position is None or found.has_expired) and note.centre == found.centre
    if not found.is_replaced and (local.mark == 0 or was_empty):
        return _first_opening(local, policy, name)
    first = local.earliest if note is None else note.begin
    why = "the stream was deleted or made again" if found.is_replaced else "the stream no longer has our position"
    return _lost(local, policy, name, why, first)


def _first_opening(local: Local, policy: Policy, name: str) -> Plan | Refused:
    note = local.note
    if note is not None:
        start = max(note.through + 1, note.begin)
        if start >= local.earliest:
            return Plan(start, note.begin, is_new=True)
        if policy.on_gap == "fail":
            return _gap_refused(name, start, local)
        return Plan(local.earliest, note.begin, gap=(start, local.earliest - 1), is_new=True)
    return _from_begin(local, policy, name)


def _from_begin(local: Local, policy: Policy, name: str) -> Plan | Refused:
    begin = {"earliest": local.earliest, "latest": local.end}.get(str(policy.begin), policy.begin)
    start = max(int(begin), local.earliest)
    if start > local.end:
        return Refused(f"{name}: begin={policy.begin} is after the end of the topic, which is {local.end}")
    return Plan(start, start, is_new=True)


_COPIED = (
    "the data folder was copied or restored, or another program writes our position; "
    "give a copied folder another identity (tweetwire fsck --new-identity), and start the bridge once with --new-identity"
)


def _foreign(policy: Policy, why: str, remedy: str = _COPIED) -> Plan | Refused:
    if policy.takes_new_identity:
        # The caller opens the engine again under the new identity, which has no position and no note.
        return Refused(why, needs_identity=True)
    return Refused(f"{why}; {remedy}")


def _lost(local: Local, policy: Policy, name: str, why: str, first: int) -> Plan | Refused:
    if policy.on_lost == "fail":
        return Refused(
            f"{name}: {why}, although the events before {local.mark} were in it; "
            "give on_lost=resend to send them again, or on_lost=skip to continue without them"
        )
    if policy.on_lost == "resend":
        start = max(first, local.earliest)
        return Plan(start, first, resent=_range(start, local.mark - 1), forgets=True, lost=why)
    start = max(local.mark, local.earliest)
    return Plan(start, start, forgets=True, lost=why)


def _gap_refused(name: str, start: int, local: Local) -> Refused:
    return Refused(
        f"{name}: retention removed the events {start} to {local.earliest - 1} before they were sent; "
        "give on_gap=report to send a gap record and continue"
    )


def _range(first: int, last: int) -> tuple[int, int] | None:
    return (first, last) if first <= last else None
