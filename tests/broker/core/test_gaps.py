"""A refused event of a producer: later ones are refused until it is sent again, so that it is not lost as a duplicate."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core import Session
from broker.core.access import Access
from tests.broker.core.harness import Core
from tests.support.processes import BrokerProcess
from tweetwire import Client, Event, SyncClient
from tweetwire.protocol.errors import Refusal

SCHEMA = 'schema t {"type":"integer"}'


def line(sequence: int, msg: Any = 1, *, producer: str = "p", topic: str = "t") -> str:
    event = {"id": f"{producer}-{sequence}", "msg": msg, "producer": producer, "sequence": sequence}
    return f"pub {topic} {json.dumps(event)}"


def codes(replies: list[str]) -> list[str]:
    """Return ``ok``, ``dup`` or the code of each reply. A merged confirmation yields one ``ok`` for each of its events."""
    found = []
    for reply in replies:
        words = reply.split()
        if words[:2] == ["+OK", "pub"]:
            first, _, last = words[3].partition("-")
            found += ["ok"] * (int(last or first) - int(first) + 1)
        else:
            found.append("dup" if words[:2] == ["+OK", "dup"] else words[1])
    return found


@pytest.fixture
def core() -> Core:
    core = Core("t")
    core.type(core.connect(), SCHEMA)
    return core


@pytest.fixture
def session(core: Core) -> Session:
    return core.connect()


def stored(core: Core) -> list[int]:
    return [
        json.loads(one)["sequence"]
        for one in core.type(core.connect(), "read t earliest")
        if one.startswith("{") and '"sequence"' in one
    ]


def test_later_sequences_wait_for_a_refused_one(core: Core, session: Session) -> None:
    assert codes(core.type(session, line(1), line(2, "x"), line(3), line(4))) == [
        *("ok", "schema", "out_of_sequence", "out_of_sequence")
    ]
    assert codes(core.type(session, line(1), line(2), line(3), line(4), line(5))) == ["dup", "ok", "ok", "ok", "ok"]
    assert stored(core) == [1, 2, 3, 4, 5]


def test_another_connection_waits_too(core: Core, session: Session) -> None:
    core.type(session, line(1), line(2, "x"))
    core.disconnect(session)
    assert codes(core.type(core.connect(), line(3))) == ["out_of_sequence"]


def test_pipelined_events_wait_although_the_first_refused_event_has_arrived(core: Core, session: Session) -> None:
    core.type(session, line(1), line(2, "x"), line(3), line(4))
    assert codes(core.type(session, line(2), line(5), line(3), line(6))) == [
        "ok",
        "out_of_sequence",
        "ok",
        "out_of_sequence",
    ]
    assert codes(core.type(session, line(4), line(5), line(6), line(7))) == ["ok"] * 4


def test_later_sequences_still_wait_for_an_event_that_is_refused_again(core: Core, session: Session) -> None:
    core.type(session, line(1), line(2, "x"), line(3))
    assert codes(core.type(session, line(2, "y"), line(3), line(2), line(3))) == [
        *("schema", "out_of_sequence", "ok", "ok")
    ]


def test_a_producer_gives_up_refused_events_and_last_shows_its_position(core: Core, session: Session) -> None:
    core.type(session, line(1), line(2, "x"), line(3))
    assert core.type(session, "last t p") == [
        '+OK last t p {"offset":0,"sequence":1,"checkpoint":null,"refused":[2,3]}'
    ]
    assert core.type(session, "skip t p 2") == ["+OK skip t p"]
    assert codes(core.type(session, line(4), line(3), line(4))) == ["out_of_sequence", "ok", "ok"]
    assert core.type(session, "last t p") == ['+OK last t p {"offset":2,"sequence":4,"checkpoint":null}']


def test_skip_beyond_the_last_refused_one_gives_up_all(core: Core, session: Session) -> None:
    core.type(session, line(1), line(2, "x"), line(3))
    core.type(session, "skip t p 9")
    assert codes(core.type(session, line(10))) == ["ok"]


def test_later_sequences_wait_for_the_first_event_of_a_producer(core: Core, session: Session) -> None:
    assert codes(core.type(session, line(1, "x"), line(2), line(1), line(2))) == [
        "schema",
        "out_of_sequence",
        "ok",
        "ok",
    ]
    assert core.type(session, "last t q") == ["+OK last t q null"]


def test_other_producers_and_events_without_a_number_continue(core: Core, session: Session) -> None:
    core.type(session, line(1, "x"))
    assert codes(core.type(session, line(7, producer="q"), 'pub t {"id":"n","msg":1}')) == ["ok", "ok"]


HIDING = [
    'pub t {"id":"x","msg":nul,"producer":"p","sequence":2}',
    'pub t {"id":"x","msg":1,"producer":"p","sequence":-2}',
    'pub t {"id":"x","producer":"p","sequence":2}',
    'PUB\tt {"id":"x","msg":1,"producer":"p","sequence":2',
    'pub t {"id":"x","msg":1,"producer":"p","sequence":2,"colour":"red"}',
]


@pytest.mark.parametrize("refused", HIDING)
def test_later_sequences_wait_for_a_line_that_is_not_an_event(core: Core, session: Session, refused: str) -> None:
    assert codes(core.type(session, line(1), refused, line(3)))[2] == "out_of_sequence"
    assert codes(core.type(session, line(2), line(3), line(4))) == ["ok"] * 3


def test_after_a_line_that_is_too_long_sequences_wait_on_every_topic(core: Core, session: Session) -> None:
    core.type(session, line(1), line(1, topic="u"))
    core.broker.refuse(session, Refusal("too_long", "max=10"), core.now_ms)
    assert codes(core.type(session, line(3), line(3, topic="u")))[1:] == ["out_of_sequence"] * 2
    assert codes(core.type(session, line(2), line(3), line(4))) == ["ok"] * 3
    assert codes(core.type(session, "skip u p 2", line(3, topic="u"))) == ["skip", "ok"]


def test_a_typing_error_without_a_sequence_holds_up_nothing(core: Core, session: Session) -> None:
    assert codes(core.type(session, line(10), "pub t hello", line(30))) == ["ok", "bad_json", "ok"]


def test_a_refusal_without_permission_delays_only_its_own_connection(core: Core, session: Session) -> None:
    core.type(session, line(1))
    stranger = core.connect()
    stranger.access = Access("eve", ("u",), ("u",))
    assert codes(core.type(stranger, line(2))) == ["forbidden"]
    assert codes(core.type(session, line(3))) == ["ok"]
    stranger.access = Access("eve", ("t",), ("t",))
    assert codes(core.type(stranger, line(5), line(4))) == ["ok", "dup"], (
        "3 was stored meanwhile, so 2 cannot come any more"
    )


def test_later_sequences_wait_for_a_run_that_is_refused_as_a_whole(core: Core, session: Session) -> None:
    session.access = Access("p", ("u",), ())
    assert codes(core.type(session, line(1), line(2))) == ["forbidden"] * 2
    session.access = Access("p", ("t",), ())
    assert codes(core.type(session, line(3), line(2), line(1), line(2), line(3))) == [
        *("out_of_sequence", "out_of_sequence", "ok", "ok", "ok")
    ]


def test_later_events_wait_until_all_events_that_could_not_be_stored_were_sent_again(
    core: Core, session: Session
) -> None:
    core.type(session, line(1))
    core.fail_with = "No space left on device"
    assert codes(core.type(session, line(2), line(3), line(4))) == ["disk"] * 3
    core.fail_with = None
    assert codes(core.type(session, line(5), line(2), line(6), line(3), line(4), line(5), line(6))) == [
        *("out_of_sequence", "ok", "out_of_sequence", "ok", "ok", "ok", "ok")
    ]


def test_of_too_many_producers_the_oldest_are_forgotten_first(core: Core, session: Session) -> None:
    core.type(session, *(line(1, "x", producer=f"p{n}") for n in range(3000)))
    assert codes(core.type(session, line(2, producer="p2999"))) == ["out_of_sequence"]
    assert len(core.broker.topics["t"].producers.gaps.of) <= 1000


@given(bad=st.sets(st.integers(0, 19)), window=st.integers(1, 20))
def test_a_publisher_that_sends_refused_events_again_loses_nothing(bad: set[int], window: int) -> None:
    """The publisher sends a window without waiting. It sends the events again, repaired, from the first refused one on."""
    core = Core("t")
    core.type(core.connect(), SCHEMA)
    session, at, broken = core.connect(), 0, set(bad)
    while at < 20:
        sent = list(range(at, min(20, at + window)))
        replies = codes(core.type(session, *(line(n, "x" if n in broken else 1) for n in sent)))
        refused = [n for n, reply in zip(sent, replies, strict=True) if reply not in {"ok", "dup"}]
        broken -= set(refused[:1])
        at = refused[0] if refused else at + window
    assert stored(core) == list(range(20))


def event(sequence: int, msg: Any = 1) -> Event:
    return Event(id=str(sequence), msg=msg, producer="p", sequence=sequence)


@pytest.mark.anyio
async def test_the_async_publisher_raises_and_continues_after_a_repair_or_a_skip(
    shared_broker: BrokerProcess, topic: str
) -> None:
    async with Client(shared_broker.address) as client:
        await client.command(f'schema {topic} {{"type":"integer"}}')
        publisher = client.publisher(topic)
        with pytest.raises(Refusal, match="schema"):
            async with publisher:
                await publisher.publish_many([event(1), event(2, "x"), event(3), event(4)])
        position = await client.last(topic, "p")
        assert position is not None
        assert (position.sequence, position.refused) == (1, (2, 4))
        with pytest.raises(Refusal, match="out_of_sequence"):
            await client.publish(topic, event(5))
        await client.skip(topic, "p", 2)
        async with client.publisher(topic) as again:
            await again.publish_many([event(3), event(4), event(5)])
        assert [one.sequence for one in (await client.read(topic, 0)).events] == [1, 3, 4, 5]


def test_the_blocking_client_raises_and_can_give_up_refused_events(shared_broker: BrokerProcess, topic: str) -> None:
    with SyncClient(shared_broker.address) as client:
        client.command(f'schema {topic} {{"type":"integer"}}')
        with pytest.raises(Refusal, match="schema"):
            client.publish_many(topic, [event(1), event(2, "x"), event(3)])
        with pytest.raises(Refusal, match="out_of_sequence"):
            client.publish(topic, event(4))
        client.skip(topic, "p", 4)
        client.publish(topic, event(5))
        assert [one.sequence for one in client.read(topic, 0).events] == [1, 5]


def test_one_connection_keeps_a_bounded_number_of_gaps(core: Core, session: Session) -> None:
    core.broker.refuse(session, Refusal("too_long", "max"), core.now_ms)
    core.receive(session)
    for number in range(1200):
        assert codes(core.type(session, line(5, producer=f"p{number}"))) == ["out_of_sequence"]
    assert session.gaps is not None
    assert len(session.gaps.known.of) == 1000


def test_one_connection_keeps_a_bounded_number_of_producers_over_all_topics(core: Core, session: Session) -> None:
    for topic in ("t", "u"):
        core.type(session, f'pub {topic} {{"id":"a","sequence":1,')
        for number in range(700):
            core.type(session, f"skip {topic} p{number} 1")
    assert session.gaps is not None
    assert len(session.gaps._shown) == 1000


def test_a_producer_continues_after_many_others_have(core: Core, session: Session) -> None:
    core.broker.refuse(session, Refusal("too_long", "max"), core.now_ms)
    core.type(session, *(f"skip t q{number} 1" for number in range(1100)))
    assert codes(core.type(session, line(5))) == ["out_of_sequence"]
    core.type(session, "skip t p 4")
    assert codes(core.type(session, line(5), line(7))) == ["ok", "ok"]
