"""A real broker with ``--tier``, and a broker restored from the bucket alone."""

import gzip
import json
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from broker.tiers.chain import read_newest
from broker.tiers.location import open_store
from broker.tiers.manifest import Manifest
from tests.support.filled_broker import ask_everything, fill_broker
from tests.support.processes import BrokerProcess
from tests.support.s3_servers import S3Server
from tests.support.waiting import until
from tweetwire import Event, Refusal, SyncClient
from tweetwire.runtime.launching import module_argv

FLAGS = ("--segment-bytes", "4KiB", "--reserve-bytes", "64KiB", "--tier-after", "200ms")


def tiered(folder: Path, url: str, *flags: object) -> BrokerProcess:
    return BrokerProcess(folder, *FLAGS, "--tier", url, *flags)


def identity(broker: BrokerProcess) -> str:
    with SyncClient(broker.address) as client:
        return client.broker_identity or ""


def newest(url: str, chain: str) -> Manifest | None:
    return read_newest(open_store(url), chain)


def restore(url: str, folder: Path, *words: object, status: int = 0) -> str:
    argv = module_argv("tweetwire", "restore", url, folder, *words)
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == status, done.stderr
    return done.stderr


def numbered(first: int, count: int, size: int = 100) -> list[Event]:
    return [
        Event(id=f"e{n}", msg={"n": n, "x": "x" * size}, producer="p", sequence=n) for n in range(first, first + count)
    ]


def publish(broker: BrokerProcess, first: int, count: int, topic: str = "t") -> None:
    """Publish numbered events in small batches, so that they fill several segments."""
    with SyncClient(broker.address) as client:
        for at in range(first, first + count, 20):
            client.publish_many(topic, numbered(at, min(20, first + count - at)))


def lines_of(broker: BrokerProcess, topic: str = "t") -> list[bytes]:
    lines: list[bytes] = []
    with SyncClient(broker.address) as client:
        at = 0
        while True:
            more, after = client.read_lines(topic, at, limit=100_000, bytes_max=16 << 20)
            if not more:
                return lines
            lines, at = lines + more, after


def until_uploaded(url: str, broker: BrokerProcess, topic: str = "t") -> Manifest:
    """Wait until the newest manifest has all events of a topic, and return it."""
    chain = identity(broker)
    with SyncClient(broker.address) as client:
        after = next(one.next for one in client.topics() if one.topic == topic)

    def is_there() -> Manifest | None:
        found = newest(url, chain)
        return found if found and topic in found.topics and found.topics[topic].next >= after else None

    found = until(is_there, 60)
    assert found is not None
    return found


@pytest.mark.parametrize("seed", range(2))
def test_a_broker_restored_from_the_bucket_answers_as_the_first_one_did(
    tmp_path: Path, tier_url: str, seed: int
) -> None:
    topics = ("orders", "tweets", "empty")
    with tiered(tmp_path / "first", tier_url) as broker:
        chain = identity(broker)
        with SyncClient(broker.address, name="test") as client:
            fill_broker(broker, client, Random(seed))
            client.command("create nothing age=1d")
            until(lambda: client.stats()["topics"]["orders"]["subscriptions"]["s"]["in_flight"] == 0)
            before = ask_everything(client, topics)
        assert broker.terminate() == 0
    shutil.rmtree(tmp_path / "first")
    assert " of 5 topics and 6 subscriptions to " in restore(tier_url, tmp_path / "second")
    with tiered(tmp_path / "second", tier_url) as broker, SyncClient(broker.address, name="test") as client:
        assert broker.logged("mended a log") == broker.logged("part of the state is damaged") == []
        assert ask_everything(client, topics) == before
        assert client.command("retain nothing").startswith("+OK retain nothing age=1d")
        assert client.broker_identity != chain
        for topic in ("orders", "tweets"):
            repeated = client.publish(topic, Event(id="again", msg={}, producer="p1", sequence=397))
            assert repeated.is_duplicate
        client.publish("orders", Event(id="new", msg={}))
        # The restored broker continues the chain of the first one.
        until(lambda: (after := newest(tier_url, chain)) is not None and after.topics["orders"].next == 401, 60)


