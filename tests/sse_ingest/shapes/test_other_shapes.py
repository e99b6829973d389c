"""Mastodon's statuses and Wikimedia's changes become the same documents as tweets."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sse_ingest.found import Found, Notice, Rejected, Tweet
from sse_ingest.shapes import mastodon, wikimedia
from sse_ingest.sources.blocks import Blocks
from sse_ingest.sources.stream import arrivals
from tests.support.recordings import invented, recorded


def account(number: int = 5, **members: Any) -> dict[str, Any]:
    return {"id": str(number), "acct": f"a{number}@far.example", "display_name": "A", "followers_count": 3, **members}


def toot(number: int = 1, **members: Any) -> dict[str, Any]:
    return {
        "id": str(number),
        "created_at": "2026-08-02T05:25:16.840Z",
        "content": "<p>it&#39;s <b>cool</b></p><p>#a<br>b</p>",
        "account": account(),
        "language": "de",
        "favourites_count": 2,
        "reblogs_count": 1,
        "tags": [{"name": "a", "url": "x"}],
        "mentions": [{"acct": "b@far.example"}],
        **members,
    }


def found(item: Any, event: str = "update") -> list[Found]:
    return mastodon.unwrap(event, json.dumps(item).encode(), "social.example")


def test_a_status_is_a_tweet() -> None:
    (tweet,) = found(toot())
    assert isinstance(tweet, Tweet)
    assert tweet.id == "social.example:1"
    assert tweet.text == "it's cool\n#a\nb"
    assert (tweet.lang, tweet.favorite_count, tweet.retweet_count) == ("de", 2, 1)
    assert (tweet.hashtags, tweet.mentions) == (["a"], ["b@far.example"])
    assert tweet.created_at == datetime(2026, 8, 2, 5, 25, 16, 840_000, tzinfo=UTC)
    assert (tweet.user.id, tweet.user.screen_name, tweet.user.followers_count) == (
        "social.example:5",
        "a5@far.example",
        3,
    )
    assert tweet.user.is_bot is False


def test_a_boost_is_a_retweet_and_the_boosted_status_a_separate_tweet() -> None:
    outer, inner = found(toot(2, content="", reblog=toot(1, account=account(6, bot=True))))
    assert isinstance(outer, Tweet)
    assert isinstance(inner, Tweet)
    assert (outer.kind, outer.retweet_of) == ("retweet", "social.example:1")
    assert outer.text == "RT @a6@far.example: it's cool\n#a\nb"
    assert (inner.id, inner.kind, inner.user.is_bot) == ("social.example:1", "original", True)


def test_a_message_of_the_websocket_api_is_the_event_that_it_carries() -> None:
    message = {"stream": ["public"], "event": "update", "payload": json.dumps(toot())}
    assert found(message) == found(toot())
    assert found({"stream": ["public"], "event": "delete", "payload": "117"}) == [Notice("delete")]


@pytest.mark.timeout(10)
@pytest.mark.parametrize("content", ["<" * 250_000, "<p>" * 80_000])
def test_a_status_whose_html_slows_parsers_down_is_a_tweet_or_unusable(content: str) -> None:
    (one,) = found(toot(content=content))
    assert isinstance(one, Tweet) == (content[1] == "<")
    (one,) = found(toot(account=account(note=content)))
    assert isinstance(one, Tweet) == (content[1] == "<")


def test_blocks_of_a_status_separate_words_and_their_tags() -> None:
    (tweet,) = found(
        toot(content='<p>bad<br class="x">good</p><ul><li>one</li><li>two</li></ul><blockquote>q</blockquote>')
    )
    assert isinstance(tweet, Tweet)
    assert tweet.text == "bad\ngood\none\ntwo\nq"


@pytest.mark.parametrize(
    "event", ["delete", "filters_changed", "notification", "conversation", "announcement", "new one"]
)
@pytest.mark.parametrize("data", ["undefined", "117024236332527350", "", "{}"])
def test_other_events_are_notices_whatever_their_data(event: str, data: str) -> None:
    assert mastodon.unwrap(event, data.encode(), "x") == [Notice(event)]


@pytest.mark.parametrize("data", ["undefined", "117", "null", "[]", "{}", '{"id":"1"}', '{"id":"1","account":{}}'])
def test_an_update_that_is_not_a_status_is_unusable(data: str) -> None:
    assert isinstance(mastodon.unwrap("update", data.encode(), "x")[0], Rejected)


def events_of(path: Path) -> list[tuple[str, str]]:
    return [(arrival.event.type, arrival.event.text) for arrival in arrivals(Blocks().feed(path.read_bytes()), 1 << 20)]


@pytest.mark.parametrize(
    ("path", "tweets", "notices"),
    [
        *invented("mastodon/user.sse", 2, {"notification", "delete"}),
        *invented("mastodon/direct.sse", 0, {"conversation"}),
        *recorded("mastodon/recorded_test_stream_user_direct__user.sse", 3, {"notification", "delete"}),
        *recorded("mastodon/recorded_test_stream_user_local__user.sse", 1, set()),
        *recorded("mastodon/recorded_test_stream_user_direct__direct.sse", 0, {"conversation"}),
        *recorded("mastodon/recorded_test_stream_direct__direct.sse", 0, {"conversation"}),
    ],
)
def test_mastodon_streams_are_understood(path: Path, tweets: int, notices: set[str]) -> None:
    results = [mastodon.unwrap(event, data.encode(), "x")[0] for event, data in events_of(path)]
    assert sum(isinstance(one, Tweet) for one in results) == tweets
    assert {one.name for one in results if isinstance(one, Notice)} == notices
    assert not any(isinstance(one, Rejected) for one in results)


def change(**members: Any) -> dict[str, Any]:
    return {
        "meta": {"id": "uuid", "dt": "2025-08-29T06:45:17.001Z", "domain": "de.wikipedia.org", "uri": "https://u"},
        "type": "edit",
        "title": "Berlin",
        "comment": "fixed by [[User:Anna B|Anna]] #fix",
        "user": "Ben C",
        "bot": True,
        "server_name": "de.wikipedia.org",
        **members,
    }


def test_an_edit_is_a_tweet_and_bots_are_marked() -> None:
    (tweet,) = wikimedia.unwrap("message", json.dumps(change()).encode(), "wikimedia")
    assert isinstance(tweet, Tweet)
    assert (tweet.id, tweet.text, tweet.lang) == ("wikimedia:uuid", "Berlin: fixed by [[User:Anna B|Anna]] #fix", "de")
    assert (tweet.hashtags, tweet.mentions, tweet.urls) == (["fix"], ["Anna B"], ["https://u"])
    assert (tweet.user.id, tweet.user.is_bot) == ("wikimedia:Ben C", True)
    assert tweet.user.profile["url"] == "https://de.wikipedia.org/wiki/User:Ben_C"
    assert tweet.created_at == datetime(2025, 8, 29, 6, 45, 17, 1000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("comment", "tags"),
    [
        ("/* top */ [[Help#Edit]] [[#History|see]] #1lib1ref #हिन्दी", ["1lib1ref", "हिन्दी"]),
        ("https://example.org/a#b #c", ["c"]),
        ("[[" * 50_000 + "#late", []),
    ],
)
def test_the_tags_of_a_comment_are_those_of_a_tweet_without_links(comment: str, tags: list[str]) -> None:
    (tweet,) = wikimedia.unwrap("message", json.dumps(change(comment=comment)).encode(), "wikimedia")
    assert isinstance(tweet, Tweet)
    assert tweet.hashtags == tags


def test_canary_events_are_dropped_and_counted() -> None:
    canary = change(meta={"id": "x", "domain": "canary"})
    assert wikimedia.unwrap("message", json.dumps(canary).encode(), "wikimedia") == [Notice("canary")]


@pytest.mark.parametrize(
    "data", ["", "null", "{}", '{"meta": 1}', '{"meta": {}}', '{"meta": {"id": "x"}, "user": null}']
)
def test_data_that_is_not_a_change_is_unusable(data: str) -> None:
    assert isinstance(wikimedia.unwrap("message", data.encode(), "wikimedia")[0], Rejected)


@pytest.mark.parametrize(
    ("path", "lines"),
    [
        *invented("wikimedia/recentchange.jsonl", 4),
        *recorded("wikimedia/recentchange-2025.jsonl", 9),
        *recorded("wikimedia/recentchange-wikidata-2018.jsonl", 300),
    ],
)
def test_changes_of_wikis_are_understood(path: Path, lines: int) -> None:
    results = [
        one
        for line in path.read_text("utf-8").strip().split("\n")
        for one in wikimedia.unwrap("message", line.encode(), "wikimedia")
    ]
    assert len(results) == lines
    assert all(isinstance(one, Tweet) and one.created_at and one.text for one in results)


@pytest.mark.parametrize(
    ("path", "count"),
    [*invented("wikimedia/recentchange.sse", 4), *recorded("wikimedia/recentchange-2025.sse", 9)],
)
def test_each_event_of_a_transcript_has_its_id(path: Path, count: int) -> None:
    ids = [block.last_id for block in Blocks().feed(path.read_bytes()) if b"data:" in block.body]
    assert len(ids) == count
    assert all(json.loads(last_id)[0]["topic"] for last_id in ids)
