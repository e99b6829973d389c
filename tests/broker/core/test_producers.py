"""The limits of producers and their checkpoints, and the command with which an administrator removes a producer."""

import json
from typing import Any

import pytest

from broker.core.access import Access
from broker.core.topic import producers
from broker.core.topic.producers import CHECKPOINT_BYTES_MAX
from broker.journal.records import RetentionRecord
from tests.broker.core.harness import Core
from tests.support.processes import BrokerProcess
from tweetwire import Event, Refusal, SyncClient
from tweetwire.cli import main


@pytest.fixture
def core() -> Core:
    return Core("t", "u")


def pub(core: Core, producer: str, sequence: int = 0, topic: str = "t", **more: Any) -> str:
    event = {"id": "1", "msg": 1, "producer": producer, "sequence": sequence, **more}
    (reply,) = core.type(core.connect(), f"pub {topic} {json.dumps(event)}")
    return reply


def last(core: Core, producer: str, topic: str = "t") -> Any:
    (reply,) = core.type(core.connect(), f"last {topic} {producer}")
    return json.loads(reply.split(" ", 4)[4])


@pytest.mark.parametrize("letter", ["x", "ö", "я"])
def test_a_checkpoint_of_more_than_64_kib_is_refused_and_changes_nothing(core: Core, letter: str) -> None:
    longest = letter * (CHECKPOINT_BYTES_MAX // len(letter.encode()))
    session = core.connect()
    assert core.type(session, f"checkpoint t p {longest}") == ["+OK checkpoint t p"]
    refused = core.type(session, f"checkpoint t p {longest}{letter}", f"checkpoint t q {longest}{letter}")
    assert refused == ["-ERR bad_event the checkpoint is longer than 65536 bytes"] * 2
    assert (last(core, "p")["checkpoint"], last(core, "q")) == (longest, None)
    assert pub(core, "p", checkpoint=longest) == "+OK pub t 0 synced"
    assert pub(core, "p", 1, checkpoint=longest + letter).startswith("-ERR bad_event the checkpoint is longer")
    assert pub(core, "p", 1, checkpoint="short") == "+OK pub t 1 synced"


def test_a_topic_knows_a_limited_number_of_producers(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "PRODUCERS_MAX", 3)
    for name in "abc":
        assert pub(core, name).startswith("+OK pub t")
    refused = "-ERR too_many the topic has 3 producers; an administrator can forget some: forget <topic> <producer>"
    assert pub(core, "d") == refused
    assert core.type(core.connect(), "checkpoint t d x") == [refused]
    assert pub(core, "a", 1) == "+OK pub t 3 synced"
    assert pub(core, "d", topic="u") == "+OK pub u 0 synced"
    (reply,) = core.type(core.connect(), "stats")
    assert json.loads(reply.split(" ", 2)[2])["topics"]["t"]["producers"] == 3
    core.restart(is_folded=True)
    assert pub(core, "d") == refused
    assert core.type(core.connect(), "forget t b") == ["+OK forget t b"]
    assert pub(core, "d").startswith("+OK pub t")


def test_the_producers_of_all_topics_share_a_limited_memory(core: Core) -> None:
    room = core.broker.topics["t"].producers._room
    room.bytes_max = 10_000
    checkpoint = "x" * 4000
    assert pub(core, "a", checkpoint=checkpoint).startswith("+OK")
    assert pub(core, "a", topic="u", checkpoint=checkpoint).startswith("+OK")
    refusal = "-ERR too_many the producers of all topics take 10000 bytes; an administrator can forget some"
    assert pub(core, "b", checkpoint=checkpoint).startswith(refusal)
    assert core.type(core.connect(), f"checkpoint u b {checkpoint}")[0].startswith(refusal)
    assert pub(core, "a", 1, checkpoint="x" * 3999).startswith("+OK")
    assert core.type(core.connect(), "forget u a") == ["+OK forget u a"]
    assert pub(core, "b", checkpoint=checkpoint).startswith("+OK")


def test_the_counted_memory_is_always_what_the_producers_need(core: Core) -> None:
    room = core.broker.topics["t"].producers._room
    pub(core, "a", checkpoint="x" * 100)
    taken = room.used
    core.fail_with = "No space left on device"
    assert pub(core, "b", checkpoint="x" * 1000).startswith("-ERR disk")
    assert pub(core, "a", 1, checkpoint="x" * 1000).startswith("-ERR disk")
    assert room.used == taken
    core.fail_with = None
    core.restart()
    room = core.broker.topics["t"].producers._room
    assert room.used == taken
    core.type(core.connect(), "forget t a")
    assert room.used == 0


@pytest.mark.parametrize("is_folded", [False, True])
def test_a_forgotten_producer_begins_again_also_after_a_restart(core: Core, *, is_folded: bool) -> None:
    pub(core, "a", 7, checkpoint="here")
    pub(core, "b", 3)
    core.type(core.connect(), "checkpoint t a there")
    assert pub(core, "a", 7) == "+OK dup t 0"
    assert core.type(core.connect(), "forget t a") == ["+OK forget t a"]
    for _ in range(2):
        assert (last(core, "a"), last(core, "b")["sequence"]) == (None, 3)
        core.restart(is_folded=is_folded)
    assert core.type(core.connect(), "forget t a") == ["-ERR bad_arguments the topic has no producer a"]
    assert pub(core, "a", 2) == "+OK pub t 2 synced"
    core.type(core.connect(), "checkpoint t a again")
    core.restart(is_folded=is_folded)
    assert last(core, "a") == {"offset": 2, "sequence": 2, "checkpoint": "again"}
    assert pub(core, "a", 2) == "+OK dup t 2"


def test_a_producer_whose_event_is_being_written_is_not_forgotten(core: Core) -> None:
    core.hold = True
    session = core.connect()
    core.type(session, 'pub t {"id":"1","msg":1,"producer":"a","sequence":1}')
    assert core.type(session, "forget t a") == []
    core.hold = False
    core.carry_out()
    assert core.receive(session) == ["+OK pub t 0 synced", "-ERR busy an event of a is being written; try again"]
    assert core.type(session, "forget t a", "forget nothing a", "forget t", "forget t a b") == [
        "+OK forget t a",
        "-ERR unknown_topic there is no topic nothing",
        "-ERR bad_arguments usage: forget <topic> <producer>",
        "-ERR bad_arguments usage: forget <topic> <producer>",
    ]


def test_only_an_administrator_who_may_publish_to_the_topic_can_make_it_forget_producers(core: Core) -> None:
    pub(core, "a")
    session = core.connect()
    for access, code in (
        (Access("x", ("t",), ("t",)), "forbidden"),
        (Access("x", ("u",), ("t",), is_admin=True), "forbidden"),
        (Access("x", ("t",), (), is_admin=True), "+OK"),
    ):
        session.access = access
        assert code in core.type(session, "forget t a")[0]


def test_rejected_lines_have_a_default_retention_that_a_user_can_replace(core: Core) -> None:
    session = core.connect()
    core.type(session, "pub t {}")
    assert core.type(session, "retain rejected_lines") == [
        "+OK retain rejected_lines age=7d bytes=none settled=no at_most=1GiB"
    ]
    assert not any(isinstance(record, RetentionRecord) for record in core.broker.records())
    wanted = "age=none bytes=none settled=no at_most=none"
    assert core.type(session, f"retain rejected_lines {wanted}") == [f"+OK retain rejected_lines {wanted}"]
    for is_folded in (False, True):
        core.restart(is_folded=is_folded)
        assert core.type(core.connect(), "retain rejected_lines") == [f"+OK retain rejected_lines {wanted}"]
    assert core.type(core.connect(), "retain t") == [f"+OK retain t {wanted}"]


def test_the_client_and_the_command_line_make_a_topic_forget_a_producer(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with BrokerProcess(tmp_path / "broker") as broker, SyncClient(broker.address) as client:
        client.publish("t", Event(id="1", msg=1, producer="a", sequence=1))
        client.checkpoint("t", "b", "x")
        client.forget("t", "a")
        assert client.last("t", "a") is None
        assert main(["forget", "t", "b", "--broker", broker.address]) == 0
        assert capsys.readouterr().out.strip() == "t has forgotten b"
        with pytest.raises(Refusal, match="the topic has no producer b"):
            client.forget("t", "b")
