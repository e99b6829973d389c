"""Invent tweets: Twitter v1.1 objects as the rtp-server sends them. Each depends only on seed, route and number.

Tweet n does not depend on earlier tweets, so every connection, and a restarted simulator, sends the same ones. About a third
are retweets of popular tweets, which both routes share and whose counts grow. Some are replies, quotes, or longer than 140
characters. Sometimes a tweet appears twice, on its route or on both.

As on Twitter, a fresh tweet has no counts yet; only retweeted or quoted tweets have some. New tweets become popular all the
time, so that in every window some of the tweets seen for the first time have an engagement.
"""

import random
from functools import lru_cache
from itertools import count
from typing import Any

import msgspec

from sse_ingest.simulator.dice import dice_of
from sse_ingest.simulator.people import person, some_person, twitter_date
from sse_ingest.simulator.words import FEELINGS, LANGUAGES, TOPICS

__all__ = ["Timeline"]

POPULAR = 300
"""The number of tweets that are popular at the same time. The newest ones are retweeted most."""

POPULAR_EVERY = 5
"""After this many tweets of a route, one more tweet becomes popular.

The share of tweets that have been liked or retweeted:

- a quarter in a recorded minute of Twitter;
- a sixth here in one route;
- a tenth here in both routes together, because they share the popular tweets.
"""

FOLLOWERS_OF_POPULAR_MIN = 100

_TWITTER_EPOCH_MS = 1_288_834_974_657
_FIRST_DAY_S = 1_461_007_800.0  # 18 April 2016, 19:30 UTC, when the rtp-server's tweets were recorded
_STEP_MS = 50
_POPULAR_ROUTE = 31
_SOURCES = (
    '<a href="http://twitter.com/download/android" rel="nofollow">Twitter for Android</a>',
    '<a href="http://twitter.com/download/iphone" rel="nofollow">Twitter for iPhone</a>',
    '<a href="http://twitter.com" rel="nofollow">Twitter Web Client</a>',
)
_encode = msgspec.json.Encoder().encode


class Timeline:
    """The tweets of one route; `base_s` is the Unix time of tweet 0, or None for a day derived from the seed."""

    def __init__(self, seed: int, route: int, base_s: float | None = None) -> None:
        self.seed = seed
        self.route = route
        self._base_ms = int((_day_of(seed) if base_s is None else base_s) * 1000)

    def tweet(self, number: int) -> bytes:
        """Return tweet `number` as compact JSON."""
        return _encode(self.status(number))

    def status(self, number: int) -> dict[str, Any]:
        """Return tweet `number` as an object."""
        dice = dice_of(self.seed, self.route, number)
        kind = dice.random()
        if kind < 0.01 and number > 100:
            return self.status(number - 1 - dice.randrange(100))
        if kind < 0.02:
            return self._popular(dice.random(), number)
        status = self._blank(dice, number)
        if kind < 0.34:
            self._retweet(status, self._popular(dice.random() ** 2, number))
        elif kind < 0.38:
            self._quote(status, self._popular(dice.random(), number))
        elif kind < 0.50:
            self._reply(status, dice)
        elif kind < 0.53:
            _lengthen(status, dice)
        return status

    def _blank(self, dice: random.Random, number: int) -> dict[str, Any]:
        at_ms = self._base_ms + number * _STEP_MS
        return _status(dice, self._snowflake(at_ms, self.route, number), at_ms, _user(self.seed, some_person(dice)))

    def _popular(self, age: float, number: int) -> dict[str, Any]:
        """Return a tweet that is popular at the time of tweet `number`: the newest one for `age` 0, the oldest for 1."""
        place = number // POPULAR_EVERY - int(POPULAR * age)
        dice = dice_of(self.seed, "popular", place)
        at_ms = self._base_ms + place * POPULAR_EVERY * _STEP_MS - 60_000 - dice.randrange(86_400_000)
        author = _followed_user(self.seed, int(some_person(dice) / 10))
        status = _status(dice, self._snowflake(at_ms, _POPULAR_ROUTE, place), at_ms, author)
        growth = 1 + (number - place * POPULAR_EVERY) // 50
        # About one follower in a hundred retweets it.
        status["retweet_count"] = int(author["followers_count"] * dice.lognormvariate(-5, 1)) + growth
        status["favorite_count"] = int(author["followers_count"] * dice.lognormvariate(-4.5, 1)) + 2 * growth
        return status

    def _snowflake(self, at_ms: int, route: int, number: int) -> int:
        machine = self.seed % 32 << 5 | route
        return (at_ms - _TWITTER_EPOCH_MS) << 22 | machine << 12 | number & 0xFFF

    def _retweet(self, status: dict[str, Any], original: dict[str, Any]) -> None:
        author = original["user"]
        text = f"RT @{author['screen_name']}: {original['text']}"
        status["text"] = text if len(text) <= 140 else text[:139] + "…"
        status["lang"] = original["lang"]
        mention = _mention(author, 3)
        status["entities"] = {
            **original["entities"],
            "user_mentions": [mention, *original["entities"]["user_mentions"]],
        }
        status["retweeted_status"] = original

    def _quote(self, status: dict[str, Any], original: dict[str, Any]) -> None:
        status["is_quote_status"] = True
        status["quoted_status_id"] = original["id"]
        status["quoted_status_id_str"] = original["id_str"]
        status["quoted_status"] = original

    def _reply(self, status: dict[str, Any], dice: random.Random) -> None:
        to = _user(self.seed, some_person(dice))
        answered = self._snowflake(self._base_ms - dice.randrange(86_400_000), self.route, dice.randrange(4096))
        status["text"] = f"@{to['screen_name']} {status['text']}"
        status["entities"]["user_mentions"] = [_mention(to, 0)]
        status["in_reply_to_user_id"], status["in_reply_to_user_id_str"] = to["id"], to["id_str"]
        status["in_reply_to_status_id"], status["in_reply_to_status_id_str"] = answered, str(answered)
        status["in_reply_to_screen_name"] = to["screen_name"]


