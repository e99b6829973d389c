"""A broker that dies before or after a request to the store leaves a bucket to restore from, and a folder to continue."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from broker.connection import Limits
from broker.data_directory import Sizes
from broker.log import CommitLog
from broker.server import Server
from broker.tiers import uploader
from broker.tiers.chain import read_newest
from broker.tiers.location import open_store
from broker.tiers.options import TierOptions
from broker.tiers.restoring import restore_tier
from broker.tiers.service import Tier
from broker.tiers.store import Store
from tests.support.waiting import until_async
from tweetwire.protocol import parse_lines
from tweetwire.protocol.errors import Refusal, StartError

pytestmark = pytest.mark.anyio

REQUESTS = frozenset({"create", "put", "get", "size_of", "delete", "list_objects"})
EVENTS = 60
STEPS = int(os.environ.get("TWEETWIRE_TEST_TIER_STEPS", "12"))
"""At how many requests the broker dies, before and after each. `make faults` takes all."""
LIMITS = Limits(1 << 20, 4 << 20, 60.0)


class Died(BaseException):
    """The process has ended here."""


class MortalStore(Store):
    """A store whose client dies at a request, before or after it is carried out. Requests are counted from 0."""

    def __init__(self, inner: Store, dies_at: int = -1, *, is_done: bool = False) -> None:
        self.__dict__.update(inner.__dict__)
        self.requests: list[str] = []
        self._dies_at = dies_at
        self._is_done = is_done
        self._is_inside = False

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        return self._mortal(name, found) if name in REQUESTS else found

    def _mortal(self, name: str, function: Any) -> Any:
        def request(*args: Any, **options: Any) -> Any:
            number = len(self.requests)
            # The probe's requests are made by eight threads at once, before anything depends on the store.
            if "/probe/" in str(args[0]):
                return function(*args, **options)
            self.requests.append(name)
            if number == self._dies_at and not self._is_done:
                raise Died
            found = function(*args, **options)
            if number >= self._dies_at >= 0:
                raise Died
            return found

        return request


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploader, "POLL_S", 0.02)


@asynccontextmanager
async def serving(folder: Path, store: Store) -> AsyncIterator[tuple[Server, Tier]]:
    server = Server(folder, "synced", limits=LIMITS, sizes=Sizes(segment=2000, reserve=0))
    tier = Tier(server, TierOptions("", after_s=0.05), store)
    async with server.open(["t"]), tier.open():
        yield server, tier


async def publish(server: Server, first: int, count: int) -> None:
    """Publish numbered events, a few in each batch, and have a subscription settle the first ones."""
    session = server.admit("test", lambda: None)
    try:
        for number in range(first, first + count):
            lines = [f'pub t {{"id":"{number}","msg":"{"x" * 100}","producer":"p","sequence":{number}}}'.encode()]
            if number == first:
                lines.insert(0, b"sub t as=s from=earliest prefetch=20")
            if number == first + 10:
                lines.append(b"ack t @%d" % first)
            for command in parse_lines(lines, 1 << 20):
                assert not isinstance(command, Refusal)
                server.broker.execute(session, command, server.now_ms())
            server.do_work()
            while server.broker.topic("t").visible <= number:
                await anyio.sleep(0.001)
    finally:
        server.dismiss(session)


async def live(folder: Path, store: Store, first: int) -> None:
    """Start a broker, publish, wait until all is in the bucket, publish more, and stop."""
    async with serving(folder, store) as (server, tier):
        for at in (first, first + EVENTS):
            await publish(server, at, EVENTS)
            await until_async(lambda: tier.figures.waiting == 0 and tier.figures.covered_ms > 0, 20)


def lines_in(folder: Path) -> list[bytes]:
    log = CommitLog(folder / "topics" / "t")
    try:
        assert not any(log.recovery)
        lines: list[bytes] = []
        at = 0
        while at < log.next:
            more, at, damaged = log.read(at, 1000, 1 << 20)
            assert not damaged
            lines += more
        return lines
    finally:
        log.close()


def restored(bucket: Path, folder: Path) -> list[bytes] | None:
    """Restore a copy of the bucket, and return the lines of the topic, None if there is no state yet."""
    shutil.copytree(bucket, bucket.with_name("copied"))
    try:
        done = restore_tier(open_store(f"file://{bucket.with_name('copied')}"), None, folder, lambda _: None)
        assert done.damage == []
        return lines_in(folder)
    except StartError as error:
        assert "there is no broker's data" in str(error) or "has no state" in str(error)  # noqa: PT017
        return None
    finally:
        shutil.rmtree(bucket.with_name("copied"))
        shutil.rmtree(folder, ignore_errors=True)


async def check_death(tmp_path: Path, dies_at: int, *, is_done: bool) -> bool:
    """Let a broker die at a request, and check the bucket and the folder. Returns whether it lived that long."""
    folder, bucket = tmp_path / "first", tmp_path / "bucket"
    mortal = MortalStore(open_store(f"file://{bucket}"), dies_at, is_done=is_done)
    has_died = False
    try:
        await live(folder, mortal, 0)
    except* Died:
        has_died = True
    local = lines_in(folder)
    chain = next(bucket.iterdir()).name if any(bucket.iterdir()) else ""
    before = read_newest(open_store(f"file://{bucket}"), chain) if chain else None
    found = restored(bucket, tmp_path / "second")
    if before is not None and before.state is not None:
        assert found is not None
        assert found == local[: len(found)]
        assert len(found) == before.topics["t"].next
    else:
        assert found is None
    # A broker continues on the folder, and then the bucket has everything.
    first = len(local)
    await live(folder, open_store(f"file://{bucket}"), first)
    assert restored(bucket, tmp_path / "second") == lines_in(folder)
    assert len(lines_in(folder)) == first + 2 * EVENTS
    for path in (folder, bucket):
        shutil.rmtree(path)
    return has_died


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
async def test_a_death_at_any_request_loses_nothing_that_a_manifest_names(tmp_path: Path, is_done: bool) -> None:
    for step in range(STEPS):
        if not await check_death(tmp_path, step, is_done=is_done):
            break
    assert step >= 11


async def test_an_upload_that_is_repeated_writes_the_same_objects(tmp_path: Path) -> None:
    bucket = tmp_path / "bucket"
    await live(tmp_path / "first", open_store(f"file://{bucket}"), 0)
    objects = {path.name: path.read_bytes() for path in bucket.glob("*/topics/**/*") if path.is_file()}
    assert len(objects) > 8
    chain = next(bucket.iterdir()).name
    shutil.rmtree(bucket / chain)
    (tmp_path / "first" / "tiers" / "CHAIN").unlink()
    await live(tmp_path / "first", open_store(f"file://{bucket}"), 2 * EVENTS)
    again = {path.name: path.read_bytes() for path in bucket.glob("*/topics/**/*") if path.is_file()}
    assert {name: again[name] for name in objects} == objects
