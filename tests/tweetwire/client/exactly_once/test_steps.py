"""The handshakes without a network: the tests do each step, and check that a state is on the disk before it is sent."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from tweetwire import Event, HandshakeFailed, Receipt, Refusal
from tweetwire.client.exactly_once import OnceConsuming, OncePublishing, Spool
from tweetwire.client.exactly_once.steps import PAUSES_S, TRIES, Answer, Ask, Handshake, Pause, Sync, Wish, say_all
from tweetwire.protocol.events import StoredEvent, decode_stored
from tweetwire.protocol.handshakes import State

T = TypeVar("T")

FULL = Refusal("disk", "full")


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    spool = Spool(tmp_path, "ann")
    yield spool
    spool.close()


def carried_out(handshake: Handshake[T], *answers: Sequence[Answer]) -> tuple[T, list[Wish]]:
    """Carry out all requested steps, each `Ask` with the next answers. Return the result and the steps."""
    wishes: list[Wish] = []
    rest = [list(some) for some in answers]
    try:
        wish = next(handshake)
        while True:
            wishes.append(wish)
            wish = handshake.send(rest.pop(0) if isinstance(wish, Ask) and wish.lines else [])
    except StopIteration as stop:
        assert rest == []
        return stop.value, wishes


def event(offset: int) -> StoredEvent:
    return decode_stored(b'{"topic":"t","offset":%d,"timestamp":1,"id":"e","priority":0,"msg":1}' % offset)


def test_only_steps_without_a_final_answer_are_repeated_after_a_pause() -> None:
    said, wishes = carried_out(
        say_all([b"a t\n", b"b t\n", b"c t\n"]), [b"+1", FULL, TimeoutError("late")], [Refusal("forbidden", ""), b"+3"]
    )
    assert (said[0], said[2]) == (b"+1", b"+3")
    assert isinstance(said[1], Refusal)
    assert wishes == [Ask([b"a t\n", b"b t\n", b"c t\n"]), Pause(PAUSES_S[1]), Ask([b"b t\n", b"c t\n"])]


def test_after_all_tries_the_last_reason_is_in_the_failure() -> None:
    (failed,), _ = carried_out(say_all([b"pub2 t {}\n"]), *[[FULL]] * (TRIES - 1), [TimeoutError("no answer")])
    assert isinstance(failed, HandshakeFailed)
    assert "pub2 t after 5 tries (no answer)" in str(failed)


def test_a_message_is_on_the_disk_before_each_of_its_steps_and_forgotten_at_the_end(spool: Spool) -> None:
    publishing = OncePublishing(spool)
    keys = publishing.keep("t", [Event(id="a", msg=1), Event(id="b", msg=2)])
    results, wishes = carried_out(
        publishing.carry_over(keys),
        [b"+REC t a", Refusal("schema", "no")],
        [b"+COMP t a 7 synced"],
    )
    assert results[("t", "a")] == Receipt("t", 7, 7, "synced")
    assert isinstance(results[("t", "b")], Refusal)
    assert [type(wish) for wish in wishes] == [Sync, Ask, Sync, Ask]
    assert publishing.left() == []


def test_a_broker_that_has_lost_a_held_message_is_sent_it_again(spool: Spool) -> None:
    publishing = OncePublishing(spool)
    keys = publishing.keep("t", [Event(id="a", msg=1)])
    results, _ = carried_out(
        publishing.carry_over(keys),
        [b"+REC t a"],
        [Refusal("no_event", "")],
        [b"+REC t a"],
        [b"+COMP t a 0 synced"],
    )
    assert results == {("t", "a"): Receipt("t", 0, 0, "synced")}


def test_a_message_whose_step_failed_keeps_its_state(spool: Spool) -> None:
    publishing = OncePublishing(spool)
    keys = publishing.keep("t", [Event(id="a", msg=1)])
    carried_out(publishing.carry_over(keys), [b"+REC t a"], *[[FULL]] * TRIES)
    assert spool.outgoing[keys[0]].state is State.RECEIVED


def test_an_event_that_came_twice_is_taken_once_and_one_that_the_broker_took_back_is_dropped(spool: Spool) -> None:
    consuming = OnceConsuming(spool, "t", "s")
    consuming.arrive([event(1), event(2), event(1)], prefetch=10)
    taken, _ = carried_out(consuming.take(consuming.next_arrived()), [b"+REL t @1", Refusal("stale", "")])
    assert [one.offset for one in taken.given] == [1]
    assert [entry.offset for entry in spool.incoming.values()] == [1]
    assert consuming.next_arrived() == []


def test_an_acked_event_is_settled_and_forgotten_and_an_unsettled_one_is_kept(spool: Spool) -> None:
    consuming = OnceConsuming(spool, "t", "s")
    consuming.arrive([event(1), event(2)], prefetch=10)
    taken, _ = carried_out(consuming.take(consuming.next_arrived()), [b"+REL t @1", b"+REL t @2"])
    acked = consuming.ack([*taken.given, event(9)])
    failures, _ = carried_out(consuming.finish(acked), [b"+OK comp t @1", Refusal("forbidden", "")])
    assert [entry.offset for entry, _ in failures] == [2]
    assert [entry.offset for entry in consuming.left().acked] == [2]
