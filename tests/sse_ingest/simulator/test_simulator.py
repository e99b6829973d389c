"""The simulator sends the same bytes as the rtp-server, and the same tweets for the same seed."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sse_ingest.found import Tweet
from sse_ingest.scoring import engagement
from sse_ingest.shapes.twitter import unwrap
from sse_ingest.simulator.recording import Recording
from sse_ingest.simulator.tweets import Timeline
from sse_ingest.simulator.wire import BATCH, PANIC, chunks, message, pause_s
from tests.sse_ingest.programs import Program
from tests.sse_ingest.samples import envelope, status, write_lines
from tests.support.recordings import invented, recorded

MESSAGE = re.compile(
    rb'event: "message"\n\ndata: \{"message": (\{"tweet": .*, "unix_timestamp_100us": \d{14}\}|panic)\}\n\n'
)


STREAMS = [*invented("rtp-server/stream.sse"), *recorded("rtp-server/stream.sse")]


@pytest.mark.parametrize("path", STREAMS)
def test_a_servers_stream_is_made_of_the_same_messages_as_ours(path: Path) -> None:
    stream = path.read_bytes()
    ours = b""
    for found in MESSAGE.finditer(stream):
        if found[1] == b"panic":
            ours += PANIC
        else:
            tweet, stamp = re.fullmatch(rb'\{"tweet": (.*), "unix_timestamp_100us": (\d+)\}', found[1]).groups()  # type: ignore[union-attr]
            ours += message(tweet, (int(stamp) + 0.5) / 10_000)
    assert ours == stream


@pytest.mark.parametrize("path", STREAMS)
def test_a_servers_tweets_have_the_members_of_ours_in_the_same_order(path: Path) -> None:
    messages = [one[1] for one in MESSAGE.finditer(path.read_bytes())]
    tweets = [json.loads(message)["tweet"] for message in messages if message != b"panic"]
    assert tweets
    ours = Timeline(1, 1).status(0)
    for tweet in tweets:
        assert set(ours) <= set(tweet), set(ours) - set(tweet)
        assert [member for member in tweet if member in ours] == list(ours)
        assert set(ours["user"]) - set(tweet["user"]) <= {"profile_banner_url"}
        assert [member for member in tweet["user"] if member in ours["user"]] == [
            member for member in ours["user"] if member in tweet["user"]
        ]


@given(st.floats(0, 1))
def test_pauses_follow_the_servers_formula(draw: float) -> None:
    assert 0 <= pause_s(draw) <= 0.055


def test_more_than_half_of_the_batches_come_without_a_pause_and_the_slowest_at_18_a_second() -> None:
    pauses = [pause_s(place / 1000) for place in range(1001)]
    assert 0.5 < pauses.count(0.0) / len(pauses) < 0.65
    assert max(pauses) == 0.055
    assert BATCH == 100


def test_long_messages_are_split_over_chunks() -> None:
    assert chunks(b"ab") == b"2\r\nab\r\n"
    assert chunks(b"x" * 5000) == b"1000\r\n" + b"x" * 4096 + b"\r\n388\r\n" + b"x" * 904 + b"\r\n"


def test_tweets_are_compact_json_in_utf8() -> None:
    tweets = [Timeline(1, 1).tweet(number) for number in range(300)]
    assert all(
        json.dumps(json.loads(tweet), ensure_ascii=False, separators=(",", ":")).encode() == tweet for tweet in tweets
    )
    assert any(byte > 127 for tweet in tweets for byte in tweet)
    assert 2000 < sum(map(len, tweets)) / len(tweets) < 4000


def test_the_same_seed_gives_the_same_tweets_and_another_seed_and_route_others() -> None:
    def ids(seed: int, route: int) -> set[str]:
        return {json.loads(Timeline(seed, route).tweet(number))["id_str"] for number in range(500)}

    assert Timeline(3, 1).tweet(17) == Timeline(3, 1).tweet(17)
    assert ids(3, 1) == ids(3, 1)
    assert not ids(3, 1) & ids(4, 1)
    shared = ids(3, 1) & ids(3, 2)
    assert len(shared) < 30


def tweets_of(number: int) -> list[Tweet]:
    found = [one for place in range(number) for one in unwrap("message", Timeline(2, 1).tweet(place), "")]
    tweets = [one for one in found if isinstance(one, Tweet)]
    assert len(tweets) == len(found)
    return tweets


def test_the_tweets_include_every_kind() -> None:
    tweets = tweets_of(3000)
    kinds = Counter(tweet.kind for tweet in tweets)
    assert kinds["retweet"] > 800
    assert min(kinds.values()) > 80
    assert len({tweet.lang for tweet in tweets}) >= 6
    assert sum(bool(tweet.hashtags) for tweet in tweets) > 500
    assert sum("&" in tweet.text for tweet in tweets) > 10
    outer = [Timeline(2, 1).status(place)["id_str"] for place in range(3000)]
    assert 3000 - len(set(outer)) > 20
    authors = Counter(tweet.user.id for tweet in tweets)
    assert authors.most_common(1)[0][1] > 20
    assert len(authors) > 1000
    assert any(tweet.user.followers_count == 0 for tweet in tweets)


def test_a_fresh_tweet_has_no_counts_and_a_popular_one_growing_ones() -> None:
    statuses = [Timeline(2, 1).status(number) for number in range(2000)]
    retweets = [one for one in statuses if "retweeted_status" in one]
    assert all(one["retweet_count"] == one["favorite_count"] == 0 for one in retweets)
    counts: dict[str, list[int]] = {}
    for one in retweets:
        counts.setdefault(one["retweeted_status"]["id_str"], []).append(one["retweeted_status"]["retweet_count"])
    assert all(seen == sorted(seen) for seen in counts.values())
    assert any(len(set(seen)) > 1 for seen in counts.values())


def test_in_every_window_tweets_that_are_new_have_an_engagement() -> None:
    seen: set[str] = set()
    for start in range(0, 6000, 1000):
        statuses = [Timeline(2, route).status(number) for number in range(start, start + 1000) for route in (1, 2)]
        found = [one for item in statuses for one in unwrap("message", json.dumps(item).encode(), "")]
        new = {one.id: one for one in found if isinstance(one, Tweet) and one.id not in seen}
        seen |= new.keys()
        scores = [engagement(one.favorite_count, one.retweet_count, one.user.followers_count) for one in new.values()]
        assert 0.05 < sum(score > 0 for score in scores) / len(scores) < 0.3
        assert 0 < sum(scores) / len(scores) < 1
    ids = [one["id"] for one in (Timeline(2, 1)._popular(0, number) for number in range(0, 50_000, 5))]
    assert len(set(ids)) == len(ids)


def test_a_recording_is_served_as_its_own_bytes_bare_or_enveloped(tmp_path: Path) -> None:
    bare = json.dumps(status(1), separators=(",", ":"))
    path = write_lines(tmp_path / "tweets.jsonl", [bare, envelope(status(2)), {"delete": {}}])
    served = Recording(path)
    assert len(served) == 3
    assert served.tweet(0) == served.tweet(3) == bare.encode()
    assert json.loads(served.tweet(1))["id"] == 2
    assert json.loads(served.tweet(2)) == {"delete": {}}


def body(port: int, route: int = 1) -> tuple[int, bytes]:
    with httpx.stream("GET", f"http://127.0.0.1:{port}/tweets/{route}", timeout=20) as response:
        return response.status_code, response.read()


@pytest.mark.stack
def test_the_server_answers_its_routes_and_ends_permanently_after_the_count(tmp_path: Path) -> None:
    with Program("sse_ingest.simulator", tmp_path, "--count", 250, "--seed", 5, "--panic-every", 100) as server:
        base = f"http://127.0.0.1:{server.port}"
        assert "/tweets/2" in httpx.get(base).json()["routes"]
        assert httpx.get(f"{base}/emotion_values").text.splitlines()[0].count("\t") == 1
        assert httpx.get(f"{base}/nothing").status_code == 404
        assert httpx.post(base).status_code == 405
        with httpx.stream("GET", f"{base}/tweets/1") as response:
            assert response.headers["content-type"] == "text/event-stream"
            assert response.headers["transfer-encoding"] == "chunked"
            stream = response.read()
        assert MESSAGE.sub(b"", stream) == b""
        messages = MESSAGE.findall(stream)
        assert len(messages) == 252
        assert [place for place, one in enumerate(messages) if one == b"panic"] == [100, 201]
        assert json.loads(messages[7])["tweet"] == Timeline(5, 1).status(7)
        assert body(server.port) == (204, b"")
        assert body(server.port, 2)[0] == 200
        assert server.terminate() == 0


@pytest.mark.stack
def test_a_connection_starts_from_the_first_tweet_again_unless_it_is_live(tmp_path: Path) -> None:
    def first_ids(*flags: str) -> list[list[Any]]:
        seen: list[list[Any]] = []
        with Program(
            "sse_ingest.simulator", tmp_path, "--seed", 5, "--panic-every", 0, "--rate", 2000, *flags
        ) as server:
            for _ in range(2):
                with httpx.stream("GET", f"http://127.0.0.1:{server.port}/tweets/1") as response:
                    text = b""
                    for piece in response.iter_raw():
                        text += piece
                        if len(found := MESSAGE.findall(text)) >= 20:
                            break
                seen.append([json.loads(one)["tweet"]["id_str"] for one in found[:20]])
        return seen

    first, again = first_ids()
    assert first == again == [Timeline(5, 1).status(number)["id_str"] for number in range(20)]
    first, later = first_ids("--live")
    assert not set(first) & set(later)


@pytest.mark.stack
def test_tweets_are_sent_at_the_requested_rate(tmp_path: Path) -> None:
    flags = ("--rate", 400, "--count", 600, "--panic-every", 0)
    with (
        Program("sse_ingest.simulator", tmp_path, *flags) as server,
        httpx.stream("GET", f"http://127.0.0.1:{server.port}/tweets/1", timeout=20) as response,
    ):
        stamps = [int(stamp) for stamp in re.findall(rb'"unix_timestamp_100us": (\d+)', response.read())]
    assert len(stamps) == 600
    # A busy machine may take longer, but never less.
    assert 0.95 * 600 / 400 < (stamps[-1] - stamps[0]) / 10_000 < 3 * 600 / 400