def test_the_bucket_is_plain_gzip_that_other_programs_read(tmp_path: Path, file_url: str) -> None:
    with tiered(tmp_path / "first", file_url) as broker:
        publish(broker, 0, 2000)
        found = until_uploaded(file_url, broker)
        lines = lines_of(broker)
    store, chain = open_store(file_url), found.state.name.partition("/")[0] if found.state else ""
    read = b""
    for segment in found.topics["t"].segments:
        data = store.get(f"{chain}/topics/t/{segment.name}.jsonl.gz")
        assert data is not None
        assert len(data) == segment.stored
        text = gzip.decompress(data)
        assert len(text) == segment.bytes
        read += text
    assert read == b"".join(line + b"\n" for line in lines)
    assert [json.loads(line)["offset"] for line in read.splitlines()] == list(range(2000))


def test_a_killed_broker_loses_no_more_than_the_events_after_its_last_state(tmp_path: Path, file_url: str) -> None:
    with tiered(tmp_path / "first", file_url, "--tier-after", "1h") as broker:
        with SyncClient(broker.address) as client:
            client.publish_many("t", numbered(0, 500))
        broker.kill()
        # A start ends the open segments and uploads everything.
        broker.start()
        until_uploaded(file_url, broker)
        with SyncClient(broker.address) as client:
            client.publish("t", numbered(500, 1)[0])
            time.sleep(1.5)
        broker.kill()
    restore(file_url, tmp_path / "second")
    with BrokerProcess(tmp_path / "second") as broker, SyncClient(broker.address) as client:
        assert [event.decode()["n"] for event in client.read("t", 0, limit=1000).events] == list(range(500))
        position = client.last("t", "p")
        assert position is not None
        assert position.sequence == 499


def test_the_broker_that_was_replaced_refuses_publishes_and_uploads_nothing_more(tmp_path: Path, tier_url: str) -> None:
    with tiered(tmp_path / "first", tier_url) as broker:
        with SyncClient(broker.address) as client:
            client.publish_many("t", numbered(0, 100))
        until_uploaded(tier_url, broker)
        chain = identity(broker)
        restore(tier_url, tmp_path / "second")
        with SyncClient(broker.address) as client:
            until(lambda: _is_refused(broker.address), 30, pause_s=0.2)
            with pytest.raises(Refusal, match=r"^disk another broker has taken over"):
                client.publish("t", Event(id="late", msg=1))
            # Everything else continues, so that consumers can take what is there.
            assert client.read("t", 0, limit=1).events
        found = newest(tier_url, chain)
        assert found is not None
        with tiered(tmp_path / "second", tier_url) as successor:
            with SyncClient(successor.address) as client:
                client.publish("t", Event(id="new", msg=1))
            until_named(tier_url, chain, "t", 101)
            # Also after a restart, the first one stays fenced.
            broker.kill()
            broker.start()
            with SyncClient(broker.address) as client, pytest.raises(Refusal, match="another broker has taken over"):
                client.publish("t", Event(id="late", msg=1))
            assert broker.logged("another broker has taken over the tier; nothing is uploaded any more")


def until_named(url: str, chain: str, topic: str, after: int) -> None:
    def is_named() -> bool:
        found = newest(url, chain)
        return found is not None and topic in found.topics and found.topics[topic].next >= after

    until(is_named, 60)


def test_with_a_warning_alone_the_replaced_broker_continues(tmp_path: Path, file_url: str) -> None:
    with tiered(tmp_path / "first", file_url, "--tier-fence", "warn") as broker:
        with SyncClient(broker.address) as client:
            client.publish_many("t", numbered(0, 100))
        until_uploaded(file_url, broker)
        restore(file_url, tmp_path / "second")
        until(
            lambda: broker.logged("another broker has taken over the tier; nothing is uploaded any more"),
            30,
            pause_s=0.2,
        )
        with SyncClient(broker.address) as client:
            client.publish("t", Event(id="late", msg=1))


