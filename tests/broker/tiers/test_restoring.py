"""A restore that cannot succeed fences no broker, and one that fails leaves no half of a folder."""

import errno
import os
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from broker.tiers.chain import read_newest
from broker.tiers.location import open_store
from broker.tiers.manifest import Manifest
from broker.tiers.restoring import restore_tier
from broker.tiers.store import Store
from tests.broker.tiers.test_steps import EVENTS, lines_in, live
from tweetwire.protocol.errors import StartError

pytestmark = pytest.mark.anyio


class Uploaded(NamedTuple):
    store: Store
    chain: str
    bucket: Path

    def newest(self) -> Manifest:
        found = read_newest(self.store, self.chain)
        assert found is not None
        return found


@pytest.fixture
async def uploaded(tmp_path: Path) -> Uploaded:
    """A bucket to which a broker has uploaded."""
    bucket = tmp_path / "bucket"
    store = open_store(f"file://{bucket}")
    await live(tmp_path / "first", store, 0)
    return Uploaded(store, next(bucket.iterdir()).name, bucket)


async def test_a_restore_without_a_readable_state_does_not_fence_the_broker(uploaded: Uploaded, tmp_path: Path) -> None:
    before = uploaded.newest()
    assert before.state is not None
    path = uploaded.bucket / before.state.name
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(StartError, match="is damaged"):
        restore_tier(uploaded.store, None, tmp_path / "second", lambda _: None)
    assert uploaded.newest() == before


async def test_a_restore_to_a_disk_that_is_too_small_does_not_fence_the_broker(
    uploaded: Uploaded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = uploaded.newest()
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage._replace(free=5000))
    with pytest.raises(StartError, match="has 5000 bytes free"):
        restore_tier(uploaded.store, None, tmp_path / "second", lambda _: None)
    assert uploaded.newest() == before


async def test_a_restore_that_fails_at_its_end_leaves_an_empty_folder_and_can_be_repeated(
    uploaded: Uploaded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, fsync = tmp_path / "second", os.fsync

    def fail(file: int) -> None:
        if (folder / "topics").exists() and (folder / "restoring").exists():
            raise OSError(errno.EIO, "Input/output error")
        fsync(file)

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", fail)
        with pytest.raises(StartError, match="Input/output error"):
            restore_tier(uploaded.store, None, folder, lambda _: None)
    assert [path.name for path in folder.iterdir()] == ["LOCK"]
    restore_tier(uploaded.store, None, folder, lambda _: None)
    assert len(lines_in(folder)) == 2 * EVENTS


async def test_lines_without_a_readable_index_are_restored(uploaded: Uploaded, tmp_path: Path) -> None:
    paths = sorted(uploaded.bucket.glob("*/topics/t/*.index"))
    paths[0].unlink()
    paths[1].write_bytes(paths[1].read_bytes()[:-1])
    done = restore_tier(uploaded.store, None, tmp_path / "second", lambda _: None)
    assert done.damage == []
    assert lines_in(tmp_path / "second") == lines_in(tmp_path / "first")
