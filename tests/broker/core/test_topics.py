"""Topics are created, purged and dropped: the remaining events, the refusals meanwhile, and the state after a restart."""

import json

import pytest

from broker.core import Reading, Session
from broker.core.outbox import Outbox
from broker.journal.records import DroppedRecord, PurgedRecord, SubscriptionRecord
from broker.log import MemoryLog
from tests.broker.core.harness import Core
from tests.broker.core.users_of_core import answer, codes
from tweetwire.protocol import parse_lines
from tweetwire.protocol.errors import Refusal

FOLDED = pytest.mark.parametrize("is_folded", [False, True])


@pytest.fixture
def core() -> Core:
    return Core("t")


def typed(core: Core, *lines: str) -> list[str]:
    return core.type(core.connect(), *lines)


def ids(lines: list[str]) -> list[str]:
    return [json.loads(line)["id"] for line in lines if line.startswith("{")]


def left(core: Core, topic: str = "t") -> list[str]:
    return ids(typed(core, f"read {topic} earliest"))


def subscribed(core: Core, options: str = "from=earliest prefetch=10", topic: str = "t") -> Session:
    session = core.connect()
    core.type(session, f"sub {topic} as=s {options}")
    return session


# Creating


@FOLDED
def test_a_topic_is_created_with_its_retention(core: Core, *, is_folded: bool) -> None:
    assert typed(core, "create u age=1d", "create u", "create u age=1d") == [
        "+OK create u new",
        "+OK create u exists",
        "+OK create u exists",
    ]
    (refusal,) = typed(core, "create u age=2d")
    assert refusal.startswith("-ERR bad_arguments u exists with age=1d")
    assert "retain u" in refusal
    core.restart(is_folded=is_folded)
    assert typed(core, "retain u") == ["+OK retain u age=1d bytes=none settled=no at_most=none"]


def test_a_broker_that_creates_no_topics_refuses_every_command_that_would_make_one() -> None:
    core = Core("t", makes_unknown=False)
    lines = (
        *('pub orders {"id":"x","msg":1}', 'pub2 orders {"id":"x","msg":1}', "sub orders", "sub orders create"),
        *("checkpoint orders p c", "describe orders text", "comment orders text", "schema orders {}"),
    )
    replies = typed(core, "hello ann", *lines)[1:]
    assert codes(replies) == ["unknown_topic"] * len(lines)
    assert all("create orders" in reply for reply in replies)
    assert "orders" not in core.broker.topics
    assert typed(core, "create orders", 'pub orders {"id":"x","msg":1}') == [
        "+OK create orders new",
        "+OK pub orders 0 synced",
    ]


def test_a_broker_that_creates_no_topics_still_makes_its_own() -> None:
    core = Core("t", makes_unknown=False)
    assert codes(typed(core, "pub t {")) == ["bad_json"]
    assert len(left(core, "rejected_lines")) == 1


# Purging


@pytest.mark.parametrize(
    ("place", "first"),
    [
        ("", 6),
        ("before=latest", 6),
        ("before=earliest", 0),
        ("before=0", 0),
        ("before=4", 4),
        ("before=@4", 4),
        ("before=99", 6),
        ("before=1970-01-01T00:16:42Z", 3),
    ],
)
@FOLDED
def test_readers_see_the_events_from_the_place_on(core: Core, place: str, first: int, *, is_folded: bool) -> None:
    for at in range(6):
        core.now_ms = 1_000_000 + (at >= 3) * 2000
        core.publish(f"e{at}")
    assert typed(core, f"purge t {place}") == [f"+OK purge t {first}"]
    for _ in range(2):
        assert left(core) == [f"e{at}" for at in range(first, 6)]
        assert ids(typed(core, "read t 0")) == left(core)
        assert ids(typed(core, "sub t from=earliest prefetch=10")) == left(core)
        (topic,) = (one for one in answer(core, core.connect(), "topics") if one["topic"] == "t")
        assert (topic["earliest"], topic["next"]) == (first, 6)
        core.restart(is_folded=is_folded)
    core.publish("new")
    assert ids(typed(core, "read t 6")) == ["new"]


