"""Each store keeps one contract: a name is created once, objects are whole, and what is missing is named as such."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event, Thread, current_thread

import pytest
from obstore.store import MemoryStore

from broker.tiers.errors import ObjectDamaged, StoreAway, StoreUnusable
from broker.tiers.location import open_store
from broker.tiers.probe import probe_store
from broker.tiers.store import Store
from tests.support.s3_servers import BUCKET, S3Server
from tests.support.waiting import until
from tweetwire.protocol.errors import StartError


def test_an_object_is_created_once_and_keeps_its_first_content(store: Store) -> None:
    assert store.create("a/b.json", b"first")
    assert not store.create("a/b.json", b"second")
    assert store.get("a/b.json") == b"first"


def test_of_eight_creators_one_wins_each_race(store: Store) -> None:
    with ThreadPoolExecutor(8) as threads:
        for race in range(20):
            name = f"race/{race}"
            won = list(threads.map(partial(store.create, name), (b"%d" % n for n in range(8))))
            assert sum(won) == 1, race
            assert store.get(name) == b"%d" % won.index(True)


def test_a_put_replaces_an_object_and_ranges_of_it_can_be_read(store: Store) -> None:
    data = bytes(range(256)) * 40_000
    store.put("t/x", b"old")
    store.put("t/x", data)
    assert store.size_of("t/x") == len(data)
    assert store.get("t/x") == data
    assert store.get_range("t/x", 1000, 70_000) == data[1000:70_000]


def test_a_missing_object_is_not_a_failure_of_the_store(store: Store) -> None:
    assert store.get("none") is None
    assert store.size_of("none") is None
    with pytest.raises(ObjectDamaged, match="none is missing"):
        store.get_range("none", 0, 4)
    store.delete(["none", "none/too"])
    assert list(store.list_objects("none")) == []
    assert store.folders("none") == []


def test_a_listing_has_every_object_below_a_folder(store: Store) -> None:
    names = {f"id/manifest/{n:03d}" for n in range(1050)}
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda name: store.put(name, b"x"), names))
    store.put("other/manifest/1", b"yy")
    assert {found.name for found in store.list_objects("id/manifest")} == names
    assert [(found.name, found.size) for found in store.list_objects("other")] == [("other/manifest/1", 2)]
    assert store.folders() == ["id", "other"]
    store.delete(sorted(names)[:1000])
    assert {found.name for found in store.list_objects("id")} == set(sorted(names)[1000:])


def test_the_probe_accepts_each_of_these_stores_and_leaves_nothing(store: Store) -> None:
    probe_store(store, "chain")
    assert list(store.list_objects("chain")) == []


class ForgetfulStore(Store):
    """A store that ignores the condition of a create, as some servers do that speak S3."""

    def create(self, name: str, data: bytes) -> bool:
        self.put(name, data)
        return True


class HalfForgetfulStore(Store):
    """A store that lets a second creator win, but no third one."""

    wins = 2

    def create(self, name: str, data: bytes) -> bool:
        if self.wins == 0:
            return False
        self.wins -= 1
        self.put(name, data)
        return True


@pytest.mark.parametrize("kind", [ForgetfulStore, HalfForgetfulStore])
def test_a_store_that_lets_several_creators_win_is_refused_with_one_sentence(kind: type[Store]) -> None:
    with pytest.raises(StoreUnusable, match=r"memory let \d of 9 writers create the same object.*conditional writes"):
        probe_store(kind(MemoryStore(), "memory"), "chain")


class LossyStore(Store):
    """A store that loses the replies of the first creates, and whose client then finds its own object."""

    def __init__(self, lost: int) -> None:
        super().__init__(MemoryStore(), "memory")
        self._lost = lost

    def create(self, name: str, data: bytes) -> bool:
        is_made = super().create(name, data)
        if is_made and self._lost:
            self._lost -= 1
            return False
        return is_made


def test_a_winner_whose_reply_was_lost_does_not_make_the_store_unusable() -> None:
    probe_store(LossyStore(2), "chain")
    with pytest.raises(StoreAway, match="refused all writers"):
        probe_store(LossyStore(99), "chain")


class HangingStore(Store):
    """A store that does not answer."""

    def __init__(self) -> None:
        super().__init__(MemoryStore(), "memory")
        self.creating: list[Thread] = []
        self.answer = Event()

    def create(self, name: str, data: bytes) -> bool:
        self.creating.append(current_thread())
        self.answer.wait()
        return super().create(name, data)


def test_the_end_of_the_process_does_not_wait_for_the_probe_of_a_store_that_hangs() -> None:
    store = HangingStore()
    probing = Thread(target=probe_store, args=(store, "chain"), daemon=True)
    probing.start()
    until(lambda: len(store.creating) == 8, 10)
    assert all(thread.daemon for thread in store.creating)
    store.answer.set()
    probing.join()


def test_other_users_cannot_read_the_folder_of_a_tier(tmp_path: Path) -> None:
    open_store(f"file://{tmp_path}/bucket/a").put("x/y", b"x")
    assert (tmp_path / "bucket" / "a").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("bucket", "must begin with s3://"),
        ("http://host/x", "must begin with s3://"),
        ("memory:///x", "must begin with s3://"),
        ("s3:///prefix", "the name of the bucket is missing"),
        ("s3://key:secret@bucket/x", "must not hold credentials"),
        ("s3://bucket/x?region=y", "must not hold credentials"),
        ("s3://key:secret@[bucket", "not a URL"),
        ("file://host/x", "file:///folder"),
        ("file:///", "file:///folder"),
    ],
)
def test_an_unusable_url_is_refused_with_one_sentence(url: str, sentence: str) -> None:
    with pytest.raises(StartError, match=sentence) as raised:
        open_store(url)
    assert "secret" not in str(raised.value)


def test_a_server_that_refuses_the_credentials_is_unusable_and_one_that_is_gone_is_away(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(StoreUnusable, match=f"s3://{BUCKET}/p refuses x"):
        open_store(f"s3://{BUCKET}/p").put("x", b"x")
    monkeypatch.setenv("AWS_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(StoreAway, match="does not answer"):
        open_store(f"s3://{BUCKET}/p").put("x", b"x")


def test_a_bucket_that_does_not_exist_is_named(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3_server.variables.items():
        monkeypatch.setenv(name, value)
    store = open_store("s3://missing/p")
    requests = (
        lambda: store.create("x", b"x"),
        lambda: store.put("x", b"x"),
        lambda: list(store.list_objects("x")),
        store.folders,
    )
    for request in requests:
        with pytest.raises(StoreUnusable, match="there is no bucket for s3://missing/p"):
            request()
