"""Marks: how they grow, what they keep from retention, and what survives a restart."""

import json
from typing import Any

import pytest

from broker.core import Session
from broker.core.topic import marks as core_marks
from broker.core.topic.marks import MarkRoom, Marks
from broker.log import MemoryLog
from tests.broker.core.harness import Core
from tests.broker.core.users_of_core import ALICE, BOB, BOSS, codes, connect
from tweetwire.protocol.errors import Refusal


class Marked:
    """A topic ``t`` with ten events in parts of four, and a session."""

    def __init__(self) -> None:
        self.core = Core()
        self.core.logs.by_topic["t"] = MemoryLog(span_bytes=400)
        self.session = self.core.connect()
        self.publish(10)

    def publish(self, count: int) -> None:
        for n in range(count):
            self.type(f'pub t {{"id":"{n}","msg":"{"x" * 40}"}}')

    def type(self, line: str) -> str:
        (reply,) = self.core.type(self.session, line)
        return reply

    def marks(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.type("marks t").removeprefix("+OK marks t "))
        return found

    def restart(self, *, is_folded: bool) -> None:
        self.core.restart(is_folded=is_folded)
        self.session = self.core.connect()

    def forget(self) -> int:
        """Apply retention, and return the first offset that is left."""
        for topic, forgetting in self.core.broker.forget_old(self.core.now_ms).items():
            topic.log.forget_below(forgetting.below)
        return self.core.broker.topics["t"].log.earliest


@pytest.fixture
def marked() -> Marked:
    return Marked()


def test_a_mark_only_grows_and_a_smaller_offset_is_answered_with_its_place(marked: Marked) -> None:
    assert marked.type("mark t as=centre @0") == "+OK mark t centre @0"
    assert marked.type("mark t as=centre @7") == "+OK mark t centre @7"
    assert marked.type("mark t as=centre @3 except @2") == "+OK mark t centre @7"
    assert marked.type("mark t as=centre @7") == "+OK mark t centre @7"
    (mark,) = marked.marks()
    assert (mark["offset"], mark["lag"], mark["excepted"]) == (7, 3, [])


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("mark t as=m @11", "bad_arguments"),
        ("mark t as=m @9223372036854775807", "bad_arguments"),
        ("mark t as=m @9223372036854775808", "bad_arguments"),
        ("mark t as=m @5 except @5", "bad_arguments"),
        ("mark t as=m @5 except @x", "bad_arguments"),
        ("mark t as=m @5 except", "bad_arguments"),
        ("mark t as=m @5 without @1", "bad_arguments"),
        ("mark t as=m 5", "bad_arguments"),
        ("mark t @5", "bad_arguments"),
        ("mark t @5 as=m", "bad_arguments"),
        ("mark t as=m x=1 @5", "bad_arguments"),
        ("mark t as=none @5", "bad_name"),
        ("mark t as=a/b @5", "bad_name"),
        (f"mark t as={'m' * 129} @5", "bad_name"),
        (f"mark t as=m checkpoint={'c' * 4097} @5", "bad_arguments"),
        (f"mark t as=m @5 except{' @1' * 1001}", "bad_arguments"),
        ("mark unknown as=m @0", "unknown_topic"),
        ("unmark t", "bad_arguments"),
        ("unmark unknown as=m", "unknown_topic"),
        ("marks unknown", "unknown_topic"),
    ],
)
def test_a_wrong_mark_is_refused_and_changes_nothing(marked: Marked, line: str, code: str) -> None:
    assert codes([marked.type(line)]) == [code]
    assert marked.marks() == []


def test_exceptions_are_of_the_events_that_the_command_passes(marked: Marked) -> None:
    marked.type("mark t as=m @4 except @1 @3 @1")
    assert marked.marks()[0]["excepted"] == [1, 3]
    # Done events stay done, and excepted events stay excepted.
    marked.type("mark t as=m @4 except @2")
    marked.type("mark t as=m @8 except @0 @2 @6")
    assert marked.marks()[0]["excepted"] == [1, 3, 6]


