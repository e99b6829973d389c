"""Reads that wait for the next event, on a core without sockets."""

import pytest

from broker.core import waiting_reads
from tests.broker.core.harness import Core


@pytest.fixture
def core() -> Core:
    return Core("t", "u")


def test_a_read_at_the_end_waits_for_the_next_event(core: Core) -> None:
    reader = core.connect()
    assert core.type(reader, "read t 0 wait=5s", "ping") == []
    core.publish("a", "b")
    head, *lines, pong = core.receive(reader)
    assert head.startswith("+OK read t ")
    assert [line[:24] for line in lines] == ['{"topic":"t","offset":0,'] + ['{"topic":"t","offset":1,'] * (
        len(lines) - 1
    )
    assert pong == "+PONG"


@pytest.mark.parametrize("start", ["0", "@7", "latest", "earliest", "2026-01-01"])
def test_a_read_whose_time_is_over_is_answered_without_events(core: Core, start: str) -> None:
    reader = core.connect()
    assert core.type(reader, f"read t {start} wait=500ms") == []
    core.pass_time(0.4)
    assert core.receive(reader) == []
    core.pass_time(0.2)
    assert core.receive(reader) == ["+OK read t 0 next=0"]


def test_a_read_that_finds_events_does_not_wait(core: Core) -> None:
    core.publish("a")
    assert core.type(core.connect(), "read t 0 wait=60s")[0] == "+OK read t 1 next=1"


def test_a_read_waits_only_for_its_topic(core: Core) -> None:
    reader, other = core.connect(), core.connect()
    core.type(reader, "read t 0 wait=5s")
    core.publish("x", topic="u")
    assert core.receive(reader) == []
    assert core.type(other, "read u 0")[0] == "+OK read u 1 next=1"


@pytest.mark.parametrize("wait", ["61s", "1e9s", "1000000000s", "-1s", "9" * 25 + "s", "5", "x", "2h"])
def test_a_wait_that_is_too_long_or_no_duration_is_refused(core: Core, wait: str) -> None:
    (reply,) = core.type(core.connect(), f"read t 0 wait={wait}")
    assert reply.startswith("-ERR bad_arguments wait")


def test_a_connection_has_a_limit_of_waiting_reads(core: Core) -> None:
    reader = core.connect()
    many = waiting_reads.SESSION_READS_MAX
    assert core.type(reader, *["read t 0 wait=1s"] * (many + 1)) == []
    core.pass_time(1.1)
    *ended, refused = core.receive(reader)
    assert ended == ["+OK read t 0 next=0"] * many
    assert refused.startswith("-ERR too_many")
    assert core.type(reader, "read t 0 wait=1s") == []


def test_the_broker_has_a_limit_of_waiting_reads(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_reads, "READS_MAX", 3)
    readers = [core.connect() for _ in range(4)]
    replies = [core.type(reader, "read t 0 wait=5s") for reader in readers]
    assert replies[:3] == [[], [], []]
    assert replies[3][0].startswith("-ERR too_many")
    core.disconnect(readers[0])
    assert core.type(readers[3], "read t 0 wait=5s") == []


def test_many_reads_that_become_due_together_are_begun_a_few_at_a_time(core: Core) -> None:
    readers = [core.connect() for _ in range(200)]
    for reader in readers:
        core.type(reader, "read t 0 wait=5s")
    publisher = core.connect()
    core.hold = True
    core.type(publisher, 'pub t {"id":"a","msg":1}')
    topic = core.broker.topics["t"]
    batch = topic.begin_write()
    topic.log.append(batch)
    core.broker.committed(topic, batch, core.now_ms)
    assert len(core.broker.work.tasks) == waiting_reads.AT_ONCE
    core.disconnect(readers[-1])
    core.hold = False
    core.carry_out()
    assert all(core.receive(reader)[0] == "+OK read t 1 next=1" for reader in readers[:-1])
    assert not core.broker._reads


def test_waits_end_with_their_connection_and_their_topic(core: Core) -> None:
    gone, reader = core.connect(), core.connect()
    core.type(gone, "read t 0 wait=5s", "read u 0 wait=5s")
    core.disconnect(gone)
    assert not core.broker._reads
    core.type(reader, "read t 0 wait=5s")
    core.type(core.connect(), "drop t")
    assert core.receive(reader) == ["-ERR unknown_topic t was dropped"]
    assert not core.broker._reads


def test_waits_end_when_the_broker_ends(core: Core) -> None:
    reader = core.connect()
    core.type(reader, "read t 0 wait=60s")
    core.broker.begin_drain()
    assert core.receive(reader) == ["+OK read t 0 next=0"]
    assert core.type(reader, "read t 0 wait=60s")[0].startswith("-ERR shutting_down")
    assert core.type(reader, "read t 0") == ["+OK read t 0 next=0"]


def test_a_read_past_retention_begins_at_the_first_event_that_is_left(core: Core) -> None:
    reader = core.connect()
    core.publish("a", "b")
    core.type(core.connect(), "purge t")
    assert core.type(reader, "read t 0 wait=5s") == []
    core.publish("c")
    assert core.receive(reader)[0] == "+OK read t 1 next=3"
