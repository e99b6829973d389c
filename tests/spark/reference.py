"""The statistics computed window by window in plain Python, for a comparison with the results of Spark."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

Row = dict[str, Any]
"""A row of the source: topic, offset, timestamp (ms), id, key, msg (JSON text), and watermark (ms)."""

_KINDS = ("original", "reply", "retweet", "quote")
_SIGNS = ("positive", "neutral", "negative")


def iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def percentile(values: list[float], share: float) -> float | None:
    if not values:
        return None
    ordered = sorted(values)
    place = (len(ordered) - 1) * share
    low, high = math.floor(place), math.ceil(place)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def mean(values: list[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def top(counts: dict[str, int]) -> list[Row]:
    best = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:10]
    return [{"key": key, "count": count} for key, count in best]


class Window:
    def __init__(self) -> None:
        self.tweets: list[Row] = []
        self.late = 0
        self.new_users = 0


def windows(rows: Iterable[Row], window_ms: int, users_topic: str | None = None) -> dict[int, Window]:
    found: dict[int, Window] = defaultdict(Window)
    for row in rows:
        change = msgspec.json.decode(row["msg"])
        is_user = row["topic"] == users_topic
        if not isinstance(change, dict) or change.get("op") not in ({"insert"} if is_user else {"insert", "snapshot"}):
            continue
        at = max(0, min(change.get("at") or row["timestamp"], row["timestamp"]))
        watermark = row.get("watermark", 0)
        start = at - at % window_ms
        is_late = start + window_ms <= watermark
        if is_late:
            start = watermark - watermark % window_ms
        window = found[start]
        if is_user:
            window.new_users += 1
        elif is_late:
            window.late += 1
        else:
            document = change.get("document") or {}
            window.tweets.append({**document, "lag": row["timestamp"] - at, "offset": row["offset"]})
    return found


def tweets_stats(rows: Iterable[Row], window_ms: int) -> dict[int, Row]:
    return {
        start: _tweets_window(window, start, window_ms)
        for start, window in windows(rows, window_ms).items()
        if window.tweets or window.late
    }


def users_stats(rows: Iterable[Row], window_ms: int, users_topic: str = "users") -> dict[int, Row]:
    return {
        start: _users_window(window, start, window_ms)
        for start, window in windows(rows, window_ms, users_topic).items()
    }


def tweets_totals(windows: list[Row]) -> Row:
    """Return the sums over consecutive windows."""
    weights = [sum(window["sentiment"][sign] for sign in _SIGNS) for window in windows]
    sums = [window["sentiment"]["mean"] * weight for window, weight in zip(windows, weights, strict=True) if weight]
    return {
        **_spans(windows),
        "tweets": sum(window["tweets"] for window in windows),
        "late": sum(window["late"] for window in windows),
        "kinds": {kind: sum(window["kinds"][kind] for window in windows) for kind in _KINDS},
        "sentiment": {
            "mean": math.fsum(sums) / sum(weights) if sums else None,
            **{sign: sum(window["sentiment"][sign] for window in windows) for sign in _SIGNS},
        },
    }


def users_totals(windows: list[Row]) -> Row:
    """Return the sums over consecutive windows."""
    return {
        **_spans(windows),
        "new_users": sum(window["new_users"] for window in windows),
        "tweets": sum(round(window["active_users"] * (window["tweets_per_user"] or 0)) for window in windows),
        "late": sum(window["late"] for window in windows),
    }


def _spans(windows: list[Row]) -> Row:
    return {
        "since": windows[0]["window"]["start"],
        "until": windows[-1]["window"]["end"],
        "windows": len(windows),
    }


def _tweets_window(window: Window, start: int, window_ms: int) -> Row:
    tweets = window.tweets
    sentiments = [tweet["sentiment"] for tweet in tweets if tweet.get("sentiment") is not None]
    engagements = [tweet["engagement"] for tweet in tweets if tweet.get("engagement") is not None]
    lags = [tweet["lag"] for tweet in tweets]
    kinds = Counter(tweet.get("kind") or "original" for tweet in tweets)
    return {
        "window": {"start": iso(start), "end": iso(start + window_ms)},
        "tweets": len(tweets),
        "per_second": len(tweets) / (window_ms / 1000),
        "kinds": {kind: kinds[kind] for kind in _KINDS},
        "languages": top(Counter(tweet.get("lang") or "und" for tweet in tweets)),
        "hashtags": top(Counter(tag for tweet in tweets for tag in set(tweet.get("hashtags") or ()) - {None})),
        "mentions": top(Counter(tag for tweet in tweets for tag in set(tweet.get("mentions") or ()) - {None})),
        "sentiment": {
            "mean": mean(sentiments),
            "p50": percentile(sentiments, 0.5),
            "p95": percentile(sentiments, 0.95),
            "positive": sum(score >= 0.05 for score in sentiments),
            "neutral": sum(-0.05 < score < 0.05 for score in sentiments),
            "negative": sum(score <= -0.05 for score in sentiments),
        },
        "engagement": {
            "mean": mean(engagements),
            "p75": percentile(engagements, 0.75),
            "p85": percentile(engagements, 0.85),
            "p95": percentile(engagements, 0.95),
        },
        "unique_users": len({tweet["user"]["id_str"] for tweet in tweets if (tweet.get("user") or {}).get("id_str")}),
        "lag_ms": {"p50": percentile(lags, 0.5), "p95": percentile(lags, 0.95)},
        "late": window.late,
        "is_final": True,
    }


def _users_window(window: Window, start: int, window_ms: int) -> Row:
    by_user: dict[str, list[Row]] = defaultdict(list)
    for tweet in window.tweets:
        user_id = (tweet.get("user") or {}).get("id_str")
        if user_id is not None:
            by_user[user_id].append(tweet)
    last = {user: max(tweets, key=lambda tweet: tweet["offset"])["user"] for user, tweets in by_user.items()}
    followers = {user: profile.get("followers_count") or 0 for user, profile in last.items()}
    measures: dict[str, dict[str, float]] = {
        "tweets": {user: len(tweets) for user, tweets in by_user.items()},
        "engagement": {
            user: math.fsum(tweet.get("engagement") or 0.0 for tweet in tweets) for user, tweets in by_user.items()
        },
        "followers": followers,
    }
    return {
        "window": {"start": iso(start), "end": iso(start + window_ms)},
        "active_users": len(by_user),
        "new_users": window.new_users,
        "verified_share": mean([float(bool(profile.get("verified"))) for profile in last.values()]),
        "followers": {
            "p50": percentile(list(followers.values()), 0.5),
            "p95": percentile(list(followers.values()), 0.95),
        },
        "tweets_per_user": sum(map(len, by_user.values())) / len(by_user) if by_user else None,
        **{f"top_by_{name}": _best(name, values, last) for name, values in measures.items()},
        "late": window.late,
        "is_final": True,
    }


def _best(name: str, values: dict[str, float], profiles: dict[str, Row]) -> list[Row]:
    ranked = sorted(values.items(), key=lambda item: (-item[1], item[0]))[:10]
    return [{"key": user, "screen_name": profiles[user].get("screen_name"), name: value} for user, value in ranked]
