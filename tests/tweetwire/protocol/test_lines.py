"""Bytes are split into lines, and some first lines are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweetwire.protocol import TOO_LONG, LineSplitter, is_foreign_protocol

LIMIT = 8


def whole(data: bytes) -> list[bytes]:
    """A plain model: split at line feeds, replace carriage returns by spaces, and refuse a line above the limit."""
    *lines, _ = data.replace(b"\r", b" ").split(b"\n")
    return [
        line if len(line) <= LIMIT or (len(line) == LIMIT + 1 and line.endswith(b" ")) else TOO_LONG for line in lines
    ]


@given(data=st.binary() | st.text("ab\r\n ").map(str.encode), cuts=st.lists(st.integers(0, 40)))
def test_lines_do_not_depend_on_how_the_bytes_arrive(data: bytes, cuts: list[int]) -> None:
    splitter = LineSplitter(LIMIT)
    lines: list[bytes] = []
    at = 0
    for cut in [*sorted(cuts), len(data)]:
        lines += splitter.feed(data[at:cut])
        at = max(at, min(cut, len(data)))
    assert lines == whole(data)


def test_a_line_of_just_the_limit_is_taken_and_one_byte_more_is_skipped() -> None:
    splitter = LineSplitter(LIMIT)
    assert splitter.feed(b"12345678\n123456789\n12345678\r\nok\n") == [b"12345678", TOO_LONG, b"12345678 ", b"ok"]


def test_an_endless_line_is_not_kept() -> None:
    splitter = LineSplitter(LIMIT)
    for _ in range(1000):
        assert splitter.feed(b"x" * 1000) == []
    assert len(splitter._rest) <= LIMIT + 1
    assert splitter.feed(b"x\nping\n") == [TOO_LONG, b"ping"]


@pytest.mark.parametrize(
    "first",
    [b"GET / HTTP/1.1\r\n", b"POST /x HTTP/1.0\r\n", b"Host: localhost\r\n", b"\x16\x03\x01\x02\x00\x01", b"get / "],
)
def test_http_and_tls_are_recognised(first: bytes) -> None:
    assert is_foreign_protocol(first)


@pytest.mark.parametrize("first", [b"hello me\n", b"ping\n", b"", b"pub t {}\n", b"help\n", b"getting\n"])
def test_our_own_lines_are_not_foreign(first: bytes) -> None:
    assert not is_foreign_protocol(first)
