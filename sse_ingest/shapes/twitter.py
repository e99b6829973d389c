"""The objects of Twitter's API 1.1, alone or in the rtp-server's envelope, in all forms that they had from 2006 to 2018.

A tweet inside another one (``retweeted_status``, ``quoted_status``) is a separate tweet and follows its outer tweet. Twitter
cuts the text of a retweet. Here it is replaced by the whole text of the original tweet, with its hashtags and addresses.
"""

import re
from typing import Any

from sse_ingest.found import Found, Kind, Notice, Panic, Rejected, Tweet, User
from sse_ingest.shapes.entities import entities_of
from sse_ingest.shapes.values import count, date, decode, identifier, json_text, text_or_none, texts, unescaped

__all__ = ["unwrap"]

NESTED_MAX = 16
"""The most levels of nesting. Twitter uses two (a retweet of a quote); deeper nesting is an attack on the stack."""

_EVENTS = ("message", '"message"')
"""The event types of the rtp-server's messages.

The server puts the name in quotes. Its framing separates the name from the data, so the type may be empty.
"""

_NOTICES = (
    *("delete", "scrub_geo", "limit", "status_withheld", "user_withheld", "disconnect", "warning"),
    *("event", "direct_message", "friends", "friends_str", "follow", "control", "info", "close"),
)
"""Twitter's control messages: objects with a member of one of these names. The second line is for user and site streams."""

_PANIC = re.compile(rb'\s*\{\s*"message"\s*:\s*panic\s*\}\s*')


def unwrap(event: str, data: bytes, origin: str) -> list[Found]:
    """Return the contents of an event, the outer tweet first. Raises `Panic` for the kill message."""
    if event not in _EVENTS:
        return [Notice(event)]
    try:
        message = decode(data)
    except RecursionError:
        return [Rejected("the JSON is nested too deeply")]
    except ValueError as error:
        if _PANIC.fullmatch(data):
            raise Panic from None
        return [Rejected(f"not JSON: {error}")]
    return _objects(_out_of_envelope(message))


def _out_of_envelope(message: Any) -> Any:
    if isinstance(message, dict) and isinstance(message.get("message"), dict):
        message = message["message"]
        return message.get("tweet", message)
    return message


def _objects(status: Any) -> list[Found]:
    if not isinstance(status, dict):
        return [Rejected(f"not a tweet: a JSON {type(status).__name__}")]
    if "user" not in status:
        for name in _NOTICES:
            if name in status:
                return [Notice(name)]
    found: list[Found] = []
    waiting = [status]
    while waiting and len(found) < NESTED_MAX:
        outer = waiting.pop()
        nested = (outer.get("quoted_status"), outer.get("retweeted_status"))
        waiting.extend(inner for inner in nested if inner and isinstance(inner, dict))
        tweet = _tweet(outer)
        if isinstance(tweet, Rejected) and found:
            tweet.raw = json_text(outer)
        found.append(tweet)
    return found


def _tweet(status: dict[str, Any]) -> Tweet | Rejected:
    tweet_id = identifier(status.get("id_str"), status.get("id"))
    if tweet_id is None:
        return Rejected("a tweet without an id")
    user = _user(status.get("user"))
    if user is None:
        return Rejected("a tweet without a user")
    text = _full_text(status)
    if text is None:
        return Rejected("a tweet without a text")
    tags, mentions, urls = _entities(status, text)
    tweet = Tweet(
        id=tweet_id,
        text=text,
        user=user,
        lang=text_or_none(status.get("lang")),
        created_at=date(status.get("created_at")),
        hashtags=tags,
        mentions=mentions,
        urls=urls,
        kind=_kind(status),
        favorite_count=count(status.get("favorite_count")),
        retweet_count=count(status.get("retweet_count")),
    )
    if tweet.kind == "retweet":
        _repeat(tweet, status["retweeted_status"])
    return tweet


def _kind(status: dict[str, Any]) -> Kind:
    if isinstance(status.get("retweeted_status"), dict) and status["retweeted_status"]:
        return "retweet"
    if status.get("quoted_status") or status.get("quoted_status_id_str") or status.get("quoted_status_id"):
        return "quote"
    if status.get("in_reply_to_status_id_str") or status.get("in_reply_to_status_id"):
        return "reply"
    if status.get("in_reply_to_user_id_str") or status.get("in_reply_to_user_id"):
        return "reply"
    return "original"


def _full_text(status: dict[str, Any]) -> str | None:
    extended = status.get("extended_tweet")
    candidates = [extended.get("full_text")] if isinstance(extended, dict) else []
    for text in (*candidates, status.get("full_text"), status.get("text")):
        if isinstance(text, str):
            return unescaped(text)
    return None


def _entities(status: dict[str, Any], text: str) -> tuple[list[str], list[str], list[str]]:
    """Return hashtags, screen names and addresses. If the object has no lists of them, the text is searched."""
    extended = status.get("extended_tweet")
    entities = extended.get("entities") if isinstance(extended, dict) else None
    if not isinstance(entities, dict):
        entities = status.get("entities")
    if not isinstance(entities, dict):
        entities = status if "user_mentions" in status or "hashtags" in status else None
    if entities is None:
        found = entities_of(text)
        return found.hashtags, found.mentions, found.urls
    return (
        texts(entities.get("hashtags"), "text"),
        texts(entities.get("user_mentions"), "screen_name"),
        texts(entities.get("urls"), "expanded_url", "url"),
    )


def _repeat(tweet: Tweet, original: dict[str, Any]) -> None:
    """Make `tweet` a retweet of `original`."""
    tweet.retweet_of = identifier(original.get("id_str"), original.get("id"))
    text = _full_text(original)
    author = original.get("user")
    if text is None or not isinstance(author, dict) or not text_or_none(author.get("screen_name")):
        return
    tweet.text = f"RT @{author['screen_name']}: {text}"
    tags, mentions, urls = _entities(original, text)
    tweet.hashtags = list(dict.fromkeys(tags)) or tweet.hashtags
    tweet.mentions = list(dict.fromkeys([author["screen_name"], *mentions, *tweet.mentions]))
    tweet.urls = list(dict.fromkeys(urls)) or tweet.urls


def _user(author: Any) -> User | None:
    if not isinstance(author, dict):
        return None
    user_id = identifier(author.get("id_str"), author.get("id"))
    if user_id is None:
        return None
    picture = author.get("profile_image_url_https") or author.get("profile_image_url")
    profile = {
        "description": text_or_none(author.get("description")),
        "location": text_or_none(author.get("location")),
        "url": text_or_none(author.get("url")),
        "lang": text_or_none(author.get("lang")),
        "time_zone": text_or_none(author.get("time_zone")),
        "friends_count": count(author.get("friends_count")),
        "listed_count": count(author.get("listed_count")),
        "statuses_count": count(author.get("statuses_count")),
        "favourites_count": count(author.get("favourites_count")),
        "protected": author.get("protected") is True,
        "created_at": date(author.get("created_at")),
        "profile_image_url": text_or_none(picture),
    }
    return User(
        id=user_id,
        screen_name=text_or_none(author.get("screen_name")) or user_id,
        name=text_or_none(author.get("name")) or "",
        followers_count=count(author.get("followers_count")),
        is_verified=author.get("verified") is True,
        profile=profile,
    )
