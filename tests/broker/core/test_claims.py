"""A claimed producer: one client publishes as it, and the events of all others are refused."""

import json
import random
from typing import Any

import pytest

from broker.core import Session
from tests.broker.core.harness import Core
from tests.broker.core.test_gaps import codes
from tweetwire.protocol.errors import Refusal


@pytest.fixture
def core() -> Core:
    return Core("t")


def pub(sequence: int, epoch: int | None = None, *, producer: str = "p", msg: Any = 1) -> str:
    event = {"id": f"{producer}-{sequence}", "msg": msg, "producer": producer, "sequence": sequence}
    return f"pub t {'' if epoch is None else f'epoch={epoch} '}{json.dumps(event)}"


def claimed(core: Core, session: Session, options: str = "") -> int:
    (reply,) = core.type(session, f"claim t p {options}")
    assert reply.startswith("+OK claim t p "), reply
    return int(reply.split()[4])


def test_events_of_an_older_epoch_are_refused(core: Core) -> None:
    old, new = core.connect(), core.connect()
    assert claimed(core, old) == 1
    assert codes(core.type(old, pub(1, 1), pub(2, 1))) == ["ok", "ok"]
    assert claimed(core, new) == 2
    assert core.type(old, pub(3, 1)) == ["-ERR fenced p has epoch 2 and is held by conn-2, and this line has epoch 1"]
    assert codes(core.type(new, pub(3, 2))) == ["ok"]
    assert codes(core.type(old, pub(3, 1), pub(4, 1), pub(4), pub(4, 3))) == ["fenced"] * 4
    assert codes(core.type(new, pub(4, 2), pub(5, 2))) == ["ok", "ok"]


def test_a_refused_event_of_an_older_epoch_does_not_hold_up_the_new_client(core: Core) -> None:
    old, new = core.connect(), core.connect()
    claimed(core, old)
    core.type(old, pub(1, 1))
    claimed(core, new)
    assert codes(core.type(old, pub(2, 1), pub(9, 1))) == ["fenced", "fenced"]
    assert codes(core.type(new, pub(2, 2), pub(3, 2))) == ["ok", "ok"]


def test_a_new_epoch_ends_the_wait_for_refused_sequences(core: Core) -> None:
    old, new = core.connect(), core.connect()
    core.type(old, 'schema t {"type":"integer"}')
    claimed(core, old)
    assert codes(core.type(old, pub(1, 1), pub(2, 1, msg="x"), pub(3, 1))) == ["ok", "schema", "out_of_sequence"]
    claimed(core, new)
    assert codes(core.type(new, pub(5, 2))) == ["ok"]


@pytest.mark.parametrize("line", ["checkpoint t p{} c", "skip t p{} 7"])
def test_checkpoints_and_skips_need_the_epoch_too(core: Core, line: str) -> None:
    old, new = core.connect(), core.connect()
    claimed(core, old)
    claimed(core, new)
    refused = core.type(old, line.format("@1"), line.format(""), line.format("@3"))
    assert codes(refused) == ["fenced"] * 3
    (reply,) = core.type(new, line.format("@2"))
    assert reply == f"+OK {line.split(maxsplit=1)[0]} t p@2"


def test_other_producers_and_events_without_a_producer_need_no_epoch(core: Core) -> None:
    session = core.connect()
    claimed(core, session)
    plain = 'pub t {"id":"1","msg":1}'
    assert codes(core.type(session, plain, pub(1, producer="q"), plain.replace("pub t", "pub t epoch=1"))) == ["ok"] * 3
    assert codes(core.type(session, pub(2, 1, producer="q"))) == ["fenced"]


@pytest.mark.parametrize("verb", ["pub2", "request"])
def test_a_command_without_an_epoch_cannot_publish_as_a_claimed_producer(core: Core, verb: str) -> None:
    session = core.connect()
    core.type(session, "hello ann")
    claimed(core, session)
    event = json.dumps({"id": "1", "msg": 1, "producer": "p", "sequence": 1})
    replies = core.type(session, f"{verb} t {event}", *(["pubrel t 1"] if verb == "pub2" else []))
    assert replies[-1].startswith("-ERR "), replies
    assert core.broker.topics["t"].visible == 0