@lru_cache(maxsize=10_000)
def _user(seed: int, number: int) -> dict[str, Any]:
    return person(seed, number)


def _followed_user(seed: int, number: int) -> dict[str, Any]:
    """Return user `number`, or the next one with enough followers to become popular."""
    users = (_user(seed, later) for later in count(number))
    return next(user for user in users if user["followers_count"] >= FOLLOWERS_OF_POPULAR_MIN)


def _day_of(seed: int) -> float:
    """Return a Unix time for tweet 0 that no other seed uses, so that the ids of different seeds differ."""
    return _FIRST_DAY_S + seed % 3000 * 86_400 + seed // 3000 % 86_400


def _mention(user: dict[str, Any], start: int) -> dict[str, Any]:
    indices = [start, start + len(user["screen_name"]) + 1]
    members = {member: user[member] for member in ("screen_name", "name", "id_str", "id")}
    return {**members, "indices": indices}


def _lengthen(status: dict[str, Any], dice: random.Random) -> None:
    """Make a tweet longer than 140 characters, in Twitter's form: `text` is cut, `extended_tweet` has the whole text."""
    more = [_feeling(dice)[0] for _ in range(4)]
    whole = " ".join((status["text"], *more))[:280]
    status["extended_tweet"] = {
        "full_text": whole,
        "display_text_range": [0, len(whole)],
        "entities": status["entities"],
    }
    status["truncated"] = True
    status["text"] = whole[:116] + "…"


def _feeling(dice: random.Random) -> tuple[str, tuple[str, ...]]:
    topic, tags = dice.choice(list(TOPICS.items()))
    return dice.choice(FEELINGS).format(topic=topic), tags


def _words(dice: random.Random) -> tuple[str, str, tuple[str, ...]]:
    """Return a language, a text and its hashtags."""
    drawn = dice.randrange(100)
    for language, weight, sentences in LANGUAGES:
        if drawn < weight:
            return language, dice.choice(sentences), ("NowPlaying",)
        drawn -= weight
    text, tags = _feeling(dice)
    return "en", text, tags


def _status(dice: random.Random, tweet_id: int, at_ms: int, user: dict[str, Any]) -> dict[str, Any]:
    language, text, tags = _words(dice)
    hashtags = []
    for tag in tags if dice.random() < 0.4 else ():
        text = f"{text} #{tag}"
        hashtags.append({"text": tag, "indices": [len(text) - len(tag) - 1, len(text)]})
    urls = []
    if dice.random() < 0.15:
        short = f"https://t.co/{dice.randrange(36**6):010x}"
        text = f"{text} {short}"
        whole = f"https://example.org/{dice.randrange(10**6)}"
        urls.append(
            {
                "url": short,
                "indices": [len(text) - len(short), len(text)],
                "expanded_url": whole,
                "display_url": whole[8:],
            }
        )
    return {
        "user": user,
        "truncated": False,
        "timestamp_ms": str(at_ms),
        "text": text,
        "source": dice.choice(_SOURCES),
        "retweeted": False,
        "retweet_count": 0,
        "place": None,
        "lang": language,
        "is_quote_status": False,
        "in_reply_to_user_id_str": None,
        "in_reply_to_user_id": None,
        "in_reply_to_status_id_str": None,
        "in_reply_to_status_id": None,
        "in_reply_to_screen_name": None,
        "id_str": str(tweet_id),
        "id": tweet_id,
        "geo": None,
        "filter_level": "low",
        "favorited": False,
        "favorite_count": 0,
        "entities": {"user_mentions": [], "urls": urls, "symbols": [], "hashtags": hashtags},
        "created_at": twitter_date(at_ms / 1000),
        "coordinates": None,
        "contributors": None,
    }