@pytest.mark.parametrize("is_running", [True, False])
def test_of_two_copies_of_a_folder_one_wins(tmp_path: Path, file_url: str, is_running: bool) -> None:
    with tiered(tmp_path / "first", file_url) as first:
        with SyncClient(first.address) as client:
            client.publish_many("t", numbered(0, 100))
        until_uploaded(file_url, first)
        chain = identity(first)
        first.process.send_signal(signal.SIGSTOP)
        shutil.copytree(tmp_path / "first", tmp_path / "copy")
        first.process.send_signal(signal.SIGCONT)
        if not is_running:
            first.terminate()
            first.start()
        # The first one continues, so the copy is older than the bucket.
        for at in range(100, 104):
            with SyncClient(first.address) as client:
                client.publish("t", numbered(at, 1)[0])
            until_named(file_url, chain, "t", at + 1)
        with tiered(tmp_path / "copy", file_url) as copy:
            assert _is_refused(copy.address)
        with SyncClient(first.address) as client:
            client.publish("t", Event(id="mine", msg=1))
        until_named(file_url, chain, "t", 105)


def test_two_copies_that_start_at_once_never_both_win(tmp_path: Path, tier_url: str) -> None:
    with tiered(tmp_path / "a", tier_url) as broker:
        with SyncClient(broker.address) as client:
            client.publish_many("t", numbered(0, 50))
        chain = identity(broker)
        assert broker.terminate() == 0
        # The address of the first start must not be taken for that of the next one.
        (tmp_path / "a.log").unlink()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    pair = [tiered(tmp_path / name, tier_url) for name in "ab"]
    try:
        for one in pair:
            one.launch()
        until(lambda: all(one.said("broker ready") for one in pair), 60)
        addresses = [_address(one) for one in pair]

        def outcomes() -> list[bool]:
            return [_is_refused(address) for address in addresses]

        found = until(lambda: outcomes() if sum(outcomes()) == 1 else None, 40, pause_s=0.3)
        assert found is not None
        winner = found.index(False)
        written = newest(tier_url, chain)
        assert written is not None
        record = json.loads((tmp_path / "ab"[winner] / "tiers" / "CHAIN").read_bytes()[9:])
        assert written.writer == record["writers"][-1]
    finally:
        for one in pair:
            one.kill()


def _address(broker: BrokerProcess) -> str:
    address: str = re.findall(r"broker ready on ([0-9.:]+)", broker.log())[-1]
    return address


def _is_refused(address: str) -> bool:
    with SyncClient(address) as client:
        try:
            client.publish("t", Event(id="x", msg=1))
        except Refusal:
            return True
    return False


def test_topics_that_are_dropped_and_made_again_do_not_inherit_anything(tmp_path: Path, file_url: str) -> None:
    with tiered(tmp_path / "first", file_url) as broker:
        with SyncClient(broker.address) as client:
            client.publish_many("t", numbered(0, 300))
            client.command("retain t age=9d")
            client.publish_many("gone", numbered(0, 300))
        until_uploaded(file_url, broker)
        with SyncClient(broker.address) as client:
            client.command("drop t")
            client.command("drop gone")
            client.publish_many("t", numbered(7000, 5))
        lines = lines_of(broker)
        assert broker.terminate() == 0
    restore(file_url, tmp_path / "second")
    with BrokerProcess(tmp_path / "second") as broker, SyncClient(broker.address) as client:
        assert lines_of(broker) == lines
        assert "gone" not in {one.topic for one in client.topics()}
        assert client.command("retain t").startswith("+OK retain t age=none")


def test_events_removed_by_retention_or_a_purge_leave_the_manifest(tmp_path: Path, file_url: str) -> None:
    with tiered(tmp_path / "first", file_url) as broker:
        publish(broker, 0, 1000)
        publish(broker, 0, 1000, "u")
        until_uploaded(file_url, broker, "u")
        chain = identity(broker)
        with SyncClient(broker.address) as client:
            client.command("retain t bytes=10KiB")
            client.command("purge u before=900")

            def kept() -> dict[str, int]:
                found = newest(file_url, chain)
                return (
                    {}
                    if found is None
                    else {name: one.segments[0].first for name, one in found.topics.items() if one.segments}
                )

            until(lambda: kept().get("t", 0) > 800 and kept().get("u", 0) > 800, 60, kept)
            firsts = {one.topic: one.earliest for one in client.topics()}
        assert broker.terminate() == 0
    restore(file_url, tmp_path / "second")
    with BrokerProcess(tmp_path / "second") as broker, SyncClient(broker.address) as client:
        after = {one.topic: (one.earliest, one.next) for one in client.topics()}
        assert after["u"] == (900, 1000)
        assert after["t"] == (firsts["t"], 1000)
        position = client.last("t", "p")
        assert position is not None
        assert position.sequence == 999