def test_free_claims_only_a_producer_that_no_other_connection_holds(core: Core) -> None:
    old, new = core.connect(), core.connect()
    assert claimed(core, old, "free") == 1
    assert claimed(core, old, "free") == 2
    assert core.type(new, "claim t p free") == ["-ERR fenced p is held by conn-1 (connection 1)"]
    core.disconnect(old)
    assert claimed(core, new, "free") == 3


def test_a_connection_that_lost_its_claim_does_not_release_the_new_one_at_its_end(core: Core) -> None:
    old, new, other = core.connect(), core.connect(), core.connect()
    claimed(core, old)
    claimed(core, new)
    core.disconnect(old)
    assert codes(core.type(other, "claim t p free")) == ["fenced"]


def test_a_client_continues_its_claim_on_a_new_connection(core: Core) -> None:
    old = core.connect()
    claimed(core, old)
    again, other = core.connect(), core.connect()
    assert claimed(core, again, "epoch=1") == 1
    core.disconnect(old)
    assert codes(core.type(other, "claim t p free")) == ["fenced"]
    assert codes(core.type(again, pub(1, 1))) == ["ok"]
    assert claimed(core, other) == 2
    assert codes(core.type(again, "claim t p epoch=1", "claim t p epoch=3", "claim u p epoch=1")) == ["fenced"] * 3


@pytest.mark.parametrize("is_folded", [False, True])
def test_after_a_restart_the_same_epoch_is_the_current_one_and_no_client_holds_the_producer(
    core: Core, *, is_folded: bool
) -> None:
    session = core.connect()
    claimed(core, session)
    claimed(core, session)
    core.restart(is_folded=is_folded)
    session, other = core.connect(), core.connect()
    assert codes(core.type(session, pub(1, 1), pub(1, 2))) == ["fenced", "ok"]
    (reply,) = core.type(session, "last t p")
    position = {"offset": 0, "sequence": 1, "checkpoint": None, "epoch": 2, "holder": None}
    assert json.loads(reply.split(" ", 4)[4]) == position
    assert claimed(core, other, "free") == 3


def test_a_claim_is_confirmed_after_its_record_is_on_the_disk(core: Core) -> None:
    session = core.connect()
    core.hold_records = True
    assert core.type(session, "claim t p", pub(1, 1)) == []
    core.hold_records = False
    core.carry_out()
    assert [reply.split()[1] for reply in core.receive(session)] == ["claim", "pub"]


def test_a_claim_is_confirmed_after_earlier_events_are_stored_so_that_last_is_final(core: Core) -> None:
    old, new = core.connect(), core.connect()
    claimed(core, old)
    core.hold = True
    core.type(old, pub(1, 1), pub(2, 1))
    assert core.type(new, "claim t p") == []
    core.hold = False
    core.carry_out()
    assert core.receive(new) == ["+OK claim t p 2"]
    (reply,) = core.type(new, "last t p")
    assert json.loads(reply.split(" ", 4)[4])["sequence"] == 2


def test_a_claim_during_a_write_that_fails_is_refused_and_may_be_repeated(core: Core) -> None:
    old, new = core.connect(), core.connect()
    claimed(core, old)
    core.hold = True
    core.type(old, pub(1, 1), pub(2, 1))
    core.type(new, "claim t p")
    core.hold, core.fail_with = False, "no space left"
    core.carry_out()
    assert codes(core.receive(new)) == ["disk"]
    core.fail_with = None
    assert claimed(core, new, "free") == 3
    assert codes(core.type(new, pub(1, 3), pub(2, 3))) == ["ok", "ok"]