def test_a_purge_never_moves_back(core: Core) -> None:
    core.publish("a", "b", "c")
    assert typed(core, "purge t before=2", "purge t before=1") == ["+OK purge t 2", "+OK purge t 2"]
    assert left(core) == ["c"]


def test_subscriptions_pass_over_purged_events_and_settle_those_in_flight(core: Core) -> None:
    core.publish("a", "b", "c", "d", "e")
    session = subscribed(core, "from=earliest prefetch=2 tries=1")
    core.type(session, "nack t @0")
    assert ids(core.type(session, "nack t @1")) == ["d"]
    typed(core, "purge t before=4")
    assert answer(core, core.connect(), "dead topic=t") == []
    assert answer(core, core.connect(), "backlog t as=s")["by_priority"] == {"0": 1}
    assert ids(core.type(session, "ack t @2")) == ["e"]
    assert core.type(session, "ack t @3 @4") == ["+OK ack t 2"]
    assert answer(core, core.connect(), "stats t")["topics"]["t"]["subscriptions"]["s"]["overtaken"] == 2


def test_a_purged_event_that_fails_in_flight_is_not_delivered_again(core: Core) -> None:
    core.publish("a", "b")
    session = subscribed(core)
    typed(core, "purge t before=1")
    assert ids(core.type(session, "nack t @0", "nack t @1")) == ["b"]
    assert answer(core, core.connect(), "unsettled t as=s")["offsets"] == [[1, 1]]


def test_the_letter_of_a_purged_event_does_not_hold_the_event(core: Core) -> None:
    core.publish("a")
    session = subscribed(core, "from=earliest tries=1")
    typed(core, "purge t")
    core.type(session, "nack t @0")
    (_, letter) = typed(core, "read dead_letters 0")
    assert json.loads(letter)["msg"]["event"] is None


@FOLDED
def test_a_dead_event_that_is_purged_is_not_dead_after_a_restart(core: Core, *, is_folded: bool) -> None:
    core.publish("a", "b")
    session = subscribed(core, "from=earliest tries=1")
    core.type(session, "nack t @0")
    typed(core, "purge t before=1")
    core.restart(is_folded=is_folded)
    assert answer(core, core.connect(), "dead topic=t") == []
    assert not core.broker.topics["t"].subscriptions["s"].attempts


def test_lines_that_were_read_before_a_purge_are_not_delivered_after_it(core: Core) -> None:
    core.publish("a", "b")
    core.broker.topics["t"].recent.drop_oldest(1 << 20)
    session = core.connect()
    core.hold_fetches = True
    core.type(session, "sub t as=s from=earliest prefetch=10")
    (fetch,) = core.fetches
    found = fetch.topic.read_lines(fetch.offsets)
    typed(core, "purge t before=1")
    core.broker.fetched(fetch, found, core.now_ms)
    assert ids(core.receive(session)) == ["b"]


def test_no_command_finds_a_purged_event(core: Core) -> None:
    core.publish("a", "b", "c")
    typed(core, 'pub t {"id":"d","parent":"c","msg":1}')
    assert [one["id"] for one in answer(core, core.connect(), "chain t d")["events"]] == ["c", "d"]
    subscribed(core, "from=latest")
    typed(core, "purge t before=3")
    chain = answer(core, core.connect(), "chain t d")
    assert ([one["id"] for one in chain["events"]], chain["unknown_parent"]) == (["d"], "c")
    assert codes(typed(core, "explain t c as=s", "chain t c", "chain t @2")) == ["no_event"] * 3
    assert answer(core, core.connect(), "explain t @2 as=s")["state"] == "behind_retention"


