"""Events whose dead letters are not stored yet: across restarts, and on a disk that refuses writes."""

import json
from typing import Any

import msgspec
import pytest

from broker.journal.records import DeadRecord, FailedRecord, Record
from tests.broker.core.harness import Core


@pytest.fixture
def core() -> Core:
    return Core("t")


def letters(core: Core) -> list[dict[str, Any]]:
    _, *lines = core.type(core.connect(), "read dead_letters earliest")
    return [json.loads(line) for line in lines]


def dead(core: Core) -> list[tuple[int, int]]:
    (reply,) = core.type(core.connect(), "dead topic=t as=s")
    return [(one["offset"], one["dead_letter"]) for one in json.loads(reply.split(" ", 2)[2])]


def let_die(core: Core, *offsets: int) -> None:
    session = core.connect()
    core.type(session, "sub t as=s from=earliest tries=2 prefetch=10")
    for offset in offsets:
        core.type(session, f"nack t @{offset}", f"nack t @{offset}")


@pytest.mark.parametrize("is_folded", [False, True])
def test_an_event_without_its_dead_letter_is_not_delivered_after_a_restart_and_gets_the_letter(
    core: Core, *, is_folded: bool
) -> None:
    core.publish("0", "1")
    core.hold = True
    let_die(core, 0, 1)
    core.hold = False
    core.restart(is_folded=is_folded)
    assert [line for line in core.type(core.connect(), "sub t as=s prefetch=10") if line.startswith("{")] == []
    assert [letter["id"] for letter in letters(core)] == ["t@0", "t@1"]
    assert [letter["msg"]["tries"] for letter in letters(core)] == [2, 2]
    assert dead(core) == [(1, 1), (0, 0)]
    for folded in (False, True):
        core.restart(is_folded=folded)
        assert (len(letters(core)), dead(core)) == (2, [(1, 1), (0, 0)])


def test_an_event_whose_dead_letter_was_stored_before_a_kill_gets_no_second_one(core: Core) -> None:
    core.publish("0")
    let_die(core, 0)
    # The broker was killed before it could note that the letter is stored.
    core.kept = [record for record in core.kept if not isinstance(record, DeadRecord)]
    core.restart()
    assert (len(letters(core)), dead(core)) == (1, [(0, 0)])
    session = core.connect()
    assert core.type(session, "sub t as=s", "redrive t as=s all")[1].startswith("+OK redrive t 1")


def test_a_dead_letter_whose_place_is_taken_is_written_at_the_next_place(core: Core) -> None:
    core.publish("0", "1")
    core.fail_with = "No space left on device"
    let_die(core, 0)
    core.fail_with = None
    core.disconnect(core.broker.sessions[2])
    let_die(core, 1)
    core.restart()
    assert [letter["id"] for letter in letters(core)] == ["t@1", "t@0"]
    assert dead(core) == [(0, 1), (1, 0)]


def test_a_dead_letter_that_a_full_disk_refuses_waits_and_its_event_is_not_delivered(core: Core) -> None:
    core.publish("0")
    core.fail_with = "No space left on device"
    let_die(core, 0)
    session = core.connect()
    assert len(core.type(session, "sub t as=s prefetch=10")) == 1
    core.pass_time(5)
    assert core.receive(session) == []
    core.fail_with = None
    core.pass_time(2)
    assert (len(letters(core)), dead(core)) == (1, [(0, 0)])
    core.restart()
    assert (len(letters(core)), dead(core)) == (1, [(0, 0)])


def test_a_redriven_event_that_dies_again_has_a_letter_for_each_death(core: Core) -> None:
    core.publish("0")
    let_die(core, 0)
    session = core.connect()
    core.type(session, "redrive t as=s all")
    core.restart()
    core.hold = True
    session = core.connect()
    core.type(session, "sub t as=s prefetch=10")
    core.type(session, "nack t @0", "nack t @0")
    core.hold = False
    core.restart()
    assert [letter["msg"]["tries"] for letter in letters(core)] == [2, 4]
    assert dead(core) == [(0, 1)]


def test_a_record_of_a_failed_try_that_an_older_broker_wrote_is_read() -> None:
    old = b'{"type":"failed","topic":"t","name":"s","offset":3,"failure":{"at":1,"cause":"nack","client":"c"},"is_strike":true}'
    record = msgspec.json.decode(old, type=Record)
    assert isinstance(record, FailedRecord)
    assert record.letter is None


def test_a_letter_is_written_after_a_restart_although_retention_removed_its_event() -> None:
    core = Core("t")
    core.logs.by_topic["t"]._span_bytes = 1
    session, publisher = core.connect(), core.connect()
    core.type(session, "sub t as=s prefetch=10 tries=1")
    for number in range(5):
        core.type(publisher, f'pub t {{"id":"e{number}","msg":1}}')
    core.receive(session)
    core.fail_with = "No space left on device"
    core.type(session, "nack t @0")
    core.broker.topics["t"].subscriptions["s"].overtake(3)
    core.logs.by_topic["t"].forget_below(3)
    assert core.logs.by_topic["t"].earliest == 3
    core.fail_with = None
    core.restart()
    core.pass_time(2)
    assert core.logs.by_topic["dead_letters"].next == 1
    assert core.broker.topics["t"].subscriptions["s"].dying == {}
