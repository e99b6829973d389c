"""The publisher as a program: its events, the position at which it resumes, and its messages when it cannot run."""

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import bson
import pytest
from bson.raw_bson import RawBSONDocument
from pymongo.database import Database

from tests.change_stream.conftest import Start
from tests.change_stream.programs import Publisher, wait_for
from tests.support.certificates import files_of
from tests.support.paths import ROOT
from tests.support.processes import BrokerProcess
from tests.support.stored import events_of
from tests.support.users import entry
from tests.support.waiting import until
from tweetwire import StoredEvent, SyncClient
from tweetwire.runtime.login import Login
from tweetwire.runtime.tls import TlsFiles

pytestmark = pytest.mark.stack
Mongo = Database[dict[str, Any]]


def msgs(events: list[StoredEvent]) -> list[Any]:
    return [json.loads(bytes(event.msg)) for event in events]


def test_two_collections_go_to_their_topics(
    tmp_path: Path, mongo_url: str, broker: BrokerProcess, database: Mongo
) -> None:
    with Publisher(tmp_path / "publisher.log", mongo_url, broker.address, database.name) as publisher:
        assert publisher.said(
            f"change stream ready on {database.name} (tweets → tweets, users → users)"
        ) or publisher.said(f"change stream ready on {database.name} (tweets \\u2192 tweets, users \\u2192 users)")
        database.tweets.insert_one({"_id": "1", "user": {"id_str": "7", "followers_count": 1234}})
        database.users.insert_one({"_id": "7", "followers_count": 1234})
        (tweet,) = wait_for(broker.address, "tweets", 1)
        (user,) = wait_for(broker.address, "users", 1)
        assert publisher.terminate() == 0
    assert (tweet.id, tweet.key, tweet.priority, tweet.sequence) == ("1", "7", 3, 1)
    assert (user.id, user.key, user.priority, user.sequence) == ("7", "7", 3, 1)
    assert tweet.producer == f"cdc.{database.name}.tweets"
    assert msgs([tweet])[0]["document"] == {"_id": "1", "user": {"id_str": "7", "followers_count": 1234}}


def test_changes_made_while_the_publisher_is_away_come_when_it_is_back(
    start: Start, broker: BrokerProcess, database: Mongo
) -> None:
    first = start()
    assert first.terminate() == 0
    database.tweets.insert_many([{"_id": n} for n in range(2500)])
    start()
    events = wait_for(broker.address, "tweets", 2500)
    assert [event.id for event in events] == [str(n) for n in range(2500)]
    assert [event.sequence for event in events] == list(range(1, 2501))


def test_a_drop_is_published_once_and_the_stream_continues(
    start: Start, broker: BrokerProcess, database: Mongo
) -> None:
    first = start()
    database.tweets.insert_one({"_id": 1})
    database.tweets.drop()
    database.tweets.insert_one({"_id": 2})
    wait_for(broker.address, "tweets", 4)
    assert first.terminate() == 0
    start()
    database.tweets.rename("old")
    database.tweets.insert_one({"_id": 3})
    database.client.drop_database(database.name)
    database.tweets.insert_one({"_id": 4})
    changes = msgs(wait_for(broker.address, "tweets", 10))
    operations = [
        "insert",
        "drop",
        "invalidate",
        "insert",
        "rename",
        "invalidate",
        "insert",
        "drop",
        "invalidate",
        "insert",
    ]
    assert [change["op"] for change in changes] == operations
    assert changes[4]["to"] == "old"


def test_an_update_followed_by_a_delete(start: Start, broker: BrokerProcess, database: Mongo) -> None:
    first = start()
    assert first.terminate() == 0
    database.tweets.insert_one({"_id": 1})
    database.tweets.update_one({"_id": 1}, {"$set": {"n": 1}})
    database.tweets.delete_one({"_id": 1})
    start()
    changes = msgs(wait_for(broker.address, "tweets", 3))
    assert [(change["op"], change["document"]) for change in changes] == [
        ("insert", {"_id": 1}),
        ("update", None),
        ("delete", None),
    ]


def test_images_before_and_after(start: Start, broker: BrokerProcess, database: Mongo) -> None:
    database.create_collection("tweets", changeStreamPreAndPostImages={"enabled": True})
    start("--full-document", "required", "--before", "required")
    database.tweets.insert_one({"_id": 1, "n": 1})
    database.tweets.update_one({"_id": 1}, {"$set": {"n": 2}})
    database.tweets.update_one({"_id": 1}, {"$set": {"n": 3}})
    database.tweets.delete_one({"_id": 1})
    changes = msgs(wait_for(broker.address, "tweets", 4))
    images = [(None, 1), (1, 2), (2, 3), (3, None)]
    assert [(_n(change["before"]), _n(change["document"])) for change in changes] == images