@FOLDED
def test_producers_stay_when_their_events_are_purged(core: Core, *, is_folded: bool) -> None:
    event = 'pub t {"id":"x","msg":1,"producer":"p","sequence":7}'
    assert typed(core, event) + typed(core, "purge t") == ["+OK pub t 0 synced", "+OK purge t 1"]
    core.restart(is_folded=is_folded)
    assert typed(core, event) == ["+OK dup t 0"]
    assert left(core) == []


@FOLDED
def test_offsets_of_purged_events_are_not_used_again_if_the_log_has_lost_them(core: Core, *, is_folded: bool) -> None:
    core.publish("a", "b", "c")
    typed(core, "purge t")
    core.logs.by_topic["t"] = MemoryLog()
    core.restart(is_folded=is_folded)
    core.publish("new")
    assert typed(core, "read t 0")[0] == "+OK read t 1 next=4"


def test_purged_parts_are_removed_and_the_record_stays_until_the_next_start() -> None:
    core = Core()
    core.logs.by_topic["t"] = MemoryLog(span_bytes=200)
    for at in range(9):
        core.publish(f"e{at}", topic="t")
    log = core.logs.by_topic["t"]
    size = log.size
    typed(core, "purge t before=5")
    forgotten = core.broker.forget_old(core.now_ms)
    log.forget_below(forgotten[core.broker.topics["t"]].below)
    assert 0 < log.size < size
    assert core.broker.forget_old(core.now_ms) == {}
    typed(core, "purge t")
    log.end_hidden()
    log.forget_below(core.broker.forget_old(core.now_ms)[core.broker.topics["t"]].below)
    assert log.size == 0
    assert PurgedRecord("t", 9) in core.broker.records()
    core.restart(is_folded=True)
    assert not [record for record in core.broker.records() if isinstance(record, PurgedRecord)]
    core.publish("new")
    assert typed(core, "read t earliest")[0] == "+OK read t 1 next=10"


def test_purged_letters_take_nothing_from_the_dead_events(core: Core) -> None:
    core.publish("a")
    session = subscribed(core, "from=earliest tries=1")
    core.type(session, 'nack t @0 "broken"')
    assert typed(core, "purge dead_letters") == ["+OK purge dead_letters 1"]
    (dead,) = answer(core, core.connect(), "dead")
    assert dead["errors"][0]["message"] == "broken"
    core.restart()
    session = subscribed(core)
    assert core.type(session, "redrive t as=s all")[0] == "+OK redrive t 1"


# Dropping


def test_a_dropped_topic_disappears_with_everything_that_belongs_to_it(core: Core) -> None:
    core.publish("a", "b")
    session = subscribed(core)
    anonymous = core.connect()
    core.type(anonymous, "hello ann", "sub t from=earliest")
    typed(core, "describe t text", "retain t age=1d", "checkpoint t p here")
    dropper = core.connect()
    assert core.type(dropper, "hello admin", "drop t")[1:] == ["+OK drop t"]
    assert core.receive(session) == ["!ended t as=s admin dropped the topic"]
    assert core.receive(anonymous) == [f"!ended t as=conn-{anonymous.number} admin dropped the topic"]
    assert codes(core.type(session, "read t 0", "ack t @0", "drop t")) == [
        "unknown_topic",
        "not_subscribed",
        "unknown_topic",
    ]
    assert [one["topic"] for one in answer(core, dropper, "topics")] == ["dead_letters"]
    core.disconnect(anonymous)
    for _ in range(2):
        assert typed(core, 'pub t {"id":"new","msg":1}')[0].startswith("+OK pub t ")
        assert ids(typed(core, "read t 0"))[0] == "new"
        assert typed(core, "describe t", "last t p") == ["+OK describe t {}", "+OK last t p null"]
        assert typed(core, "retain t")[0].startswith("+OK retain t age=none")
        assert codes(typed(core, "backlog t as=s")) == ["not_subscribed"]
        core.restart()
    assert core.bugs == []


def test_a_drop_with_if_empty_refuses_a_topic_with_events(core: Core) -> None:
    core.publish("a")
    (refusal,) = typed(core, "drop t if_empty")
    assert refusal.startswith("-ERR bad_arguments t has 1 events; purge it first")
    assert typed(core, "purge t", "drop t if_empty") == ["+OK purge t 1", "+OK drop t"]


