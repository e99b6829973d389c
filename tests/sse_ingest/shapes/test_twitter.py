"""All forms of Twitter's objects become tweets, notices, or rejected events with a reason."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sse_ingest.found import Found, Notice, Panic, Rejected, Tweet
from sse_ingest.handover import RawEvent, ScoredTweet
from sse_ingest.shapes.twitter import NESTED_MAX, unwrap
from sse_ingest.worker import WorkerJob, find, scorer_of
from tests.sse_ingest.samples import envelope, status, user
from tests.support.recordings import invented, recorded

JOB = WorkerJob("twitter", "", "test")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def found(item: Any) -> list[Found]:
    return unwrap("message", (item if isinstance(item, str) else json.dumps(item)).encode(), "")


def tweet(item: Any) -> Tweet:
    first = found(item)[0]
    assert isinstance(first, Tweet), first
    return first


def test_a_tweet_in_the_servers_envelope_is_the_same_as_a_bare_one() -> None:
    assert found(envelope(status(7))) == found(status(7))


def test_the_kill_message_kills_and_other_garbage_does_not() -> None:
    with pytest.raises(Panic):
        found('{"message": panic}')
    for garbage in ("", "panic", '{"message": panics}', '{"message": ', "<html>", "NaN", '{"a": Infinity}'):
        assert isinstance(found(garbage)[0], Rejected), garbage


@pytest.mark.parametrize(
    "item", [None, 3, "text", [], {}, {"message": {}}, {"message": {"tweet": None}}, {"message": 1}]
)
def test_json_that_is_not_a_tweet_is_unusable(item: Any) -> None:
    assert [type(one) for one in found(json.dumps(item))] == [Rejected]


@pytest.mark.parametrize("author", [None, {}, [], "user", {"id": None}, {"screen_name": "a"}])
def test_a_tweet_without_a_user_is_unusable(author: Any) -> None:
    assert found(status(user=author)) == [Rejected("a tweet without a user")]


@pytest.mark.parametrize(
    "name",
    [
        *("delete", "limit", "status_withheld", "user_withheld", "scrub_geo", "disconnect", "warning"),
        *("event", "direct_message", "friends", "friends_str", "follow", "control", "info", "close"),
    ],
)
def test_control_messages_are_notices_and_not_tweets(name: str) -> None:
    assert found({name: {"id": 1}}) == [Notice(name)]
    assert found(envelope({name: {"id": 1}})) == [Notice(name)]
    assert found({"for_user": 7, "message": {name: [1, 2]}}) == [Notice(name)]


def test_an_event_of_a_user_stream_with_its_people_and_its_tweet_is_one_notice() -> None:
    followed = {"event": "favorite", "target": user(1), "source": user(2), "target_object": status(1)}
    assert found(followed) == [Notice("event")]


def test_events_of_another_type_are_notices_of_that_name() -> None:
    assert unwrap("ping", b"whatever", "") == [Notice("ping")]
    assert isinstance(unwrap('"message"', envelope(status(1)).encode(), "")[0], Tweet)


def test_nested_tweets_are_separate_tweets_after_the_outer_one() -> None:
    quoted = status(3, author=30)
    retweeted = status(2, author=20, quoted_status=quoted, quoted_status_id_str="3")
    outer = status(1, author=10, retweeted_status=retweeted, quoted_status=quoted)
    tweets = [one for one in found(outer) if isinstance(one, Tweet)]
    assert [one.id for one in tweets] == ["1", "2", "3", "3"]
    assert [one.kind for one in tweets[:3]] == ["retweet", "quote", "original"]
    assert tweets[0].retweet_of == "2"


def test_a_bad_nested_tweet_does_not_hurt_the_outer_one_and_keeps_its_own_text() -> None:
    first, second = found(status(1, retweeted_status={"id": 2, "text": "no author"}))
    assert isinstance(first, Tweet)
    assert isinstance(second, Rejected)
    assert second.raw is not None
    assert json.loads(second.raw)["text"] == "no author"


def test_endless_nesting_is_read_up_to_a_limit() -> None:
    item = status(1)
    for number in range(2, 200):
        item = status(number, retweeted_status=item)
    assert len(found(item)) == NESTED_MAX
    assert isinstance(found('{"a":' * 100_000 + "1" + "}" * 100_000)[0], Rejected)


def test_the_full_text_is_preferred_to_the_short_one() -> None:
    assert tweet(status(text="short…", extended_tweet={"full_text": "the whole of it"})).text == "the whole of it"
    compatible = status(full_text="full")
    del compatible["text"]
    assert tweet(compatible).text == "full"


def test_extended_entities_win_over_those_of_the_cut_text() -> None:
    extended = {"full_text": "long #a #b", "entities": {"hashtags": [{"text": "a"}, {"text": "b"}]}}
    assert tweet(status(extended_tweet=extended)).hashtags == ["a", "b"]


def test_a_retweets_text_is_not_cut() -> None:
    original = status(2, author=20, text="x" * 139, entities={"hashtags": [{"text": "late"}], "user_mentions": []})
    retweet = tweet(status(1, text="RT @user20: " + "x" * 127 + "…", retweeted_status=original))
    assert retweet.text == "RT @user20: " + "x" * 139
    assert retweet.hashtags == ["late"]
    assert retweet.mentions == ["user20"]


def test_html_entities_are_characters() -> None:
    assert tweet(status(text="R&amp;D &lt;3 &gt; &quot;")).text == 'R&D <3 > "'


@pytest.mark.parametrize("number", ["1" * 5000, "0" * 5000 + "65"])
def test_a_character_reference_with_thousands_of_digits_becomes_the_replacement_character(number: str) -> None:
    assert tweet(status(text=f"a &#{number}; &lt;")).text == "a \ufffd <"


def test_an_old_tweet_without_entities_has_those_of_its_text() -> None:
    old = status(text="hi @bob see http://a.be/c. #fun #100 &#39;")
    del old["entities"]
    assert (tweet(old).hashtags, tweet(old).mentions, tweet(old).urls) == (["fun"], ["bob"], ["http://a.be/c"])


def test_null_members_are_zero_or_nothing() -> None:
    item = status(
        favorite_count=None,
        retweet_count=None,
        lang=None,
        created_at=None,
        entities=None,
        user=user(5, followers_count=None, name=None, screen_name=None, verified=None),
    )
    parsed = tweet(item)
    assert (parsed.favorite_count, parsed.retweet_count, parsed.lang, parsed.created_at) == (0, 0, None, None)
    assert (parsed.user.followers_count, parsed.user.screen_name, parsed.user.is_verified) == (0, "5", False)


def test_ids_beyond_2_to_the_53_stay_exact_also_without_id_str() -> None:
    item = status(2**53 + 1)
    assert tweet(item).id == "9007199254740993"
    del item["id_str"]
    assert tweet(item).id == "9007199254740993"


@pytest.mark.parametrize("tweet_id", [None, "", True, -1, 0, 1.5, [], "9" * 300])
def test_a_tweet_needs_an_id(tweet_id: Any) -> None:
    assert found(status(id_str=tweet_id, id=None)) == [Rejected("a tweet without an id")]


@pytest.mark.parametrize(
    "members", [{"id": "7"}, {"id_str": 7}, {"id_str": None, "id": "7"}, {"id_str": "", "id": "7"}]
)
def test_an_id_may_be_a_number_or_a_text(members: dict[str, Any]) -> None:
    item = {name: value for name, value in status(5, user=user(5)).items() if name not in ("id", "id_str")}
    item["user"] = {**{name: value for name, value in user().items() if name not in ("id", "id_str")}, **members}
    assert (tweet({**item, **members}).id, tweet({**item, **members}).user.id) == ("7", "7")


@pytest.mark.parametrize(
    ("members", "kind"),
    [
        ({}, "original"),
        ({"in_reply_to_status_id": 5}, "reply"),
        ({"in_reply_to_user_id_str": "5"}, "reply"),
        ({"quoted_status_id_str": "5"}, "quote"),
        ({"quoted_status_id_str": "5", "in_reply_to_status_id": 5}, "quote"),
        ({"retweeted_status": status(9), "quoted_status_id_str": "5"}, "retweet"),
    ],
)
def test_kinds(members: dict[str, Any], kind: str) -> None:
    assert tweet(status(**members)).kind == kind


def test_unpaired_surrogates_become_replacement_characters_and_pairs_stay() -> None:
    raw = json.dumps(status(text="PLACE")).replace("PLACE", r"a\ud83d b \ud83d\ude00 \ude00")
    assert tweet(raw).text == "a\ufffd b 😀 \ufffd"


def test_a_nul_in_keys_and_texts_can_be_stored() -> None:
    item = status(text="a\0b", user=user(1, name="n\0"))
    item["key\0"] = 1
    (scored,) = find(RawEvent(json.dumps(item).encode()), JOB, len, NOW)
    assert isinstance(scored, ScoredTweet)
    assert bson.decode(scored.document)["text"] == "a\0b"


def test_joined_emoji_stay_together() -> None:
    family = "👩\u200d👩\u200d👧\u200d👦"
    assert tweet(status(text=family)).text == family


def test_counts_beyond_an_int64_are_the_largest_one() -> None:
    (scored,) = find(RawEvent(json.dumps(status(favorite_count=10**30)).encode()), JOB, lambda _: 0.0, NOW)
    assert isinstance(scored, ScoredTweet)
    assert bson.decode(scored.document)["favorite_count"] == 2**63 - 1


def test_dates_are_utc_and_impossible_ones_are_missing() -> None:
    assert tweet(status()).created_at == datetime(2016, 1, 6, 7, 30, tzinfo=UTC)
    impossible: tuple[Any, ...] = (
        "",
        "yesterday",
        "Wed Foo 06 07:30:00 +0000 2016",
        "Wed Feb 31 07:30:00 +0000 2016",
        5,
        {},
    )
    for wrong in impossible:
        assert tweet(status(created_at=wrong)).created_at is None


def test_a_huge_tweet_is_rejected_with_its_size() -> None:
    huge = "x" * (1 << 19)
    for item, error in (
        (status(text=huge), "the tweet's text has 524288 characters, more than 262144"),
        (status(lang=huge), "the tweet's document has 52"),
        (status(user=user(1, description=huge)), "its author's document has 52"),
    ):
        (rejected,) = find(RawEvent(json.dumps(item).encode()), JOB, lambda _: 0.0, NOW)
        assert isinstance(rejected, Rejected)
        assert rejected.error.startswith(error)


def test_a_tweet_whose_text_is_too_large_is_not_scored() -> None:
    def score(_: str) -> float:
        raise AssertionError

    (rejected,) = find(RawEvent(json.dumps(status(text="x" * (1 << 19))).encode()), JOB, score, NOW)
    assert isinstance(rejected, Rejected)


@pytest.mark.parametrize(("characters", "said"), [(280, None), (5000, None), (5001, 5000), (200_000, 5000)])
def test_only_the_beginning_of_a_long_text_is_scored_and_the_document_records_that(
    characters: int, said: int | None
) -> None:
    scored_texts: list[str] = []

    def score(text: str) -> float:
        scored_texts.append(text)
        return 0.5

    text = "good but " * 30_000
    (scored,) = find(RawEvent(json.dumps(status(text=text[:characters])).encode()), JOB, score, NOW)
    assert isinstance(scored, ScoredTweet)
    document = bson.decode(scored.document)
    assert (document["text"], document["sentiment"]) == (text[:characters], 0.5)
    assert document.get("scored_characters") == said
    assert scored_texts == [text[: min(characters, 5000)]]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("word", ["but ", "BUT ", "good ", "not ", "very ", "😀", "! ", "? ", "kind of ", "no "])
def test_no_text_takes_long_to_score(word: str) -> None:
    text = word * (250_000 // len(word))
    job = WorkerJob("twitter", "", "test")
    (scored,) = find(RawEvent(json.dumps(status(text=text)).encode()), job, scorer_of(job), NOW)
    assert isinstance(scored, ScoredTweet | Rejected)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
MEMBERS = [*status(), "extended_tweet", "full_text", "retweeted_status", "quoted_status", "quoted_status_id_str", "id"]


@given(
    st.dictionaries(st.sampled_from(MEMBERS), JSON, max_size=6),
    st.dictionaries(st.sampled_from([*user()]), JSON, max_size=4),
)
def test_any_value_in_a_member_raises_nothing_and_tweets_can_be_stored(
    members: dict[str, Any], user_members: dict[str, Any]
) -> None:
    item = {**status(user={**user(), **user_members}), **members}
    for outcome in find(RawEvent(json.dumps(item).encode()), JOB, lambda _: 0.0, NOW):
        if isinstance(outcome, ScoredTweet):
            assert "screen_name" in bson.decode(outcome.profile)


@given(st.text())
def test_any_text_is_found_something_in(text: str) -> None:
    assert found(text)


@pytest.mark.parametrize(
    ("path", "tweets", "nested_in_them", "notices", "unusable"),
    [
        *invented("tweets/stream.jsonl", 10, 4, 4, 0),
        *invented("tweets/escaped.jsonl", 4, 2, 0, 0),
        *invented("tweets/control.jsonl", 0, 0, 5, 0),
        *recorded("tweets/stream-2016-minute-with-deletes.jsonl", 2203, 849, 890, 0),
        *recorded("tweets/escaped-2014.jsonl", 100, 73, 0, 0),
        *recorded("tweets/control-messages.jsonl", 0, 0, 200, 0),
    ],
)
def test_every_line_of_a_file_is_understood(
    path: Path, tweets: int, nested_in_them: int, notices: int, unusable: int
) -> None:
    events = [found(line) for line in path.read_text("utf-8").strip().split("\n")]
    everything = [one for event in events for one in event]
    assert sum(isinstance(event[0], Tweet) for event in events) == tweets
    assert sum(len(event) - 1 for event in events) == nested_in_them
    assert sum(isinstance(one, Notice) for one in everything) == notices
    assert sum(isinstance(one, Rejected) for one in everything) == unusable


@pytest.mark.parametrize(
    ("path", "lines", "without_author"),
    [
        *invented("tweets/shapes.jsonl", 11, 1),
        *invented("tweets/extended.jsonl", 4, 0),
        *recorded("tweets/shapes-2006-2018.jsonl", 569, 3),
        *recorded("tweets/extended-2016.jsonl", 28, 0),
    ],
)
def test_every_shape_is_a_tweet(path: Path, lines: int, without_author: int) -> None:
    events = [found(line) for line in path.read_text("utf-8").strip().split("\n")]
    assert len(events) == lines
    assert all(isinstance(event[0], Tweet) and event[0].created_at for event in events)
    unusable = [one for event in events for one in event if isinstance(one, Rejected)]
    # Quoted tweets whose authors are missing.
    assert [one.error for one in unusable] == ["a tweet without a user"] * without_author