def test_a_checkpoint_is_kept_until_the_next_one(marked: Marked) -> None:
    marked.type("mark t as=m checkpoint=2026/7=x @4")
    marked.type("mark t as=m @5")
    assert marked.marks()[0]["checkpoint"] == "2026/7=x"
    marked.type("mark t as=m checkpoint=late @2")
    assert marked.marks()[0]["checkpoint"] == "2026/7=x"
    marked.type("mark t as=m checkpoint=new @5")
    assert marked.marks()[0]["checkpoint"] == "new"


@pytest.mark.parametrize("is_folded", [False, True])
def test_marks_survive_a_restart(marked: Marked, is_folded: bool) -> None:
    marked.type("mark t as=gone @3")
    marked.type("mark t as=m checkpoint=c @4 except @1")
    marked.type("mark t as=m @8 except @6")
    assert marked.type("unmark t as=gone") == marked.type("unmark t as=gone") == "+OK unmark t gone"
    before = marked.marks()
    marked.restart(is_folded=is_folded)
    assert marked.marks() == before
    assert [mark["name"] for mark in before] == ["m"]


def test_an_answered_mark_is_on_the_disk(marked: Marked) -> None:
    marked.core.hold_records = True
    assert marked.core.type(marked.session, "mark t as=m @4", "mark t as=m @2", "unmark t as=m", "ping") == []
    marked.core.hold_records = False
    marked.core.carry_out()
    assert marked.core.receive(marked.session) == [
        "+OK mark t m @4",
        "+OK mark t m @4",
        "+OK unmark t m",
        "+PONG",
    ]


def test_a_new_mark_below_its_record_never_answers_before_it(marked: Marked) -> None:
    marked.type("mark t as=m @4")
    marked.restart(is_folded=False)
    assert marked.type("mark t as=m @2") == "+OK mark t m @4"


def test_a_log_that_lost_its_end_continues_at_the_mark(marked: Marked) -> None:
    marked.type("mark t as=m @10")
    log = MemoryLog()
    marked.core.logs.by_topic["t"] = log
    marked.restart(is_folded=False)
    # The new event gets no offset below the mark, since another system has a different event under that offset.
    assert marked.type('pub t {"id":"n","msg":1}') == "+OK pub t 10 synced"


def test_retention_keeps_events_that_a_mark_has_not_passed(marked: Marked) -> None:
    marked.type("retain t bytes=0B")
    marked.type("mark t as=slow @2")
    marked.type("mark t as=fast @9")
    assert marked.forget() == 0
    marked.type("mark t as=slow @9 except @1")
    # An exception does not keep its event from retention.
    kept = marked.forget()
    assert 0 < kept <= 9
    assert marked.marks()[1]["excepted"] == ([] if kept > 1 else [1])


def test_a_topic_with_only_marks_forgets_settled_events(marked: Marked) -> None:
    marked.type("retain t settled=yes")
    assert marked.forget() == 0
    marked.type("mark t as=m @10")
    assert marked.forget() > 0


def test_at_most_removes_events_above_a_mark_and_counts_them(marked: Marked) -> None:
    marked.type("mark t as=m @2")
    marked.type("retain t at_most=0B")
    (found,) = marked.core.broker.forget_old(marked.core.now_ms).values()
    assert found.unmarked == {"m": found.below - 2}
    stats = json.loads(marked.type("stats t").removeprefix("+OK stats "))["topics"]["t"]["marks"]["m"]
    assert (stats["offset"], stats["overtaken"]) == (2, found.below - 2)


def test_a_purge_keeps_the_mark_and_counts_the_removed_events(marked: Marked) -> None:
    marked.type("mark t as=m @2 except @1")
    marked.type("purge t before=6")
    (mark,) = marked.marks()
    assert (mark["offset"], mark["lag"], mark["overtaken"], mark["excepted"]) == (2, 4, 4, [])


def test_a_dropped_topic_has_no_marks_when_it_is_made_again(marked: Marked) -> None:
    marked.type("mark t as=m @9")
    marked.type("drop t")
    marked.publish(1)
    assert marked.marks() == []
    marked.restart(is_folded=False)
    assert marked.marks() == []


def test_the_number_of_marks_of_a_topic_is_limited(marked: Marked) -> None:
    lines = [f"mark t as=m{n} @1" for n in range(core_marks.MARKS_MAX + 1)]
    assert codes(marked.core.type(marked.session, *lines)) == ["+"] * core_marks.MARKS_MAX + ["too_many"]
    marked.type("unmark t as=m3")
    assert marked.type("mark t as=other @1") == "+OK mark t other @1"


