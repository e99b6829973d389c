"""A broker under load is killed at random moments. The bucket alone then has all events up to its last state.

Some rounds continue on the killed folder, others on a new folder that was restored from the bucket. A restore is killed, too.
"""

import os
import random
import shutil
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from broker.log import CommitLog
from broker.tiers.chain import find_chain, read_newest
from broker.tiers.location import open_store
from broker.tiers.restoring import restore_tier
from tests.support.processes import BrokerProcess
from tweetwire import BrokerError, Event, SyncClient
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.launching import ProgramProcess, module_argv

KILLS = int(os.environ.get("TWEETWIRE_TEST_TIER_KILLS", "4"))
BUNDLE = 10
"""How many kills one test has, so that each ends within its time."""
MIN = 4
BATCH = 20
FLAGS = ("--segment-bytes", "16KiB", "--reserve-bytes", "64KiB", "--tier-after", "100ms", "--topic", "t")


class Publisher:
    """Publishes numbered events until stopped, and keeps the time (ms) at which each was confirmed, by its number."""

    def __init__(self, address: str) -> None:
        self.confirmed_ms: dict[int, int] = {}
        self._address = address
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._publish)
        self._thread.start()

    def stop(self) -> None:
        self._is_stopped.set()
        self._thread.join()

    def _publish(self) -> None:
        with suppress(BrokerError), SyncClient(self._address, name="writer", reconnect_s=0) as client:
            known = client.last("t", "p")
            first = 0 if known is None or known.sequence is None else known.sequence + 1
            while not self._is_stopped.is_set():
                some = range(first, first + BATCH)
                client.publish_many("t", [Event(id=str(n), msg="x" * 200, producer="p", sequence=n) for n in some])
                now_ms = time.time_ns() // 1_000_000
                self.confirmed_ms |= dict.fromkeys(some, now_ms)
                first += BATCH
                time.sleep(0.002)


def lines_in(topic: Path, scratch: Path) -> list[bytes]:
    """Return the lines of a topic's folder without changing it. There are none if the topic was not made yet."""
    if not topic.exists():
        return []
    shutil.copytree(topic, scratch)
    log = CommitLog(scratch)
    try:
        lines: list[bytes] = []
        at = log.earliest
        while at < log.next:
            more, at, damaged = log.read(at, 10_000, 16 << 20)
            assert not damaged
            lines += more
        return lines
    finally:
        log.close()
        shutil.rmtree(scratch)


def check_bucket(folder: Path, bucket: Path, confirmed_ms: dict[int, int], scratch: Path) -> int:
    """Compare what a copy of the bucket restores with the folder and the confirmations. Returns the number of events."""
    copied = scratch / "copied"
    shutil.copytree(bucket, copied)
    try:
        store = open_store(f"file://{copied}")
        newest = read_newest(store, find_chain(store))
        if newest is None or newest.state is None:
            return 0
        done = restore_tier(store, None, scratch / "restored", lambda _: None)
        assert done.damage == []
        found = lines_in(scratch / "restored" / "topics" / "t", scratch / "a")
        local = lines_in(folder / "topics" / "t", scratch / "b")
        assert found == local[: len(found)]
        taken_ms = newest.state.taken_ms
        late = [number for number, at_ms in confirmed_ms.items() if at_ms < taken_ms and number >= len(found)]
        assert late == []
        return len(found)
    finally:
        shutil.rmtree(copied)
        shutil.rmtree(scratch / "restored", ignore_errors=True)


def restore_with_kills(bucket: Path, folder: Path, dice: random.Random) -> None:
    """Restore a folder by processes that are killed at random moments, until one of them comes to its end."""
    for number in range(20):
        log = folder.with_suffix(f".restore-{number}")
        process = ProgramProcess(module_argv("tweetwire", "restore", f"file://{bucket}", folder), log)
        process.launch()
        if number < 2:
            time.sleep(dice.uniform(0.1, 1.2))
            process.kill()
        elif process.wait() == 0:
            return
        else:
            # A kill after the last step leaves a whole folder.
            assert "is not empty" in process.log(), process.log()
            return


@pytest.mark.parametrize("first", range(0, KILLS, BUNDLE))
def test_kills_at_random_moments_lose_nothing_beyond_the_last_state(tmp_path: Path, first: int) -> None:
    dice = random.Random(first)
    bucket, scratch = tmp_path / "bucket", tmp_path / "scratch"
    scratch.mkdir()
    folder, covered, restores = tmp_path / "b0", 0, 0
    confirmed_ms: dict[int, int] = {}
    for kill in range(max(MIN, min(BUNDLE, KILLS - first))):
        with BrokerProcess(folder, *FLAGS, "--tier", f"file://{bucket}") as broker:
            publisher = Publisher(broker.address)
            time.sleep(dice.uniform(0.2, 2.5))
            broker.kill()
            publisher.stop()
        assert not broker.logged("another broker has taken over the tier; nothing is uploaded any more")
        confirmed_ms |= publisher.confirmed_ms
        with suppress(StartError):
            covered = max(covered, check_bucket(folder, bucket, confirmed_ms, scratch))
        if kill % 2 and covered:
            successor = tmp_path / f"b{kill}"
            restore_with_kills(bucket, successor, dice)
            restores += 1
            kept = lines_in(successor / "topics" / "t", scratch / "c")
            local = lines_in(folder / "topics" / "t", scratch / "d")
            assert kept == local[: len(kept)]
            confirmed_ms = {number: at_ms for number, at_ms in confirmed_ms.items() if number < len(kept)}
            shutil.rmtree(folder)
            folder = successor
    assert covered > 0
    assert restores > 0
