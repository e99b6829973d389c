"""The fence: of several writers of one chain, one wins each number, also if replies are lost and listings are stale."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier

import pytest

from broker.tiers.chain import Chain, read_newest
from broker.tiers.errors import Fenced, ObjectDamaged, StoreAway
from broker.tiers.manifest import FORMAT, Manifest
from broker.tiers.object_names import manifest_object
from broker.tiers.store import Store, StoredObject

WRITERS = 8
RACES = 15


def manifest(writer: str, number: int, at: int = 0) -> Manifest:
    return Manifest(FORMAT, number, writer, 1, "test", at, None, {})


def chain(store: Store, writer: str, noted: list[int] | None = None) -> Chain:
    made = Chain(store, "c", writer, (noted if noted is not None else []).append)
    made.begin(read_newest(store, "c"))
    return made


def test_a_chain_counts_up_and_a_new_writer_continues_it(store: Store) -> None:
    assert read_newest(store, "c") is None
    noted: list[int] = []
    first = chain(store, "a", noted)
    for number in (1, 2, 3):
        assert first.append(lambda n: manifest("a", n)).number == number
    assert noted == [0, 1, 2, 3]
    assert read_newest(store, "c") == manifest("a", 3)
    second = chain(store, "b")
    assert (second.number, second.epoch) == (3, 2)
    assert second.append(lambda n: manifest("b", n)).number == 4
    with pytest.raises(Fenced, match=r"^b$"):
        first.append(lambda n: manifest("a", n))
    with pytest.raises(Fenced):
        first.check()
    second.check()


def test_of_many_writers_one_wins_each_number(store: Store) -> None:
    won: dict[int, str] = {}
    with ThreadPoolExecutor(WRITERS) as threads:
        for _ in range(RACES):
            racing = [chain(store, f"w{n}") for n in range(WRITERS)]
            start = Barrier(WRITERS)

            def race(one: Chain, start: Barrier = start) -> int | None:
                start.wait()
                try:
                    return one.append(partial(manifest, one.writer)).number
                except Fenced:
                    return None

            for one, number in zip(racing, threads.map(race, racing), strict=True):
                if number is not None:
                    assert number not in won
                    won[number] = one.writer
    assert sorted(won) == list(range(1, RACES + 1))
    for number, writer in won.items():
        data = store.get(manifest_object("c", number))
        assert data is not None
        assert f'"writer":"{writer}"'.encode() in data


class LossyStore(Store):
    """A store that carries out the next creates and loses their replies."""

    def __init__(self, inner: Store) -> None:
        self.__dict__.update(inner.__dict__)
        self.lost = 0

    def create(self, name: str, data: bytes) -> bool:
        done = super().create(name, data)
        if self.lost:
            self.lost -= 1
            raise StoreAway("the reply was lost")
        return done


def test_a_manifest_whose_reply_was_lost_counts_as_written(store: Store) -> None:
    lossy = LossyStore(store)
    noted: list[int] = []
    one = chain(lossy, "a", noted)
    one.append(lambda n: manifest("a", n))
    lossy.lost = 1
    with pytest.raises(StoreAway):
        one.append(lambda n: manifest("a", n))
    assert one.append(lambda n: manifest("a", n)).number == 2
    assert noted == [0, 1, 2]
    # The next content differs from the one whose reply was lost, so it gets the number after it.
    lossy.lost = 1
    with pytest.raises(StoreAway):
        one.append(lambda n: manifest("a", n, at=1))
    assert one.append(lambda n: manifest("a", n, at=2)) == manifest("a", 4, at=2)
    assert noted == [0, 1, 2, 3, 4]
    assert read_newest(store, "c") == manifest("a", 4, at=2)


class StaleStore(Store):
    """A store whose listings lag behind by some objects."""

    def __init__(self, inner: Store, lag: int) -> None:
        self.__dict__.update(inner.__dict__)
        self._lag = lag

    def list_objects(self, folder: str, *, after: str | None = None) -> Iterator[StoredObject]:
        found = sorted(super().list_objects(folder, after=after))
        yield from found[: max(0, len(found) - self._lag)]


@pytest.mark.parametrize("lag", [1, 3, 99])
def test_a_stale_listing_does_not_hide_the_newest_manifest(store: Store, lag: int) -> None:
    one = chain(store, "a")
    for _ in range(4):
        one.append(lambda n: manifest("a", n))
    found = read_newest(StaleStore(store, lag), "c")
    assert found is not None
    assert found.number == 4


def test_a_damaged_manifest_is_named_and_not_passed_over(store: Store) -> None:
    one = chain(store, "a")
    one.append(lambda n: manifest("a", n))
    name = manifest_object("c", 2)
    store.put(name, b'{"format":1')
    with pytest.raises(ObjectDamaged, match=name):
        read_newest(store, "c")
    with pytest.raises(ObjectDamaged, match=name):
        one.append(lambda n: manifest("a", n))