def test_the_exceptions_of_a_mark_are_limited_and_a_refused_mark_stays(
    marked: Marked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core_marks, "EXCEPTED_MAX", 3)
    marked.type("mark t as=m @4 except @1 @2")
    assert codes([marked.type("mark t as=m @8 except @5 @6")]) == ["too_many"]
    assert marked.marks()[0]["offset"] == 4
    assert codes([marked.type("mark t as=new @8 except @1 @2 @3 @4")]) == ["too_many"]
    assert [mark["name"] for mark in marked.marks()] == ["m"]


def test_the_memory_of_all_marks_is_limited_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_marks, "MARKS_BYTES_MAX", 2000)
    room = MarkRoom()
    one, two = Marks(room), Marks(room)
    mark = one.make("m")
    one.advance(mark, 30, range(30), "c", 0)
    with pytest.raises(Refusal, match="unmark some"):
        two.make("n")
    one.advance(mark, 60, (), None, 30)
    assert two.make("n").offset == 0
    one.forget_all()
    two.forget("n")
    assert room.used == 0


# Permissions


def connected(marked: Marked) -> tuple[Session, Session, Session]:
    return connect(marked.core, ALICE), connect(marked.core, BOB), connect(marked.core, BOSS)


def test_a_mark_belongs_to_the_user_that_made_it(marked: Marked) -> None:
    alice, bob, boss = connected(marked)
    assert codes(marked.core.type(alice, "mark t as=m @1")) == ["+"]
    assert codes(marked.core.type(bob, "mark t as=m @2", "unmark t as=m", "marks t")) == ["forbidden", "forbidden", "+"]
    assert codes(marked.core.type(boss, "mark t as=m @3")) == ["+"]
    marked.restart(is_folded=False)
    _, bob, boss = connected(marked)
    assert codes(marked.core.type(bob, "mark t as=m @4")) == ["forbidden"]
    assert codes(marked.core.type(boss, "unmark t as=m")) == ["+"]


def test_a_mark_without_an_owner_belongs_to_the_first_user_that_moves_it(marked: Marked) -> None:
    marked.type("mark t as=m @5")
    alice, bob, boss = connected(marked)
    assert codes(marked.core.type(boss, "mark t as=m @6")) == ["+"]
    assert codes(marked.core.type(alice, "mark t as=m @1")) == ["+"]
    assert codes(marked.core.type(bob, "mark t as=m @7")) == ["forbidden"]


def test_a_full_disk_refuses_a_new_mark_and_moves_a_known_one(marked: Marked) -> None:
    marked.type("mark t as=m @5")
    marked.core.broker.set_full_disk("full")
    assert codes([marked.type("mark t as=new @5"), marked.type("mark t as=m @6")]) == ["disk", "+"]


def test_a_report_of_removed_exceptions_keeps_the_room_for_marks_right() -> None:
    marked = Marked()
    marked.type("mark t as=central @10 except @1 @2 @3")
    room = marked.core.broker.topics["t"].marks._room
    marked.type("purge t")
    assert marked.marks()[0]["excepted"] == []
    marked.type("unmark t as=central")
    assert room.used == 0


@pytest.mark.parametrize("is_folded", [False, True])
def test_an_administrator_does_not_become_the_owner_of_an_old_mark(is_folded: bool) -> None:
    marked = Marked()
    marked.type("mark t as=central @1")
    marked.restart(is_folded=is_folded)
    boss, alice = connect(marked.core, BOSS), connect(marked.core, ALICE)
    marked.core.type(boss, "mark t as=central @2")
    assert codes(marked.core.type(alice, "mark t as=central @3")) == ["+"]


def test_a_refused_command_makes_no_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    marked = Marked()
    marked.type("mark t as=central @1")
    monkeypatch.setattr(core_marks, "EXCEPTED_MAX", 1)
    alice, bob = connect(marked.core, ALICE), connect(marked.core, BOB)
    assert codes(marked.core.type(alice, "mark t as=central @5 except @2 @3")) == ["too_many"]
    assert codes(marked.core.type(bob, "mark t as=central @6")) == ["+"]