def test_forget_and_drop_forget_a_claim(core: Core) -> None:
    session = core.connect()
    claimed(core, session)
    assert core.type(session, "forget t p") == ["+OK forget t p"]
    core.restart()
    session = core.connect()
    assert codes(core.type(session, pub(1, 1), pub(1))) == ["fenced", "ok"]
    assert claimed(core, session) == 1
    assert core.type(session, "drop t") == ["+OK drop t"]
    core.restart()
    assert codes(core.type(core.connect(), pub(1, 1), pub(1))) == ["fenced", "ok"]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("claim t", "bad_arguments"),
        ("claim t p free epoch=1", "bad_arguments"),
        ("claim t p epoch=0", "bad_arguments"),
        ("claim t p epoch=x", "bad_arguments"),
        ("claim t p sometimes", "bad_arguments"),
        ("claim t p@1", "bad_name"),
        ("claim dead_letters p", "forbidden"),
        ("checkpoint t p@ c", "bad_arguments"),
        ("checkpoint t p@x c", "bad_arguments"),
        (pub(1).replace("pub t", "pub t epoch=0"), "bad_arguments"),
        (pub(1).replace("pub t", "pub t epoch=1 epoch=2"), "bad_arguments"),
    ],
)
def test_wrong_lines_are_refused(core: Core, line: str, code: str) -> None:
    assert codes(core.type(core.connect(), line)) == [code]


def test_an_epoch_may_stand_among_other_options(core: Core) -> None:
    session = core.connect()
    claimed(core, session)
    lines = [pub(n, 1).replace("epoch=1", "delay=0s epoch=1 within=1s") for n in (1, 2)]
    assert codes(core.type(session, *lines)) == ["ok", "ok"]


def test_claims_need_room_for_producers(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.core.topic.producers.PRODUCERS_MAX", 2)
    assert codes(core.type(core.connect(), *(f"claim t p{n}" for n in range(3)))) == ["claim", "claim", "too_many"]


@pytest.mark.parametrize("seed", range(30))
def test_each_event_is_stored_once_and_in_order_whatever_the_clients_do(seed: int) -> None:
    """Let clients claim, publish from the end that `last` shows, and die, and let the broker restart.

    The log has the sequences 1, 2, 3 …
    """
    chance, core = random.Random(seed), Core("t")
    clients: list[tuple[Session, int, int]] = []

    def begin(options: str) -> None:
        session = core.connect()
        try:
            epoch = claimed(core, session, options)
        except AssertionError:
            return
        (reply,) = core.type(session, "last t p")
        clients.append((session, epoch, json.loads(reply.split(" ", 4)[4])["sequence"] or 0))

    for _ in range(200):
        kind = chance.random()
        if kind < 0.15 or not clients:
            begin(chance.choice(["", "free"]))
        elif kind < 0.2:
            core.disconnect(clients.pop(chance.randrange(len(clients)))[0])
        elif kind < 0.23:
            core.carry_out()
            core.restart(is_folded=chance.random() < 0.5)
            clients = [(core.connect(), epoch, sequence) for _, epoch, sequence in clients]
        else:
            core.hold = chance.random() < 0.3
            at = chance.randrange(len(clients))
            session, epoch, sequence = clients[at]
            count = chance.randint(1, 4)
            # Each client would publish another event for the same sequence, as two copies of a collection do.
            lines = [pub(sequence + n, epoch, msg=f"{epoch}-{sequence + n}") for n in range(1, count + 1)]
            core.type(session, *lines)
            clients[at] = (session, epoch, sequence + count)
            core.hold = False
    core.carry_out()
    stored = [json.loads(line) for line in core.type(core.connect(), "read t earliest") if line.startswith("{")]
    assert [event["sequence"] for event in stored] == list(range(1, len(stored) + 1))
    epochs = [int(event["msg"].split("-")[0]) for event in stored]
    assert epochs == sorted(epochs)
    assert len(set(epochs)) > 2


def test_a_fenced_refusal_is_not_worth_repeating() -> None:
    assert not Refusal("fenced", "").is_retryable
