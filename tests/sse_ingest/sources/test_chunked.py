"""Chunked bodies are decoded completely, whatever the pieces are, and an invalid coding is reported."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sse_ingest.sources.chunked import Chunks


def coded(pieces: list[bytes]) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def test_a_body_is_decoded_when_cut_at_each_byte_with_extensions_trailers_and_further_bytes() -> None:
    body = b" 00000000000000005;name=value\r\nab\r\nc\r\n00A \r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n"
    for cut in range(len(body) + 1):
        chunks = Chunks()
        assert chunks.feed(body[:cut]) + chunks.feed(body[cut:] + b"spare") == b"ab\r\nc0123456789"
        assert chunks.is_ended
        assert chunks.fault is None


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=8), st.integers(1, 7))
def test_a_body_is_decoded_completely_from_any_pieces(pieces: list[bytes], step: int) -> None:
    body, chunks = coded(pieces), Chunks()
    assert b"".join(chunks.feed(body[at : at + step]) for at in range(0, len(body), step)) == b"".join(pieces)
    assert chunks.is_ended


def test_an_incomplete_body_is_not_ended() -> None:
    body = coded([b"abc"])
    for cut in range(len(body)):
        chunks = Chunks()
        chunks.feed(body[:cut])
        assert not chunks.is_ended


@pytest.mark.parametrize(
    "broken", [b"x\r\n", b"-1\r\n", b"+1\r\n", b"0x1\r\n", b"\r\n", b"1\r\nab", b"1 1\r\n", b"f" * 70_000]
)
def test_the_bytes_before_a_fault_are_given_and_none_after_it(broken: bytes) -> None:
    chunks = Chunks()
    assert chunks.feed(b"3\r\nabc\r\n" + broken + b"\r\n1\r\nz\r\n")[:3] == b"abc"
    assert chunks.fault is not None
    assert not chunks.is_ended
    assert chunks.feed(b"1\r\nz\r\n") == b""