def _n(document: Any) -> Any:
    return document and document["n"]


def test_a_transaction_is_published_with_its_id(start: Start, broker: BrokerProcess, database: Mongo) -> None:
    database.create_collection("tweets")
    start("--batch-size", "7")
    with database.client.start_session() as session, session.start_transaction():
        database.tweets.insert_many([{"_id": n} for n in range(40)], session=session)
    changes = msgs(wait_for(broker.address, "tweets", 40))
    assert {change["transaction"]["txnNumber"] for change in changes} == {1}
    assert len({json.dumps(change["transaction"]["lsid"]) for change in changes}) == 1


@pytest.mark.parametrize("mode", ["canonical", "relaxed"])
def test_extended_json(start: Start, broker: BrokerProcess, database: Mongo, mode: str) -> None:
    start("--json", mode)
    database.tweets.insert_one({"_id": 1, "n": bson.Int64(2)})
    (change,) = msgs(wait_for(broker.address, "tweets", 1))
    expected = {"_id": {"$numberInt": "1"}, "n": {"$numberLong": "2"}} if mode == "canonical" else {"_id": 1, "n": 2}
    assert change["document"] == expected


def test_fields_and_pipeline(tmp_path: Path, start: Start, broker: BrokerProcess, database: Mongo) -> None:
    stages = tmp_path / "stages.json"
    stages.write_text('[{"$match": {"operationType": "insert", "fullDocument.lang": "en"}}]')
    start("--pipeline", f"tweets={stages}", "--exclude", "tweets=secret", "--rename", "tweets=text:body")
    database.tweets.insert_many(
        [{"_id": n, "lang": lang, "text": "x", "secret": 1} for n, lang in enumerate(["en", "ro", "en"])]
    )
    changes = msgs(wait_for(broker.address, "tweets", 2))
    assert [change["document"] for change in changes] == [{"_id": n, "lang": "en", "body": "x"} for n in (0, 2)]


def test_excluded_members_are_nowhere_in_the_topic(
    tmp_path: Path, mongo_url: str, broker: BrokerProcess, database: Mongo
) -> None:
    flags = ("--map", "my coll €=topic", "--exclude", "my coll €=a.b", "--json", "canonical")
    coll = database["my coll €"]
    coll.insert_one({"_id": 0, "a": {"b": "secret"}})
    with Publisher(
        tmp_path / "log", mongo_url, broker.address, database.name, *flags, "--snapshot", "initial"
    ) as publisher:
        wait_for(broker.address, "topic", 1)
        coll.insert_many([{"_id": 1, "a": [{"b": "secret"}], "a.b": "secret"}, {"_id": "1", "a": {"0": {"b": "x"}}}])
        coll.update_one({"_id": 1}, {"$set": {"a.0.b": "secret, too", "c": 1}})
        coll.update_one({"_id": "1"}, {"$set": {"a.0.b": "y"}})
        coll.delete_many({"_id": {"$in": [1, "1"]}})
        wait_for(broker.address, "topic", 9)
        assert publisher.terminate() == 0
        # A second start continues under the same producer's name.
        publisher.start()
        coll.insert_one({"_id": 2})
        events = wait_for(broker.address, "topic", 10)
    assert [event.sequence for event in events] == list(range(1, 11))
    events = [event for event in events if event.id != "my coll €"]
    assert not [event for event in events if b"secret" in bytes(event.msg)]
    assert [event.id for event in events] == ["0", "1", "1", "1", "1", "1", "1", "2"]
    keys = [change["document_key"]["_id"] for change in msgs(events)]
    one = {"$numberInt": "1"}
    assert keys == [{"$numberInt": "0"}, one, "1", one, "1", one, "1", {"$numberInt": "2"}]
    # In one of the two paths a.0.b, the 0 is an array position. MongoDB reports which one only after version 6.0.
    first, second = (change["changed"] for change in msgs(events)[3:5])
    is_told = database.client.server_info()["versionArray"] >= [6, 1]
    assert first["updated"] == {"c": {"$numberInt": "1"}}
    assert second["updated"] == ({"a.0.b": "y"} if is_told else {})
    assert [change.get("unclear") for change in (first, second)] == ([None, None] if is_told else [one, one])


