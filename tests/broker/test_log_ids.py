"""Each log of a topic has an id: it stays with the log, and a topic that is made again has another one."""

from pathlib import Path

import pytest

from broker.log.commit_log import CommitLog
from broker.log.log_id import ID_NAME
from tests.support.processes import BrokerProcess
from tweetwire import Event, Refusal, SyncClient

pytestmark = pytest.mark.timeout(120)


def log_of(client: SyncClient, topic: str = "orders") -> str:
    (info,) = [one for one in client.topics() if one.topic == topic]
    assert client.stats(topic)["topics"][topic]["log"] == info.log
    return info.log


def test_the_id_survives_a_restart_and_not_a_drop(broker: BrokerProcess) -> None:
    with SyncClient(broker.address, name="test") as client:
        client.publish("orders", Event(id="a", msg=1))
        first = log_of(client)
        assert len(first) == 16
    broker.kill()
    broker.start()
    with SyncClient(broker.address, name="test") as client:
        assert log_of(client) == first
        client.command("drop orders")
        client.publish("orders", Event(id="a", msg=1))
        assert log_of(client) not in {"", first}


def test_a_read_and_a_mark_of_another_log_are_refused(broker: BrokerProcess) -> None:
    with SyncClient(broker.address, name="test") as client:
        client.publish("orders", Event(id="a", msg=1))
        first = log_of(client)
        assert len(client.read("orders", 0, log=first).events) == 1
        assert client.mark("orders", "central", 1, log=first) == 1
        client.command("drop orders")
        client.publish("orders", Event(id="b", msg=1))
        for attempt in (
            lambda: client.read("orders", 0, log=first),
            lambda: client.read("orders", 1, wait_s=1, log=first),
            lambda: client.mark("orders", "central", 1, log=first),
        ):
            with pytest.raises(Refusal, match="made again") as refused:
                attempt()
            assert refused.value.code == "unknown_topic"
        assert client.marks("orders") == []
        assert client.mark("orders", "central", 1, log=log_of(client)) == 1


def test_topics_in_memory_have_ids_too(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "broker", "--durability", "memory") as broker,
        SyncClient(broker.address, name="test") as client,
    ):
        client.publish("orders", Event(id="a", msg=1))
        client.publish("bills", Event(id="a", msg=1))
        assert log_of(client) != log_of(client, "bills")


def test_a_log_of_an_earlier_release_gets_an_id_once(tmp_path: Path) -> None:
    log = CommitLog(tmp_path / "orders")
    log.close()
    (tmp_path / "orders" / ID_NAME).unlink()
    opened = CommitLog(tmp_path / "orders")
    opened.close()
    assert opened.id not in {"", log.id}
    assert not any(opened.recovery)
    again = CommitLog(tmp_path / "orders")
    again.close()
    assert again.id == opened.id


@pytest.mark.parametrize("cut", [0, 1, 8, 9, 20, -2])
def test_a_damaged_id_is_replaced_and_reported(tmp_path: Path, cut: int) -> None:
    log = CommitLog(tmp_path / "orders")
    log.close()
    path = tmp_path / "orders" / ID_NAME
    path.write_bytes(path.read_bytes()[:cut])
    again = CommitLog(tmp_path / "orders")
    again.close()
    assert again.id not in {"", log.id}
    assert again.recovery.lost_ids == 1


def test_an_id_behind_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    CommitLog(tmp_path / "orders").close()
    path = tmp_path / "orders" / ID_NAME
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic link"):
        CommitLog(tmp_path / "orders")


def test_a_log_without_room_for_an_id_is_opened_without_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    CommitLog(tmp_path / "orders").close()
    (tmp_path / "orders" / ID_NAME).unlink()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("broker.log.log_id._write", full)
    log = CommitLog(tmp_path / "orders")
    log.close()
    assert log.id == ""
    with pytest.raises(OSError, match="No space"):
        CommitLog(tmp_path / "bills")
    assert not (tmp_path / "bills").exists()
