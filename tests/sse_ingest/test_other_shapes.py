"""Mastodon's statuses and Wikimedia's changes become the same documents as tweets."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from sse_ingest.found import Found, Notice, Tweet, Unusable
from sse_ingest.shapes import mastodon, wikimedia
from sse_ingest.sources.blocks import Blocks
from sse_ingest.sources.stream import arrivals
from tests.sse_ingest.samples import recording


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


def test_a_boost_is_a_retweet_and_what_it_boosts_a_tweet_of_its_own() -> None:
    outer, inner = found(toot(2, content="", reblog=toot(1, account=account(6, bot=True))))
    assert isinstance(outer, Tweet)
    assert isinstance(inner, Tweet)
    assert (outer.kind, outer.retweet_of) == ("retweet", "social.example:1")
    assert outer.text == "RT @a6@far.example: it's cool\n#a\nb"
    assert (inner.id, inner.kind, inner.user.is_bot) == ("social.example:1", "original", True)


@pytest.mark.parametrize(
    "event", ["delete", "filters_changed", "notification", "conversation", "announcement", "new one"]
)
@pytest.mark.parametrize("data", ["undefined", "117024236332527350", "", "{}"])
def test_other_events_are_notices_whatever_their_data(event: str, data: str) -> None:
    assert mastodon.unwrap(event, data.encode(), "x") == [Notice(event)]


@pytest.mark.parametrize("data", ["undefined", "117", "null", "[]", "{}", '{"id":"1"}', '{"id":"1","account":{}}'])
def test_an_update_that_is_no_status_is_unusable(data: str) -> None:
    assert isinstance(mastodon.unwrap("update", data.encode(), "x")[0], Unusable)


def recorded(name: str) -> list[tuple[str, str]]:
    stream = recording(name).read_bytes()
    return [(arrival.event.type, arrival.event.text) for arrival in arrivals(Blocks().feed(stream), 1 << 20)]


def test_the_recorded_mastodon_streams_are_understood() -> None:
    results = [
        mastodon.unwrap(event, data.encode(), "x")[0]
        for name in ("user_direct__user", "user_local__user", "user_direct__direct", "direct__direct")
        for event, data in recorded(f"mastodon/recorded_test_stream_{name}.sse")
    ]
    assert sum(isinstance(one, Tweet) for one in results) == 4
    assert {one.name for one in results if isinstance(one, Notice)} == {"notification", "conversation", "delete"}
    assert not any(isinstance(one, Unusable) for one in results)


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


def test_canary_events_are_dropped_and_counted() -> None:
    canary = change(meta={"id": "x", "domain": "canary"})
    assert wikimedia.unwrap("message", json.dumps(canary).encode(), "wikimedia") == [Notice("canary")]


@pytest.mark.parametrize(
    "data", ["", "null", "{}", '{"meta": 1}', '{"meta": {}}', '{"meta": {"id": "x"}, "user": null}']
)
def test_what_is_no_change_is_unusable(data: str) -> None:
    assert isinstance(wikimedia.unwrap("message", data.encode(), "wikimedia")[0], Unusable)


@pytest.mark.parametrize(("name", "lines"), [("recentchange-2025.jsonl", 9), ("recentchange-wikidata-2018.jsonl", 300)])
def test_the_recorded_changes_are_understood(name: str, lines: int) -> None:
    results = [
        one
        for line in recording(f"wikimedia/{name}").read_text("utf-8").strip().split("\n")
        for one in wikimedia.unwrap("message", line.encode(), "wikimedia")
    ]
    assert len(results) == lines
    assert all(isinstance(one, Tweet) and one.created_at and one.text for one in results)


def test_the_recorded_transcript_gives_its_ids() -> None:
    stream = recording("wikimedia/recentchange-2025.sse").read_bytes()
    blocks = Blocks()
    ids = [block.last_id for block in blocks.feed(stream) if b"data:" in block.body]
    assert len(ids) == 9
    assert all(json.loads(last_id)[0]["topic"] for last_id in ids)