def test_another_pipeline_continues_at_the_same_place(
    tmp_path: Path, start: Start, broker: BrokerProcess, database: Mongo
) -> None:
    stages = tmp_path / "stages.json"
    stages.write_text('[{"$match": {"fullDocument.n": {"$gte": 10}}}]')
    database.create_collection("tweets")
    first = start("--pipeline", f"tweets={stages}")
    with database.client.start_session() as session, session.start_transaction():
        database.tweets.insert_many([{"_id": n, "n": n} for n in range(20)], session=session)
    wait_for(broker.address, "tweets", 10)
    assert first.terminate() == 0
    database.tweets.insert_many([{"_id": n, "n": n - 20} for n in range(20, 25)])
    second = start()
    assert second.said("pipeline or options changed")
    events = wait_for(broker.address, "tweets", 15)
    assert [event.id for event in events] == [str(n) for n in range(10, 25)]


def test_a_change_that_cannot_be_converted_is_kept_and_the_rest_continues(
    start: Start, broker: BrokerProcess, database: Mongo
) -> None:
    good = bson.encode({"_id": 2, "text": "@@@@"})
    start()
    database.tweets.insert_one({"_id": 1})
    database.tweets.insert_one(RawBSONDocument(good.replace(b"@@@@", b"\xed\xa0\x80\xff")))
    database.tweets.insert_one({"_id": 3})
    events = wait_for(broker.address, "tweets", 2)
    assert [(event.id, event.sequence) for event in events] == [("1", 1), ("3", 2)]
    (kept,) = msgs(wait_for(broker.address, "rejected_changes", 1))
    assert (kept["topic"], kept["producer"]) == ("tweets", f"cdc.{database.name}.tweets")
    assert "InvalidBSON" in kept["reason"]
    assert kept["behind"].startswith("v1/")


def test_a_document_that_the_broker_would_not_take_goes_without_it(
    start: Start, broker: BrokerProcess, database: Mongo
) -> None:
    start()
    database.tweets.insert_one({"_id": 1, "text": "x" * 2_000_000})
    database.tweets.insert_one({"_id": 2, "text": "\x01" * 300_000})
    database.tweets.insert_one({"_id": 3})
    changes = msgs(wait_for(broker.address, "tweets", 3))
    assert [change["document"] for change in changes] == [None, None, {"_id": 3}]
    assert changes[0]["omitted"] > 2_000_000
    assert changes[1]["omitted"] > 1_800_000
    assert "omitted" not in changes[2]


def test_a_change_that_the_broker_refuses_is_kept_and_the_rest_continues_without_a_gap(
    start: Start, broker: BrokerProcess, database: Mongo
) -> None:
    """Later changes may already be sent when one is refused. The broker refuses them, too, and they are sent again."""
    publisher = start("--event-bytes-max", "8MiB", "--heartbeat", "100ms")
    database.tweets.insert_one({"_id": "first"})
    wait_for(broker.address, "tweets", 1)
    database.tweets.insert_one({"_id": "alone", "text": "x" * 2_000_000})
    (kept,) = msgs(wait_for(broker.address, "rejected_changes", 1))
    assert "the broker refuses it: too_long" in kept["reason"]
    assert publisher.terminate() == 0
    database.tweets.insert_many([{"_id": 1}, {"_id": 2, "text": "x" * 2_000_000}, {"_id": 3}])
    publisher.start()
    _, kept = msgs(wait_for(broker.address, "rejected_changes", 2))
    assert "the broker refuses it: too_long" in kept["reason"]
    database.tweets.insert_one({"_id": "last"})
    events = wait_for(broker.address, "tweets", 4)
    assert [event.id for event in events] == ["first", "1", "3", "last"]
    assert [event.sequence for event in events] == [1, 2, 3, 4]


def test_a_change_above_16_mb_does_not_stop_the_stream(start: Start, broker: BrokerProcess, database: Mongo) -> None:
    start("--batch-size", "50")
    database.tweets.insert_many([{"_id": n} for n in range(5)])
    database.tweets.insert_one({"_id": "large", "text": "x" * 9_000_000, "more": "x" * 1_000_000})
    database.tweets.update_one({"_id": "large"}, {"$set": {"text": "y" * 9_000_000}})
    database.tweets.insert_many([{"_id": n} for n in range(5, 10)])
    events = wait_for(broker.address, "tweets", 12)
    assert [event.id for event in events] == [*"01234", "large", "large", *"56789"]
    assert [event.sequence for event in events] == list(range(1, 13))
    assert "omitted" in msgs(events)[6]


