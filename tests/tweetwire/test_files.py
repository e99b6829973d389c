"""Files that are replaced in one step, and lines that show their damage."""

import errno
import fcntl
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweetwire.checked_lines import checked_line, line_body
from tweetwire.files import replace_file, replacing_file, sync_data
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.output import write_output


def test_a_replaced_file_has_the_new_content_and_the_old_one_is_kept_where_asked(tmp_path: Path) -> None:
    path, kept = tmp_path / "state", tmp_path / "state.before"
    replace_file(path, b"one", kept_as=kept)
    assert not kept.exists()
    replace_file(path, b"two", mode=0o600, kept_as=kept)
    assert (path.read_bytes(), kept.read_bytes()) == (b"two", b"one")
    assert path.stat().st_mode & 0o777 == 0o600
    assert {file.name for file in tmp_path.iterdir()} == {"state", "state.before"}


def test_a_block_that_fails_leaves_the_old_file_and_no_half_of_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "state"
    replace_file(path, b"one")
    with pytest.raises(ZeroDivisionError), replacing_file(path) as file:
        os.write(file, b"tw")
        raise ZeroDivisionError
    assert path.read_bytes() == b"one"
    assert list(tmp_path.iterdir()) == [path]


def test_a_disk_that_does_not_sync_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state"
    replace_file(path, b"one")

    def fail(file: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output error"):
        replace_file(path, b"two")
    assert path.read_bytes() == b"one"
    assert list(tmp_path.iterdir()) == [path]


def test_a_half_written_file_of_a_killed_process_is_written_over(tmp_path: Path) -> None:
    path = tmp_path / "state"
    (tmp_path / "state.new").write_bytes(b"half of a longer text")
    replace_file(path, b"whole")
    assert path.read_bytes() == b"whole"


def test_an_output_that_cannot_be_written_names_its_flag(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "page.html"
    with pytest.raises(
        StartError, match=r"cannot write .*page\.html: No such file or directory; choose another: --out"
    ):
        write_output(path, b"", "--out")


@given(st.binary())
def test_a_checked_line_gives_its_body_back(body: bytes) -> None:
    assert line_body(checked_line(body)[:-1]) == body


@given(st.binary(min_size=1), st.integers(0), st.integers(0, 7))
def test_a_body_or_checksum_with_a_changed_bit_is_damaged(body: bytes, place: int, bit: int) -> None:
    line = bytearray(checked_line(body)[:-1])
    place %= len(line)
    line[place] ^= 1 << bit
    assert line_body(bytes(line)) in ({body} if place <= 8 else {None}) | {None}


@pytest.mark.parametrize("line", [b"", b"12", b"zzzzzzzz {}", b"12345678"])
def test_a_line_that_is_cut_or_no_checked_line_is_damaged(line: bytes) -> None:
    assert line_body(line) is None


def test_on_macos_a_sync_waits_for_the_disk_and_not_for_its_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[int, int]] = []
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delattr(os, "fdatasync")
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", lambda file, command: calls.append((file, command)))
    with (tmp_path / "log").open("wb") as file:
        sync_data(file.fileno())
        assert calls == [(file.fileno(), 51)]
