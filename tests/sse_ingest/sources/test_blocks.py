"""The events of a stream do not depend on how it is cut into chunks or how its lines end."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sseclient import SSEClient

from sse_ingest.sources.blocks import Block, Blocks
from sse_ingest.sources.stream import arrivals
from tests.support.recordings import invented, recorded

BOM = b"\xef\xbb\xbf"


def blocks_of(chunks: list[bytes], bytes_max: int = 1 << 20) -> list[Block]:
    blocks = Blocks(bytes_max=bytes_max)
    return [block for chunk in chunks for block in blocks.feed(chunk)]


def events_of(chunks: list[bytes], bytes_max: int = 1 << 20) -> list[tuple[str, str, str]]:
    return [
        (arrival.event.type, arrival.event.text, arrival.last_id)
        for arrival in arrivals(blocks_of(chunks, bytes_max), bytes_max)
    ]


def test_the_standards_examples() -> None:
    stream = (
        b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n"
        b"data\n\ndata\ndata\n\ndata:dropped"
    )
    assert events_of([stream]) == [
        ("message", "first event", "1"),
        ("message", "second event", ""),
        ("message", " third event", ""),
        ("message", "", ""),
        ("message", "\n", ""),
    ]


def test_the_rtp_servers_blank_line_makes_no_extra_event() -> None:
    assert events_of([b'event: "message"\n\ndata: {"message": panic}\n\n']) == [("message", '{"message": panic}', "")]


def test_only_lf_crlf_and_cr_end_lines() -> None:
    inside = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg"
    assert events_of([f"data: {inside}\n\n".encode()]) == [("message", inside, "")]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_each_line_end_cut_at_each_byte(end: bytes) -> None:
    stream = "data: ö😀\nevent: x\n\nid: 7\ndata: b\ndata: c\n\n".encode().replace(b"\n", end)
    whole = events_of([stream])
    assert whole == [("x", "ö😀", ""), ("message", "b\nc", "7")]
    for cut in range(len(stream) + 1):
        assert events_of([stream[:cut], stream[cut:]]) == whole
    assert events_of([bytes([byte]) for byte in stream]) == whole


def test_mixed_line_ends() -> None:
    assert events_of([b"data: a\r\n\rdata: b\n\r\ndata: c\r\rdata: d\r\n\n"]) == [
        ("message", letter, "") for letter in "abcd"
    ]


def test_a_byte_order_mark_is_skipped_at_the_start_and_is_text_elsewhere() -> None:
    stream = BOM + b"data: a\n\n"
    for cut in range(5):
        assert events_of([stream[:cut], stream[cut:]]) == [("message", "a", "")]
    assert events_of([b"data: " + BOM + b"a\n\n"]) == [("message", "\ufeffa", "")]


def test_a_block_without_a_final_blank_line_is_dropped_with_its_id() -> None:
    blocks = Blocks("5")
    assert list(blocks.feed(b"id: 6\ndata: half\n")) == []
    assert blocks.last_id == "5"


def test_an_id_is_kept_even_without_data_and_an_id_with_nul_is_ignored() -> None:
    assert events_of([b"id: 1\n\ndata: a\n\nid: 2\0\ndata: b\n\nid:\ndata: c\n\n"]) == [
        ("message", "a", "1"),
        ("message", "b", "1"),
        ("message", "c", ""),
    ]


def test_retry_is_digits_only() -> None:
    blocks = Blocks()
    list(blocks.feed(b"retry: 2500\n\nretry: soon\n\nretry: -1\n\n"))
    assert blocks.retry_s == 2.5


def test_invalid_utf8_becomes_replacement_characters() -> None:
    assert events_of([b"data: a\xffb\n\n"]) == [("message", "a\ufffdb", "")]


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_an_event_above_the_limit_is_cut_its_id_holds_and_the_next_is_whole(size: int) -> None:
    large = b"id: 8\ndata: " + b"x" * 5000 + b"\ndata: y\nid: 9\n\n"
    stream = b"id: 7\ndata: a\n\n" + large + b"data: b\n\n"
    blocks = blocks_of([stream[start : start + size] for start in range(0, len(stream), size)], bytes_max=1000)
    assert [block.is_cut for block in blocks] == [False, True, False]
    assert [block.last_id for block in blocks] == ["7", "9", "9"]
    assert len(blocks[1].body) <= 4096


def test_a_line_without_end_is_not_kept() -> None:
    blocks = Blocks(bytes_max=10_000)
    for _ in range(1000):
        assert list(blocks.feed(b"data: " + b"x" * 1000)) == []
    assert len(blocks._rest) < 20_000
    assert [block.is_cut for block in blocks.feed(b"\n\n")] == [True]


def test_an_event_without_end_whose_lines_are_ids_is_not_kept_and_the_last_id_holds() -> None:
    blocks = Blocks(bytes_max=1000)
    for number in range(1000):
        assert list(blocks.feed(b"id: %d\nretry: %d\nid: \0\n" % (number, number) * 20)) == []
    assert len(blocks._cut_fields) < 1000
    (block,) = blocks.feed(b"\n")
    assert (block.is_cut, block.last_id, blocks.retry_s) == (True, "999", 0.999)


FIELDS = st.sampled_from(
    [
        "data: x",
        "data:  ",
        "data: ",
        "data:",
        "data",
        "id: 1",
        "id",
        "event: e",
        ": comment",
        "retry: 10",
        "other: x",
        "ü",
    ]
)


@given(st.lists(st.lists(FIELDS, max_size=4), max_size=6), st.data())
def test_chunks_and_line_ends_change_nothing(groups: list[list[str]], data: st.DataObject) -> None:
    stream = "".join("".join(f"{line}\n" for line in group) + "\n" for group in groups).encode()
    expected = events_of([stream])
    end = data.draw(st.sampled_from([b"\n", b"\r\n", b"\r"]))
    stream = stream.replace(b"\n", end)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    pieces = [stream[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert events_of(pieces) == expected


@given(st.lists(st.lists(FIELDS, max_size=4), max_size=6))
def test_events_are_those_of_sseclient(groups: list[list[str]]) -> None:
    stream = "".join("".join(f"{line}\n" for line in group) + "\n" for group in groups).encode()
    expected = [(event.event, event.data) for event in SSEClient(iter([stream])).events()]
    assert [(kind, data) for kind, data, _ in events_of([stream])] == expected


@given(st.lists(st.binary(max_size=60), max_size=8))
def test_any_bytes_are_taken(chunks: list[bytes]) -> None:
    assert events_of(chunks) == events_of([b"".join(chunks)])


@pytest.mark.parametrize(
    ("path", "count", "panics"), [*invented("rtp-server/stream.sse", 4, 1), *recorded("rtp-server/stream.sse", 7, 2)]
)
def test_a_servers_stream_has_its_tweets_and_panics(path: Path, count: int, panics: int) -> None:
    stream = path.read_bytes()
    events = events_of([stream[start : start + 4096] for start in range(0, len(stream), 4096)])
    assert len(events) == count
    assert sum(bool(re.fullmatch(r'{"message": panic}', data)) for _, data, _ in events) == panics