def test_a_quiet_collections_position_moves_on(start: Start, broker: BrokerProcess, database: Mongo) -> None:
    start("--heartbeat", "50ms")
    producer = f"cdc.{database.name}.tweets"
    with SyncClient(broker.address, name="test") as client:
        before = client.last("tweets", producer)
        assert before is not None
        database.other.insert_one({})
        until(lambda: client.last("tweets", producer) != before)
        after = client.last("tweets", producer)
    assert after is not None
    assert after.sequence is None


def test_start_at_reaches_back(start: Start, broker: BrokerProcess, database: Mongo) -> None:
    database.tweets.insert_many([{"_id": n} for n in range(3)])
    start("--start-at", "oldest")
    assert [event.id for event in wait_for(broker.address, "tweets", 3)] == ["0", "1", "2"]


def test_reset_forgets_the_position_and_keeps_the_sequence(
    start: Start, broker: BrokerProcess, database: Mongo
) -> None:
    first = start()
    database.tweets.insert_one({"_id": 1})
    wait_for(broker.address, "tweets", 1)
    assert first.terminate() == 0
    database.tweets.insert_one({"_id": 2})
    start("--reset")
    database.tweets.insert_one({"_id": 3})
    events = wait_for(broker.address, "tweets", 3)
    assert [(event.id, event.sequence) for event in events] == [("1", 1), ("tweets", 2), ("3", 3)]
    assert json.loads(bytes(events[1].msg))["gap"]["reason"] == "the position was reset (--reset)"


