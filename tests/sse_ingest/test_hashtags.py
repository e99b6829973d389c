"""The file of hashtags is sorted and always complete."""

import json
import time
from datetime import datetime
from pathlib import Path

import anyio
import pytest
from pymongo.errors import OperationFailure

from sse_ingest.hashtags import HashtagCounts
from sse_ingest.ingest import Ingest, LineSettings, StoredState, WriterSize
from sse_ingest.pool import PoolSize
from sse_ingest.status import hashtag_lines
from sse_ingest.store import Store
from tweetwire.protocol.errors import StartError


def counts_of(path: Path, stored: dict[str, int]) -> HashtagCounts:
    counts = HashtagCounts(path)
    counts.add_stored(stored)
    return counts


def test_the_most_frequent_come_first_and_ties_are_in_alphabetical_order(tmp_path: Path) -> None:
    counts = counts_of(tmp_path / "new" / "hashtags.json", {"b": 1})
    counts.add_hashtags(["c", "a", "c", "日本"])
    counts.write()
    text = (tmp_path / "new" / "hashtags.json").read_text("utf-8")
    assert list(json.loads(text).items()) == [("c", 2), ("a", 1), ("b", 1), ("日本", 1)]
    assert "日本" in text
    assert counts.top(1) == [("c", 2)]


def test_an_unchanged_file_is_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "hashtags.json"
    counts = counts_of(path, {"a": 1})
    counts.write()
    path.unlink()
    counts.write()
    assert not path.exists()
    counts.add_hashtags(["a"])
    counts.write()
    assert json.loads(path.read_text()) == {"a": 2}


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "hashtags.json"
    counts = counts_of(path, {"a": 1})
    counts.write()
    counts.add_hashtags(["b"])

    def fail(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", fail)
        with pytest.raises(OSError, match="No space"):
            counts.write()
    assert json.loads(path.read_text()) == {"a": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["hashtags.json"]
    counts.write()
    assert json.loads(path.read_text()) == {"a": 1, "b": 1}


def test_the_file_stays_unchanged_until_the_stored_tweets_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "hashtags.json"
    path.write_text('{"a": 5}')
    counts = HashtagCounts(path)
    counts.add_hashtags(["a"])
    counts.write()
    assert json.loads(path.read_text()) == {"a": 5}
    assert hashtag_lines(counts, 5)[0].split() == ["1", "#a"]
    assert "being counted" in hashtag_lines(counts, 5)[1]
    counts.add_stored({"a": 5, "\x1b[2Jb\n": 1})
    counts.write()
    assert json.loads(path.read_text()) == {"a": 6, "\x1b[2Jb\n": 1}
    assert [line.split() for line in hashtag_lines(counts, 5)] == [["6", "#a"], ["1", "#", "[2Jb"]]


@pytest.mark.parametrize("name", ["", "a-file/hashtags.json"])
def test_a_file_that_cannot_be_written_is_reported_in_one_sentence_at_the_start(tmp_path: Path, name: str) -> None:
    (tmp_path / "a-file").touch()
    with pytest.raises(StartError, match=r"cannot write .*; choose another: --hashtags-file"):
        HashtagCounts(tmp_path / name).check()
    HashtagCounts(tmp_path / "new" / "hashtags.json").check()
    assert list((tmp_path / "new").iterdir()) == []


@pytest.mark.anyio
async def test_a_slow_write_of_the_file_happens_rarely_and_at_the_end(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = counts_of(tmp_path / "hashtags.json", {"a": 1})
    lines = LineSettings(PoolSize(), 1, "vader", None)
    ingest = Ingest([], lines, WriterSize(), StoredState(store, counts, {}))
    write = counts.write

    def write_long() -> None:
        time.sleep(0.3)  # simulate the time that millions of hashtags take
        write()

    monkeypatch.setattr(counts, "write", write_long)
    for number in range(3):
        await ingest.keep()
        counts.add_hashtags([f"new{number}"])
    assert json.loads((tmp_path / "hashtags.json").read_text()) == {"a": 1}
    await ingest.run()
    await ingest.write_hashtags()
    assert len(json.loads((tmp_path / "hashtags.json").read_text())) == 4


@pytest.mark.anyio
async def test_an_ingester_that_ends_with_its_sources_does_not_wait_for_a_failing_count(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    async def hashtags(before: datetime) -> dict[str, int]:
        nonlocal asked
        asked += 1
        raise OperationFailure("not authorized", 13)

    monkeypatch.setattr(store, "hashtags", hashtags)
    counts = HashtagCounts(tmp_path / "hashtags.json")
    with anyio.fail_after(60):
        await Ingest([], LineSettings(PoolSize(), 1, "vader", None), WriterSize(), StoredState(store, counts, {})).run()
    assert (asked > 0, counts.is_whole) == (True, False)
