"""The source's lines are parsed correctly, however the bytes are split, and all other lines are refused."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.gateways.event_source.lines import LINE_BYTES_MAX, SourceEvent, SourceLines, is_id, parse_source_line
from tests.support.recordings import invented, recorded
from tweetwire.protocol.errors import Refusal


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (b"666|F|60|50", (666, b"F", b"60", b"50")),
        (b"1|U|12|9", (1, b"U", b"12", b"9")),
        (b"542532|B", (542532, b"B", b"", b"")),
        (b"43|P|32|56", (43, b"P", b"32", b"56")),
        (b"634|S|32", (634, b"S", b"32", b"")),
        (b"634|S|32\r", (634, b"S", b"32", b"")),
        (b"7|P|ann-1|b.o_b", (7, b"P", b"ann-1", b"b.o_b")),
    ],
)
def test_a_line_is_an_event(line: bytes, event: tuple[int, bytes, bytes, bytes]) -> None:
    assert parse_source_line(line) == SourceEvent(*event, line)


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"x", b"1", b"1|", b"|B", b"0|B", b"-1|B", b"1.0|B", b"1|B|2", b"1|X|2", b"1|b", b"1|F|2", b"1|F|2|"),
        *(b"1|F|2|3|4", b"1|S|", b"1|S|a b", b"1|S|2\r\r", b"\r1|B", b"1|P|2|\xc3\xa9", b"1||2|3", b"9" * 19 + b"|B"),
        *(b"1|S|" + b"a" * 65, b"1|S|a\0", b" 1|B", b"\xd9\xa3|B"),
    ],
)
def test_anything_else_is_refused_with_the_line(line: bytes) -> None:
    with pytest.raises(Refusal) as caught:
        parse_source_line(line)
    assert (caught.value.code, caught.value.line) == ("bad_event", line)


@given(st.binary(max_size=40))
def test_no_bytes_cause_more_than_a_refusal(line: bytes) -> None:
    with suppress(Refusal):
        assert parse_source_line(line).line == line


@pytest.mark.parametrize("path", [*invented("event-source/events.txt"), *recorded("event-source/events.txt")])
def test_a_sources_lines_are_one_of_each_kind(path: Path) -> None:
    lines = SourceLines().feed(path.read_bytes())
    assert [parse_source_line(line).kind for line in lines] == [b"F", b"U", b"B", b"P", b"S"]
    assert all(line.endswith(b"\r") for line in lines)


@given(st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line)), st.integers(min_value=1, max_value=9))
def test_lines_do_not_depend_on_how_the_bytes_were_cut(lines: list[bytes], cut: int) -> None:
    data = b"".join(line + b"\n" for line in lines) + b"rest"
    splitter = SourceLines()
    assert [line for at in range(0, len(data), cut) for line in splitter.feed(data[at : at + cut])] == lines
    assert splitter.end() == b"rest"


@pytest.mark.parametrize("cut", [1, 100, 100_000])
def test_only_the_beginning_of_an_endless_line_is_reported_and_its_rest_is_skipped(cut: int) -> None:
    data = b"x" * 3 * LINE_BYTES_MAX + b"666|F|60|50\n1|B\n"
    splitter = SourceLines()
    lines = [line for at in range(0, len(data), cut) for line in splitter.feed(data[at : at + cut])]
    assert lines[-1] == b"1|B"
    (long,) = lines[:-1]
    assert long.startswith(b"x" * LINE_BYTES_MAX)
    with pytest.raises(Refusal):
        parse_source_line(long)


def test_ids_are_words_that_can_be_part_of_a_topics_name() -> None:
    assert is_id(b"42")
    assert is_id(b"a.b_c-d")
    assert not any(map(is_id, [b"", b"a b", b"a|b", b"\xc3\xa9", b"a" * 65, b"a\n"]))
