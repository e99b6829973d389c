"""The hashtags' file is sorted and always whole."""

import json
from pathlib import Path

import pytest

from sse_ingest.hashtags import HashtagCounts


def test_the_most_frequent_come_first_and_ties_in_the_alphabets_order(tmp_path: Path) -> None:
    counts = HashtagCounts(tmp_path / "new" / "hashtags.json", {"b": 1})
    counts.add(["c", "a", "c", "日本"])
    counts.write()
    text = (tmp_path / "new" / "hashtags.json").read_text("utf-8")
    assert list(json.loads(text).items()) == [("c", 2), ("a", 1), ("b", 1), ("日本", 1)]
    assert "日本" in text
    assert counts.top(1) == [("c", 2)]


def test_nothing_new_is_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "hashtags.json"
    counts = HashtagCounts(path, {"a": 1})
    counts.write()
    path.unlink()
    counts.write()
    assert not path.exists()
    counts.add(["a"])
    counts.write()
    assert json.loads(path.read_text()) == {"a": 2}


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "hashtags.json"
    counts = HashtagCounts(path, {"a": 1})
    counts.write()
    counts.add(["b"])

    def fail(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", fail)
        with pytest.raises(OSError, match="No space"):
            counts.write()
    assert json.loads(path.read_text()) == {"a": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["hashtags.json"]
    counts.write()
    assert json.loads(path.read_text()) == {"a": 1, "b": 1}