def test_commands_are_refused_as_busy_while_a_topic_is_dropped(core: Core) -> None:
    core.publish("a")
    session = subscribed(core)
    core.hold_drops = True
    typed(core, "drop t")
    lines = (
        *("read t 0", "sub t", "sub t as=s", "drop t", "purge t", "create t", "seek t as=s to=0", "pause t as=s"),
        *('pub t {"id":"x","msg":1}', "checkpoint t p c", "describe t text", "retain t", "stats t", "last t p"),
    )
    assert codes(typed(core, *lines)) == ["busy"] * len(lines)
    assert core.type(session, "ack t @0") == ["+OK ack t 1"]
    core.hold_drops = False
    core.carry_out()
    assert codes(typed(core, "read t 0", "create t")) == ["unknown_topic", "+"]


def test_a_command_after_a_drop_on_the_same_connection_is_carried_out_after_it(core: Core) -> None:
    core.publish("a")
    assert typed(core, 'pub t {"id":"b","msg":1}', "drop t", 'pub t {"id":"c","msg":1}') == [
        "+OK pub t 1 synced",
        "+OK drop t",
        "+OK pub t 0 synced",
    ]


def test_a_name_is_free_once_the_record_of_the_drop_is_on_the_disk(core: Core) -> None:
    core.hold_records = True
    session = core.connect()
    assert core.type(session, "drop t") == []
    assert codes(typed(core, "create t", "read t 0")) == ["busy", "busy"]
    core.hold_records = False
    core.carry_out()
    assert core.receive(session) == ["+OK drop t"]
    assert typed(core, "create t") == ["+OK create t new"]


def test_a_drop_that_the_disk_refuses_changes_nothing(core: Core) -> None:
    core.publish("a")
    session = subscribed(core)
    core.fail_drops_with = "No space left on device"
    assert typed(core, "drop t") == ["-ERR disk No space left on device"]
    core.publish("b")
    assert ids(core.receive(session)) == ["b"]
    assert left(core) == ["a", "b"]


def test_topics_of_the_broker_and_of_a_gateway_cannot_be_dropped(core: Core) -> None:
    gateway = core.connect()
    core.broker.topic("source")
    core.broker.reserve_topic("source", gateway)
    core.broker.topic("inbox.7")
    core.broker.protect_topics("inbox.")
    typed(core, "hello ann", "pub t {", "create audit")
    topics = ("dead_letters", "rejected_lines", "audit", "source", "inbox.7")
    assert codes(typed(core, *(f"drop {topic}" for topic in topics))) == ["forbidden"] * 5
    assert codes(typed(core, *(f"purge {topic}" for topic in topics))) == ["+"] * 5


def test_replies_that_wait_for_events_of_a_dropped_topic_are_decided() -> None:
    outbox = Outbox()
    earlier = outbox.expect_answer()
    outbox.expect_confirmation("t", 0, 1, 10)
    outbox.expect_duplicate("t", 0)
    outbox.expect_stored("u", 5, b"+COMP u x 5 synced\n")
    outbox.settle_topic("t", "synced")
    earlier.lines = b"+OK topics []\n"
    outbox.confirm({"u": 6}, 0, "synced")
    assert outbox.take_ready().splitlines() == [
        b"+OK topics []",
        b"+OK pub t 0-1 synced",
        b"+OK dup t 0",
        b"+COMP u x 5 synced",
    ]
    assert (outbox.awaited, outbox.awaited_bytes, outbox.held) == (0, 0, 0)


