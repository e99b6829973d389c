"""A file is read line by line to its end, once or repeatedly, at the wanted rate."""

import time
from pathlib import Path

import pytest

from sse_ingest.found import Tweet
from sse_ingest.shapes import SHAPES
from sse_ingest.sources import Arrival, SourceRefused, SourceState, StreamLimits, source_of
from sse_ingest.sources.replay import Replay
from tests.support.recordings import invented, recorded
from tweetwire.protocol.errors import StartError


def replay(path: Path, *, rate: float | None = None, loop: bool = False, bytes_max: int = 1 << 20) -> Replay:
    return Replay(path, SourceState("test"), rate=rate, loop=loop, bytes_max=bytes_max)


def test_lines_are_events_with_any_line_end_and_empty_lines_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(
        "a\n\n  \r\nb\u2028c\r\nö\xff".encode("latin-1", "xmlcharrefreplace").replace(b"&#8232;", "\u2028".encode())
    )
    assert [arrival.event.text for arrival in replay(path)] == ["a", "b\u2028c", "\ufffd\ufffd"]


def test_a_line_above_the_limit_is_reported_and_the_next_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text("a\n" + "x" * 1000 + "\n" + "y" * 100 + "\nb\n" + "z" * 500)
    events = [arrival.event for arrival in replay(path, bytes_max=101)]
    assert [event.fault is not None for event in events] == [False, True, False, False, True]
    assert events[2].text == "y" * 100
    assert events[3].text == "b"


def test_a_loop_repeats_until_it_is_closed_and_an_empty_file_ends_it(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text("a\nb\n")
    feed = replay(path, loop=True)
    seen: list[Arrival] = []
    for arrival in feed:
        seen.append(arrival)
        if len(seen) == 5:
            feed.close()
    assert [arrival.event.text for arrival in seen] == ["a", "b", "a", "b", "a"]
    path.write_text("")
    assert list(replay(path, loop=True)) == []


def test_the_rate_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text("a\n" * 50)
    began = time.monotonic()
    assert len(list(replay(path, rate=200))) == 50
    assert 0.2 < time.monotonic() - began < 2


@pytest.mark.parametrize(
    ("path", "count"), [*invented("rtp-server/stream.sse", 4), *recorded("rtp-server/stream.sse", 7)]
)
def test_a_stored_stream_is_replayed_unchanged(path: Path, count: int) -> None:
    assert len(list(replay(path))) == count


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("replay", b'{"id":7,"text":"a","user":{"id":1}}'),
        ("replay-mastodon", b'{"id":"7","content":"<p>a</p>","account":{"id":"1"}}'),
        ("replay-mastodon", b'{"event":"update","payload":"{\\"id\\":\\"7\\",\\"account\\":{\\"id\\":\\"1\\"}}"}'),
        ("replay-wikimedia", b'{"meta":{"id":"7"},"user":"U","title":"T"}'),
    ],
)
def test_json_lines_of_every_kind_are_tweets(kind: str, line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(line + b"\n")
    source = source_of(f"{kind}:{path}", StreamLimits())
    (arrival,) = source.open_feed(SourceState("test"), "")
    (tweet,) = SHAPES[source.shape](arrival.event.type, arrival.event.data, source.origin)
    assert isinstance(tweet, Tweet)
    assert tweet.id.endswith("7")


@pytest.mark.parametrize(
    ("address", "name", "shape", "origin"),
    [
        ("http://u:p@host:4000/tweets/1?k=secret", "host:4000/tweets/1", "twitter", ""),
        ("mastodon:social.example", "mastodon:social.example", "mastodon", "social.example"),
        ("mastodon:http://127.0.0.1:3000/", "mastodon:127.0.0.1:3000", "mastodon", "127.0.0.1:3000"),
        ("mastodon:http://u:p@social.example", "mastodon:social.example", "mastodon", "social.example"),
        ("wikimedia", "wikimedia", "wikimedia", "wikimedia"),
        ("wikimedia:https://example.org/stream", "wikimedia", "wikimedia", "wikimedia"),
    ],
)
def test_addresses_name_sources_without_their_secrets(address: str, name: str, shape: str, origin: str) -> None:
    source = source_of(address, StreamLimits())
    assert (source.name, source.shape, source.origin) == (name, shape, origin)


@pytest.mark.parametrize(
    "address",
    [
        *("", "x", "http://", "ftp://u:secret@a/b", "mastodon:", "replay:", "replay:a\0b"),
        *("http://u:secret@a:99999/", "http://[::1", "mastodon:http://[x", "mastodon:a:x", "wikimedia:http://a:0x1/"),
    ],
)
def test_an_invalid_address_is_reported_in_one_sentence(address: str) -> None:
    with pytest.raises(StartError, match="is not a source") as refused:
        source_of(address, StreamLimits())
    assert "secret" not in str(refused.value)


def test_a_file_that_disappears_meanwhile_is_reported_and_is_not_a_bug(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    with pytest.raises(SourceRefused, match=r"lines\.jsonl: No such file"):
        list(replay(path))
