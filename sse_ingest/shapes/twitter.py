"""Twitter's API 1.1 objects, bare or in the rtp-server's envelope, in every form they had from 2006 to 2018.

A tweet inside another (``retweeted_status``, ``quoted_status``) is a tweet of its own and follows the one it was in.
The text of a retweet is cut by Twitter; here it is written out with the whole text of what it repeats, and has its
hashtags and addresses too.
"""

import re
from html import unescape
from typing import Any

from sse_ingest.found import Found, Kind, Notice, Panic, Tweet, Unusable, User
from sse_ingest.shapes.values import count, date, decode, identifier, json_text, text_or_none, texts

__all__ = ["unwrap"]

NESTED_MAX = 16
"""Twitter nests two levels (a retweet of a quote); what goes deeper than this is an attack on the stack."""

_EVENTS = ("message", '"message"')
"""The rtp-server puts its event's name in quotes; as it frames them, the name is dropped with its empty block."""

_NOTICES = (
    "delete",
    "scrub_geo",
    "limit",
    "status_withheld",
    "user_withheld",
    "disconnect",
    "warning",
    "event",
    "friends",
    "friends_str",
)
_PANIC = re.compile(rb'\s*\{\s*"message"\s*:\s*panic\s*\}\s*')
_HASHTAG = re.compile(r"(?<![\w&])[#＃](\w*[^\W\d_]\w*)")
_MENTION = re.compile(r"(?<![\w@])@(\w{1,15})")
_URL = re.compile(r"https?://[^\s<>\"]+")


def unwrap(event: str, data: bytes, origin: str) -> list[Found]:
    """Return what the event holds, the outer tweet first. Raises `Panic` for the kill message."""
    if event not in _EVENTS:
        return [Notice(event)]
    try:
        message = decode(data)
    except RecursionError:
        return [Unusable("the JSON is nested too deeply")]
    except ValueError as error:
        if _PANIC.fullmatch(data):
            raise Panic from None
        return [Unusable(f"no JSON: {error}")]
    return _objects(_out_of_envelope(message))


def _out_of_envelope(message: Any) -> Any:
    if isinstance(message, dict) and isinstance(message.get("message"), dict):
        message = message["message"]
        return message.get("tweet", message)
    return message


def _objects(status: Any) -> list[Found]:
    if not isinstance(status, dict):
        return [Unusable(f"no tweet: a JSON {type(status).__name__}")]
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
        if isinstance(tweet, Unusable) and found:
            tweet.raw = json_text(outer)
        found.append(tweet)
    return found


def _tweet(status: dict[str, Any]) -> Tweet | Unusable:
    tweet_id = identifier(status.get("id_str"), status.get("id"))
    if tweet_id is None:
        return Unusable("a tweet without an id")
    user = _user(status.get("user"))
    if user is None:
        return Unusable("a tweet without a user")
    text = _full_text(status)
    if text is None:
        return Unusable("a tweet without a text")
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
            return unescape(text) if "&" in text else text
    return None


def _entities(status: dict[str, Any], text: str) -> tuple[list[str], list[str], list[str]]:
    """Return hashtags, mentioned screen names and addresses; found in the text where the object lists none at all."""
    extended = status.get("extended_tweet")
    entities = extended.get("entities") if isinstance(extended, dict) else None
    if not isinstance(entities, dict):
        entities = status.get("entities")
    if not isinstance(entities, dict):
        entities = status if "user_mentions" in status or "hashtags" in status else None
    if entities is None:
        return (
            list(dict.fromkeys(_HASHTAG.findall(text))),
            list(dict.fromkeys(_MENTION.findall(text))),
            list(dict.fromkeys(_URL.findall(text))),
        )
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