@FOLDED
def test_a_restart_gives_nothing_of_a_dropped_topic_to_a_new_one(core: Core, *, is_folded: bool) -> None:
    core.publish("a", "b")
    session = core.connect()
    core.type(session, "hello ann", "sub t as=s from=earliest prefetch=10", "ack t @0")
    core.type(session, 'pub2 t {"id":"held","msg":1}')
    core.disconnect(session)
    typed(core, "purge t before=1", "drop t")
    core.publish("new")
    for _ in range(2):
        core.restart(is_folded=is_folded)
        assert left(core) == ["new"]
        assert core.broker.topics["t"].subscriptions == {}
        session = core.connect()
        assert core.type(session, "hello ann resume") == ["+OK hello ann"]
        assert codes(core.type(session, "pubrel t held")) == ["no_event"]


def test_a_damaged_first_record_of_a_dropped_subscription_brings_nothing_back(core: Core) -> None:
    core.publish("a", "b")
    core.type(subscribed(core), "ack t @0")
    typed(core, "drop t")
    core.kept = [record for record in core.kept if not isinstance(record, SubscriptionRecord)]
    core.publish("new")
    core.restart()
    assert core.broker.topics["t"].subscriptions == {}


def test_a_drop_that_ended_after_the_rename_is_completed_by_the_next_start(core: Core) -> None:
    core.publish("a", "b")
    core.type(subscribed(core), "ack t @0")
    core.logs.drop("t")
    core.restart()
    assert "t" not in core.broker.topics
    assert DroppedRecord("t") in core.kept
    core.publish("new")
    # An older snapshot, with all journals since.
    core.restart()
    assert left(core) == ["new"]
    assert core.broker.topics["t"].subscriptions == {}


def test_work_that_still_runs_for_a_dropped_topic_has_no_effect(core: Core) -> None:
    core.publish("a", "b", "c")
    session = subscribed(core, "from=earliest prefetch=10 tries=1 timeout=5s")
    core.type(session, "nack t @0", "nack t @1")
    typed(core, "redrive t as=s all rate=1/s")
    core.fail_with = "No space left on device"
    core.type(session, "nack t @2")
    core.fail_with = None
    leaving = core.connect()
    core.type(leaving, "sub t as=s prefetch=10")
    typed(core, "drop t")
    core.publish("new")
    subscribed(core)
    core.pass_time(20)
    assert core.bugs == []
    assert answer(core, core.connect(), "dead") == []
    core.restart()
    assert answer(core, core.connect(), "dead") == []


def test_a_new_topic_with_the_name_of_a_dropped_one_is_found_in_chains(core: Core) -> None:
    typed(core, 'pub t {"id":"a","msg":1}', 'pub t {"id":"b","parent":"a","msg":1}', "create u")
    assert len(answer(core, core.connect(), "chain t b")["events"]) == 2
    typed(core, "drop t", 'pub t {"id":"b","parent":"x","msg":1}')
    chain = answer(core, core.connect(), "chain t b")
    assert [(one["offset"], one["id"]) for one in chain["events"]] == [(0, "b")]
    assert chain["unknown_parent"] == "x"


def test_a_drop_releases_the_room_of_lines_producers_and_documentation(core: Core) -> None:
    memory = core.broker.topics["t"].recent._memory
    before = memory.used
    core.publish("a", "b")
    typed(core, "describe t text", "checkpoint t p here")
    typed(core, "drop t")
    assert memory.used == before
    assert core.broker._topics._producer_room.used == 0
    assert core.broker._verbs.topics._documenting._total() == 0


@pytest.mark.parametrize(("is_dropped", "damaged"), [(False, 3), (True, 0)])
def test_events_that_a_read_misses_are_damaged_unless_their_topic_was_dropped(is_dropped: bool, damaged: int) -> None:
    core = Core("t")
    core.publish("a", "b", "c")
    reader = core.connect()
    (command,) = parse_lines([b"read t 0"], 1 << 20)
    assert not isinstance(command, Refusal)
    core.broker.execute(reader, command, core.now_ms)
    (reading,) = core.broker.work.take_tasks()
    assert isinstance(reading, Reading)
    if is_dropped:
        core.type(core.connect(), "drop t")
    core.broker.has_read(reading, [], 3, damaged=3)
    assert core.broker.counts["damaged"] == damaged
