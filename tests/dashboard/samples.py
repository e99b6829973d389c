"""Messages as the programs of the stack publish them, taken from a run of the demo and shortened."""

from typing import Any

from tweetwire import Event, SyncClient
from tweetwire.cluster import CLUSTER_VIEW, BrokerSeen, CentreView, Heartbeat, TopicHeld

__all__ = ["TWEET", "ingester", "publish_cluster", "publish_stack", "tweets_window", "users_window"]

TWEET: dict[str, Any] = {
    "op": "insert",
    "collection": "tweets",
    "document": {
        "_id": "2126495693349327150",
        "text": "لا أصدق ما حدث اليوم",
        "lang": "ar",
        "user": {"id_str": "186488571", "screen_name": "kira_8d9", "followers_count": 259, "verified": False},
        "hashtags": [],
        "sentiment": 0.0,
        "engagement": 0.0,
    },
    "changed": None,
    "before": None,
    "at": 1795830173319,
}


def tweets_window(second: int, *, tweets: int = 597) -> dict[str, Any]:
    """A final window of five seconds of `tweets_stats`."""
    return {
        "window": _window(second),
        "tweets": tweets,
        "per_second": tweets / 5,
        "kinds": {"original": 313, "reply": 67, "retweet": 194, "quote": 23},
        "languages": [{"key": "en", "count": 342}, {"key": "ja", "count": 77}],
        "hashtags": [{"key": "NowPlaying", "count": 109}, {"key": "Tech", "count": 16}],
        "mentions": [{"key": "rosa_022", "count": 25}],
        "sentiment": {"mean": -0.016, "p50": 0.0, "p95": 0.826, "positive": 133, "neutral": 322, "negative": 142},
        "engagement": {"mean": 0.0, "p75": 0.0, "p85": 0.0, "p95": 0.0},
        "unique_users": 471,
        "lag_ms": {"p50": 22.0, "p95": 63.0},
        "late": 2,
        "is_final": True,
    }


def users_window(second: int) -> dict[str, Any]:
    """A final window of five seconds of `users_stats`."""
    return {
        "window": _window(second),
        "active_users": 469,
        "new_users": 28,
        "verified_share": 0.068,
        "followers": {"p50": 329.0, "p95": 11765.2},
        "tweets_per_user": 1.27,
        "top_by_tweets": [{"key": "100203198", "screen_name": "rosa_022", "tweets": 31}],
        "top_by_engagement": [{"key": "100203198", "screen_name": "rosa_022", "engagement": 0.25}],
        "top_by_followers": [{"key": "126517177", "screen_name": None, "followers": 91378}],
        "late": 0,
        "is_final": True,
    }


def ingester(stored: int) -> dict[str, Any]:
    """A message of the ingester's statistics."""
    return {
        "workers": {"127.0.0.1:37065/tweets/1": 2, "replay": 1},
        "panics": 101,
        "crashes": 0,
        "events": {"in": 20503, "stored": stored, "already_there": 7488, "rejected": 101, "queued": 89},
        "worker_ms": {"p75": 0.379, "p85": 0.464, "p95": 0.7},
        "tweets_write_ms": {"p75": 30.221, "p85": 38.261, "p95": 38.261},
        "users_write_ms": {"p75": None, "p85": None, "p95": None},
    }


def publish_stack(client: SyncClient) -> None:
    """Publish the events of a running stack."""
    for number in range(3):
        change = TWEET | {"at": TWEET["at"] + number}
        sequenced: dict[str, Any] = {"producer": "cdc.rtp_sse_db.tweets", "sequence": number + 1}
        client.publish("tweets", Event(id=f"t-{number}", key="186488571", priority=2, msg=change, **sequenced))
        client.publish("logger_stats", Event(id=f"l-{number}", msg=ingester(20221 + number)))
        for topic, window in (("tweets_stats", tweets_window(5 * number)), ("users_stats", users_window(5 * number))):
            batch: dict[str, Any] = {"producer": "spark.5faeeeef", "sequence": (number + 7) << 20}
            client.publish(topic, Event(id=f"{topic}:{window['window']['start']}", msg=window, **batch))


def publish_cluster(client: SyncClient) -> None:
    """Publish the view of a bridge: this broker, and another one that is silent."""
    held = [TopicHeld("<b>orders</b>", 0, 1040, {"redis.orders": 17})]
    plain: dict[str, Any] = {"version": "0.1.0", "at_ms": 1795830173319, "every_s": 10.0}
    identity = client.stats()["identity"]
    brokers = [
        BrokerSeen(Heartbeat(broker=identity, address="berlin:8000", topics=held, **plain), 3.0),
        BrokerSeen(Heartbeat(broker="Q7rWq0aM2Z9cXy81LfTbKe", address="lima:8000", topics=held, **plain), 125.0),
    ]
    client.publish(CLUSTER_VIEW, Event(id="v-1", msg=CentreView(centre="redis://centre:6379", brokers=brokers)))


def _window(second: int) -> dict[str, str]:
    return {"start": f"2026-11-28T01:43:{second:02}.000Z", "end": f"2026-11-28T01:43:{second + 5:02}.000Z"}
