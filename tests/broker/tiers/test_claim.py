"""A folder claims its chain at a start. It must not lose it to itself, and must not win it with fewer events."""

import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import anyio
import pytest

from broker.log import CommitLog
from broker.server import Server
from broker.tiers import service
from broker.tiers.chain import Chain
from broker.tiers.chain_file import ChainFile, read_chain_file, write_chain_file
from broker.tiers.claim import claim_chain
from broker.tiers.errors import Fenced, StoreAway
from broker.tiers.location import open_store
from broker.tiers.manifest import FORMAT, Manifest, NamedTopic
from broker.tiers.options import TierOptions
from broker.tiers.service import Tier
from broker.tiers.store import Store, StoredObject
from tests.broker.tiers.test_steps import LIMITS
from tests.support.waiting import until_async


class ReadOnlyStore(Store):
    """A store that answers reads, and fails writes while `is_failing`."""

    is_failing = True

    def __init__(self, inner: Store) -> None:
        self.__dict__.update(inner.__dict__)

    def create(self, name: str, data: bytes) -> bool:
        if self.is_failing:
            raise StoreAway("it is full")
        return super().create(name, data)


def test_a_store_that_refuses_writes_for_long_does_not_fence_the_broker(store: Store, tmp_path: Path) -> None:
    claim_chain(store, tmp_path, "c", {})
    full = ReadOnlyStore(store)
    for _ in range(40):
        with pytest.raises(StoreAway):
            claim_chain(full, tmp_path, "c", {})
    full.is_failing = False
    assert claim_chain(full, tmp_path, "c", {}).newest.number == 2


def test_a_folder_can_use_another_place_for_a_while(tmp_path: Path) -> None:
    first, second = (open_store(f"file://{tmp_path}/{name}") for name in ("one", "two"))
    folder = tmp_path / "folder"
    for store, starts in ((first, 5), (second, 2), (first, 3), (second, 1)):
        for _ in range(starts):
            claim_chain(store, folder, "c", {})


def test_a_start_lists_only_the_manifests_that_may_be_new(store: Store, tmp_path: Path) -> None:
    chain = claim_chain(store, tmp_path, "c", {}).chain
    for _ in range(30):
        chain.append(lambda number: Manifest(FORMAT, number, chain.writer, 1, "", 0, None, {}))
    listed: list[StoredObject] = []

    class Counting(Store):
        def __init__(self) -> None:
            self.__dict__.update(store.__dict__)

        def list_objects(self, folder: str, *, after: str | None = None) -> Iterator[StoredObject]:
            for found in super().list_objects(folder, after=after):
                listed.append(found)
                yield found

    assert claim_chain(Counting(), tmp_path, "c", {}).newest.number == 32
    assert len(listed) == 1
    # The bucket may be an older copy of itself, or another one.
    write_chain_file(tmp_path, ChainFile("c", [claim_chain(store, tmp_path, "c", {}).chain.writer], 500))
    assert claim_chain(Counting(), tmp_path, "c", {}).newest.number == 34


@pytest.mark.parametrize("is_same_log", [True, False])
def test_a_copy_with_an_empty_topic_loses_and_a_topic_that_was_made_again_wins(
    store: Store, tmp_path: Path, *, is_same_log: bool
) -> None:
    log = CommitLog(tmp_path / "topics" / "t")
    chain = claim_chain(store, tmp_path, "c", {"t": log}).chain
    copied = read_chain_file(tmp_path)
    assert copied is not None
    # The original continues by one manifest, after its folder was copied.
    topics = {"t": NamedTopic(500, "", [], log.id if is_same_log else "0" * 16)}
    chain.append(lambda number: Manifest(FORMAT, number, chain.writer, 1, "", 0, None, topics))
    write_chain_file(tmp_path, copied)
    try:
        if is_same_log:
            with pytest.raises(Fenced):
                claim_chain(store, tmp_path, "c", {"t": log})
        else:
            claim_chain(store, tmp_path, "c", {"t": log})
    finally:
        log.close()


class SlowStore(Store):
    """A store whose next reply takes until `answer` is set."""

    def __init__(self, inner: Store) -> None:
        self.__dict__.update(inner.__dict__)
        self.answer = Event()
        self.gets = 0

    def get(self, name: str) -> bytes | None:
        if "/manifest/" not in name:
            return super().get(name)
        found = super().get(name)
        self.gets += 1
        if self.gets == 1:
            self.answer.wait(20)
        return found


@pytest.mark.anyio
async def test_a_claim_that_was_slow_at_the_start_does_not_fence_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "START_S", 0.2)
    inner = open_store(f"file://{tmp_path}/bucket")
    slow = SlowStore(inner)
    server = Server(tmp_path / "b", "synced", limits=LIMITS)
    tier = Tier(server, TierOptions(""), slow)
    async with server.open(["t"]), tier.open():
        # Long enough for the second claim to begin
        await anyio.sleep(3)
        assert slow.gets == 1
        slow.answer.set()
        await until_async(lambda: tier.figures.covered_ms > 0 or tier.figures.is_fenced, 20)
        assert not tier.figures.is_fenced


class AwayStore(Store):
    """A store that does not answer."""

    def __init__(self, inner: Store) -> None:
        self.__dict__.update(inner.__dict__)

    def create(self, name: str, data: bytes) -> bool:
        raise StoreAway("it is away")


@pytest.mark.anyio
@pytest.mark.parametrize("is_running", [True, False])
async def test_a_fenced_broker_stays_fenced_if_it_starts_while_the_store_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_running: bool
) -> None:
    monkeypatch.setattr("broker.tiers.uploader.CHECK_S", 0.05)
    store = open_store(f"file://{tmp_path}/bucket")

    def open_tier(some: Store) -> tuple[Server, Tier]:
        server = Server(tmp_path / "b", "synced", limits=LIMITS)
        return server, Tier(server, TierOptions(""), some)

    def take_over() -> None:
        record = read_chain_file(tmp_path / "b")
        assert record is not None
        other = Chain(store, record.chain, "other", lambda _: None)
        other.number = record.number
        other.append(lambda number: Manifest(FORMAT, number, "other", 9, "", time.time_ns(), None, {}))

    server, tier = open_tier(store)
    async with server.open(["t"]), tier.open():
        await until_async(lambda: tier.figures.manifests > 0, 20)
        if is_running:
            take_over()
            await until_async(lambda: tier.figures.is_fenced, 20)
    if not is_running:
        take_over()
        server, tier = open_tier(store)
        async with server.open(["t"]), tier.open():
            assert tier.figures.is_fenced
    server, tier = open_tier(AwayStore(store))
    async with server.open(["t"]), tier.open():
        assert tier.figures.is_fenced
        assert "another broker has taken over" in server.broker._topics.fence
