"""``state``: the copy of the durable state for backups, on a core without sockets."""

import json
from typing import Any

import msgspec
import pytest

from broker.core import Access, Session
from broker.core.verbs import state
from broker.journal.records import Record
from tests.broker.core.harness import Core
from tests.broker.core.users_of_core import ALICE, BOSS, answer, codes, connect


@pytest.fixture
def core() -> Core:
    return Core("t", "u")


def parts(core: Core, session: Session) -> list[dict[str, Any]]:
    found = [answer(core, session, "state")]
    while found[-1]["next"] is not None:
        found.append(answer(core, session, f"state from={found[-1]['next']}"))
    return found


def copied(core: Core, session: Session) -> list[Record]:
    text = "".join(part["records"] for part in parts(core, session))
    return [msgspec.json.decode(line, type=Record) for line in text.splitlines()]


def busy(core: Core) -> None:
    """Return a core with every kind of state: failed tries, a dead event, producers, documents, retention, a handshake."""
    consumer = connect(
        core, BOSS, "describe t one", "comment t two", "retain t age=9d", "sub t as=s tries=1", "sub u as=s"
    )
    core.publish("e0", "e1", "e2")
    core.type(consumer, 'pub u {"id":"p","msg":1,"producer":"p","sequence":7,"checkpoint":"c"}')
    core.type(consumer, "nack t @0", "ack t @1", 'pub2 t {"id":"held","msg":1}')


def test_the_copy_has_the_records_of_a_snapshot(core: Core) -> None:
    busy(core)
    assert copied(core, core.connect()) == core.broker.records()


def test_all_parts_are_of_the_moment_of_the_first(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "PART_CHARACTERS", 100)
    busy(core)
    expected = core.broker.records()
    session = core.connect()
    found = [answer(core, session, "state")]
    while found[-1]["next"] is not None:
        core.publish("more")
        assert len(found[-1]["records"]) == 100
        found.append(answer(core, session, f"state from={found[-1]['next']}"))
    lines = "".join(part["records"] for part in found).splitlines()
    assert [msgspec.json.decode(line, type=Record) for line in lines] == expected != core.broker.records()


def test_a_copy_ends_with_its_last_part(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "PART_CHARACTERS", 100)
    busy(core)
    session = core.connect()
    assert codes(core.type(session, "state from=100")) == ["bad_arguments"]
    last = parts(core, session)[-2]["next"]
    assert codes(core.type(session, f"state from={last}")) == ["bad_arguments"]
    assert answer(core, session, "state")["next"] == 100
    assert codes(core.type(session, "state from=999999", "state from=x", "state at=1")) == ["bad_arguments"] * 3


def test_each_connection_has_its_own_copy(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "PART_CHARACTERS", 100)
    one, other = core.connect(), core.connect()
    answer(core, one, "state")
    busy(core)
    assert len(parts(core, other)) > len(parts(core, one)) - 1
    assert codes(core.type(other, "state from=100")) == ["bad_arguments"]


def test_the_copy_has_only_topics_that_the_administrator_may_read(core: Core) -> None:
    busy(core)
    some = connect(core, Access("some", ("*",), ("u",), is_admin=True))
    (part,) = parts(core, some)
    records = [json.loads(line) for line in part["records"].splitlines()]
    assert part["left_out"] == ["dead_letters", "t"]
    assert {record["topic"] for record in records if "topic" in record} == {"u"}
    assert [record["attached"] for record in records if record["type"] == "client"] == [[["u", "s", 1]]]


def test_a_user_who_is_not_an_administrator_gets_no_copy(core: Core) -> None:
    assert codes(core.type(connect(core, ALICE), "state")) == ["forbidden"]