def test_a_store_that_goes_away_stops_neither_publishes_nor_a_start(
    tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.variables.items():
        monkeypatch.setenv(name, value)
    url = f"s3://bucket/{tmp_path.name}"
    with tiered(tmp_path / "first", url) as broker:
        with SyncClient(broker.address) as client:
            client.publish_many("t", numbered(0, 500))
        until_uploaded(url, broker)
        s3_server.kill()
        with SyncClient(broker.address) as client:
            client.publish_many("t", numbered(500, 500))
        until(lambda: broker.logged("cannot upload to the tier; retrying"), 60)
        began = time.monotonic()
        broker.stop(30)
        assert time.monotonic() - began < 15
        broker.start()
        with SyncClient(broker.address) as client:
            client.publish_many("t", numbered(1000, 500))
        s3_server.start()
        until_uploaded(url, broker)
        lines = lines_of(broker)
        # The outage has not cut the log into a segment for each retry.
        assert broker.terminate() == 0
    restore(url, tmp_path / "second")
    with BrokerProcess(tmp_path / "second") as broker:
        assert lines_of(broker) == lines
        assert len(lines) == 1500


def test_a_folder_without_a_tier_can_get_one_and_be_used_without_it_again(tmp_path: Path, file_url: str) -> None:
    with BrokerProcess(tmp_path / "first", "--segment-bytes", "4KiB") as broker, SyncClient(broker.address) as client:
        client.publish_many("t", numbered(0, 500))
    with tiered(tmp_path / "first", file_url) as broker:
        until_uploaded(file_url, broker)
        assert broker.terminate() == 0
    with BrokerProcess(tmp_path / "first") as broker, SyncClient(broker.address) as client:
        client.publish_many("t", numbered(500, 100))
    with tiered(tmp_path / "first", file_url) as broker:
        until_uploaded(file_url, broker)
        lines = lines_of(broker)
        assert broker.terminate() == 0
    restore(file_url, tmp_path / "second")
    with BrokerProcess(tmp_path / "second") as broker:
        assert lines_of(broker) == lines


def test_damage_in_the_bucket_is_named_and_the_rest_is_restored(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/bucket"
    with tiered(tmp_path / "first", url) as broker:
        publish(broker, 0, 1000)
        segments = until_uploaded(url, broker).topics["t"].segments
        lines = lines_of(broker)
        assert broker.terminate() == 0
    paths = {n: next((tmp_path / "bucket").glob(f"*/topics/t/{one.name}.jsonl.gz")) for n, one in enumerate(segments)}
    paths[1].unlink()
    damaged = bytearray(paths[3].read_bytes())
    damaged[len(damaged) // 2] ^= 4
    paths[3].write_bytes(damaged)
    said = restore(url, tmp_path / "second", status=1)
    for n in (1, 3):
        assert f"@{segments[n].first} to @{segments[n].next - 1} of t are lost: " in said
    lost = {offset for n in (1, 3) for offset in range(segments[n].first, segments[n].next)}
    with BrokerProcess(tmp_path / "second") as broker:
        assert lines_of(broker) == [line for offset, line in enumerate(lines) if offset not in lost]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "there is no broker's data at"),
        (("--chain", "x"), "there is no manifest of x at"),
    ],
)
def test_an_empty_bucket_is_refused_and_leaves_an_empty_folder(
    tmp_path: Path, file_url: str, words: tuple[Any, ...], sentence: str
) -> None:
    assert sentence in restore(file_url, tmp_path / "second", *words, status=2)
    assert [path.name for path in (tmp_path / "second").iterdir()] == ["LOCK"]