def status(mongo_url: str, broker: str, database: str, *flags: str) -> tuple[int, Any]:
    command = [sys.executable, "-m", "change_stream", "status", "--report", "json", *flags]
    where = ["--mongo-url", mongo_url, "--broker", broker, "--database", database]
    done = subprocess.run([*command, *where], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, json.loads(done.stdout)


def test_status_shows_where_the_topics_stand(
    start: Start, broker: BrokerProcess, database: Mongo, mongo_url: str
) -> None:
    start()
    database.tweets.insert_one({"_id": 1})
    wait_for(broker.address, "tweets", 1)
    code, standings = status(mongo_url, broker.address, database.name)
    assert code == 0
    tweets, users = standings
    assert (tweets["state"], tweets["sequence"]) == ("streaming", 1)
    assert 0 <= tweets["behind_s"] < 60
    assert tweets["headroom_s"] >= 0
    assert users["state"] == "not begun"


def test_another_cluster_is_refused(start: Start, broker: BrokerProcess, database: Mongo, mongo_url: str) -> None:
    publisher = start()
    assert publisher.terminate() == 0
    producer = f"cdc.{database.name}.tweets"
    with SyncClient(broker.address, name="test") as client:
        position = client.last("tweets", producer)
        assert position is not None
        version, _, rest = str(position.checkpoint).split("/", 2)
        _checkpoint(broker, f"{producer}@{position.epoch}", f"{version}/0123456789abcdef01234567/{rest}")
    publisher.launch()
    assert publisher.wait() == 2
    assert publisher.said("of another MongoDB cluster (0123456789abcdef01234567, this one is")
    assert status(mongo_url, broker.address, database.name)[0] == 1


def _checkpoint(broker: BrokerProcess, producer: str, text: str) -> None:
    import socket

    host, port = broker.address.split(":")
    with socket.create_connection((host, int(port))) as connection, connection.makefile("rwb") as lines:
        lines.readline()
        lines.write(f"checkpoint tweets {producer} {text}\n".encode())
        lines.flush()
        assert lines.readline().startswith(b"+OK checkpoint")


def test_metrics(start: Start, broker: BrokerProcess, database: Mongo) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    start("--metrics-port", str(port))
    database.tweets.insert_one({"_id": 1})
    database.tweets.delete_one({"_id": 1})
    wait_for(broker.address, "tweets", 2)

    def metrics() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as reply:
            return str(reply.read().decode())

    until(lambda: 'tweetwire_change_stream_confirmed_total{collection="tweets",topic="tweets"} 2.0' in metrics())
    text = metrics()
    assert 'tweetwire_change_stream_events_total{collection="tweets",operation="insert",topic="tweets"} 1.0' in text
    assert 'tweetwire_change_stream_events_total{collection="tweets",operation="delete",topic="tweets"} 1.0' in text
    assert 'tweetwire_change_stream_connected{collection="tweets",topic="tweets"} 1.0' in text
    assert 'tweetwire_change_stream_leading{collection="tweets",topic="tweets"} 1.0' in text
    headroom = next(line for line in text.splitlines() if line.startswith("tweetwire_change_stream_headroom_seconds{"))
    assert float(headroom.split()[-1]) >= 0


@pytest.mark.parametrize("missing", ["mongo", "broker"])
def test_a_missing_server_is_reported_in_one_sentence(
    tmp_path: Path, mongo_url: str, broker: BrokerProcess, missing: str
) -> None:
    mongo = "mongodb://127.0.0.1:1/?replicaSet=rs0" if missing == "mongo" else mongo_url
    address = "127.0.0.1:1" if missing == "broker" else broker.address
    publisher = Publisher(tmp_path / "publisher.log", mongo, address, "db", "--connect-timeout", "500ms")
    publisher.launch()
    assert publisher.wait() == 2
    log = publisher.log_path.read_text()
    assert log.count("\n") == 1
    assert "no MongoDB answers" in log if missing == "mongo" else "no broker answers" in log


def status_of(*flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "change_stream", "status", *flags]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_a_refused_login_ends_with_the_flags_to_see(
    tmp_path: Path, mongo_url: str, database: Mongo, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = tmp_path / "users.toml"
    users.write_text(entry("cdc", "c-secret"))
    monkeypatch.setenv("TWEETWIRE_CHANGE_STREAM_BROKER_USER", "cdc")
    monkeypatch.setenv("TWEETWIRE_CHANGE_STREAM_BROKER_TOKEN", "c-wrong")
    unknown = "the broker refuses topic tweets: unauthenticated no such name and token; see --broker-user"
    with BrokerProcess(tmp_path / "guarded", "--users", users) as guarded:
        one = ["--map", "tweets=tweets"]
        publisher = Publisher(tmp_path / "publisher.log", mongo_url, guarded.address, database.name, *one)
        publisher.launch()
        assert publisher.wait() == 2
        assert unknown in (log := publisher.log_path.read_text())
        assert "c-wrong" not in log
        where = ["--mongo-url", mongo_url, "--broker", guarded.address, "--database", database.name]
        done = status_of(*where, *one)
    assert done.returncode == 2, done.stderr
    assert "topic tweets: unauthenticated it has users; set --broker-user" in done.stderr.splitlines()[-1]


def test_over_tls_it_publishes_and_without_tls_it_ends_with_one_sentence(
    tmp_path: Path, mongo_url: str, database: Mongo, certificates: Path
) -> None:
    one = ["--map", "tweets=tweets"]
    files = TlsFiles(*(certificates / name for name in ("ca.pem", "client.pem", "client.key")))
    flags = files_of(certificates, "client", "--broker-")
    with BrokerProcess(tmp_path / "secure", *files_of(certificates, "server")) as secure:
        log = tmp_path / "publisher.log"
        with Publisher(log, mongo_url, secure.address, database.name, *one, *flags) as publisher:
            database.tweets.insert_one({"_id": "1"})
            with Login(secure.address, tls=files).sync_client("test") as client:
                until(lambda: [topic.next for topic in client.topics() if topic.topic == "tweets"] == [1])
            assert publisher.terminate() == 0
        where = ["--mongo-url", mongo_url, "--broker", secure.address, "--database", database.name]
        done = status_of(*where, *one)
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1].endswith("speaks TLS only, and this client does not; see --broker-tls")


def test_the_position_moves_past_what_others_write(start: Start, broker: BrokerProcess, database: Mongo) -> None:
    """After a restart, no change is read again, although much was written to other collections in the meantime."""
    start("--heartbeat", "100ms")
    for _ in range(10):
        database.foreign.insert_many([{"n": n} for n in range(1000)])
    last = database.client.admin.command("ping")["operationTime"]

    def is_past() -> bool:
        with SyncClient(broker.address, name="test") as client:
            position = client.last("tweets", f"cdc.{database.name}.tweets")
        assert position is not None
        seconds, increment = map(int, str(position.checkpoint).split("/")[3].split("."))
        return (seconds, increment) >= (last.time, last.inc)

    until(is_past)
    assert events_of(broker.address, "tweets") == []


def test_a_signal_ends_it_while_it_still_looks_for_a_server(tmp_path: Path, broker: BrokerProcess) -> None:
    publisher = Publisher(tmp_path / "publisher.log", "mongodb://127.0.0.1:1/?replicaSet=rs0", broker.address, "db")
    publisher.launch()
    until(lambda: _handles_sigterm(publisher.pid))
    assert publisher.terminate(10) == 0


def _handles_sigterm(pid: int) -> bool:
    """Return whether the process has set its own handler of SIGTERM, which it does once its loop runs."""
    caught = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