def test_two_brokers_in_one_place_are_told_apart(tmp_path: Path, tier_url: str) -> None:
    chains = []
    for name in ("a", "b"):
        with tiered(tmp_path / name, tier_url) as broker:
            chains.append(identity(broker))
            with SyncClient(broker.address) as client:
                client.publish(name, Event(id="x", msg=1))
            assert broker.terminate() == 0
    said = restore(tier_url, tmp_path / "c", status=2)
    assert "2 brokers have uploaded to" in said
    assert all(chain in said for chain in chains)
    restore(tier_url, tmp_path / "c", "--chain", chains[1])
    with BrokerProcess(tmp_path / "c") as broker, SyncClient(broker.address) as client:
        assert "b" in {one.topic for one in client.topics()}


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--tier", "ftp://x"), "must begin with s3://"),
        (("--tier", "s3://bucket/x", "--durability", "memory"), "--tier needs logs on the disk"),
        (("--tier", "s3://b/x", "--tier-after", "0s"), "--tier-after"),
        (("--tier", "s3://b/x", "--tier-verify", "never"), "--tier-verify"),
    ],
)
def test_wrong_flags_are_refused_with_one_sentence(tmp_path: Path, flags: tuple[str, ...], sentence: str) -> None:
    broker = BrokerProcess(tmp_path / "b", *flags)
    broker.launch()
    assert broker.wait() == 2
    assert sentence in broker.log()


@pytest.mark.parametrize(
    ("bucket", "key", "sentence"),
    [("missing", "", "there is no bucket for s3://missing/x; make it"), ("bucket", "wrong", "refuses")],
)
def test_a_broker_does_not_start_with_a_bucket_that_it_cannot_use(
    tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, bucket: str, key: str, sentence: str
) -> None:
    for name, value in s3_server.variables.items():
        monkeypatch.setenv(name, value)
    if key:
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key)
    broker = BrokerProcess(tmp_path / "b", "--tier", f"s3://{bucket}/x")
    broker.launch()
    assert broker.wait() == 2
    assert sentence in broker.log()
    assert "Traceback" not in broker.log()


def test_a_store_that_accepts_and_never_answers_delays_a_start_and_a_stop_only_for_seconds(
    tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.variables.items():
        monkeypatch.setenv(name, value)
    url = f"s3://bucket/{tmp_path.name}"
    with tiered(tmp_path / "b", url) as broker:
        chain = identity(broker)
        publish(broker, 0, 100)
        s3_server.process.send_signal(signal.SIGSTOP)
        try:
            publish(broker, 100, 100)
            time.sleep(2)
            began = time.monotonic()
            broker.stop(40)
            assert time.monotonic() - began < 30
            broker.start()
            publish(broker, 200, 100)
        finally:
            s3_server.process.send_signal(signal.SIGCONT)
        until_named(url, chain, "t", 300)
        assert not broker.logged("another broker has taken over the tier; nothing is uploaded any more")


def test_a_folder_of_the_release_before_can_be_restored_from_its_tier(tmp_path: Path, file_url: str) -> None:
    shutil.copytree(Path(__file__).parents[1] / "older/folder", tmp_path / "first")
    with tiered(tmp_path / "first", file_url) as broker:
        until_uploaded(file_url, broker)
        lines = lines_of(broker)
        with SyncClient(broker.address) as client:
            before = client.stats()["topics"]["t"]["subscriptions"]["s"]
        assert broker.terminate() == 0
    restore(file_url, tmp_path / "second")
    with BrokerProcess(tmp_path / "second") as broker, SyncClient(broker.address) as client:
        assert len(lines) == 21
        assert lines_of(broker) == lines
        after = client.stats()["topics"]["t"]["subscriptions"]["s"]
        assert [after[name] for name in ("pending", "dead")] == [before[name] for name in ("pending", "dead")]
        assert client.publish("t", Event(id="p1", msg=1, producer="pr", sequence=5)).is_duplicate


def test_after_a_restore_no_epoch_of_a_claim_is_given_twice(tmp_path: Path, file_url: str) -> None:
    with tiered(tmp_path / "first", file_url, "--tier-after", "1h") as broker:
        with SyncClient(broker.address) as client:
            client.publish("t", Event(id="1", msg=1))
            client.claim("t", "p")
        # The stop uploads the state with the first epoch, and the start uploads it again.
        assert broker.terminate() == 0
        broker.start()
        until_uploaded(file_url, broker)
        with SyncClient(broker.address) as client:
            lost = client.claim("t", "p")
        broker.kill()
    restore(file_url, tmp_path / "second")
    with BrokerProcess(tmp_path / "second") as broker, SyncClient(broker.address) as client:
        assert client.claim("t", "p") > lost
        with pytest.raises(Refusal, match="fenced"):
            client.publish("t", Event(id="late", msg=1, producer="p", sequence=5), epoch=lost)
