"""Collect the data of a stack in containers for the demo's closing check."""

from typing import Any

from pymongo import MongoClient

from demo.check import CheckRow, check
from demo.evidence import Evidence, SubscriberAccount
from demo.subscriber_log import SubscriberLog
from demo.tally import CHANGES, Tally
from tweetwire import Client

__all__ = ["look"]

_SUBSCRIPTION = "subscriber"
_DATABASE = "rtp_sse_db"


async def look(broker_address: str, mongo_url: str, window_ms: int, reports: SubscriberLog | None) -> list[CheckRow]:
    """Read MongoDB and the topics from their first event on, and return the demo's check.

    `reports` are the reports of all processes of the subscriber. Without reports, the broker's figures of settled events are
    used.
    """
    with MongoClient[dict[str, Any]](mongo_url) as mongo:
        stored = {
            topic: {
                str(of["_id"]): of.get("tweets_seen") for of in mongo[_DATABASE][topic].find({}, {"tweets_seen": 1})
            }
            for topic in CHANGES
        }
    tally = Tally(window_ms)
    async with Client(broker_address, name="compose-test") as client:
        await tally.read(client)
        topics = (await client.stats())["topics"]
    evidence = Evidence(
        stored=stored,
        brought=tally.brought,
        seen=tally.seen,
        counted=tally.counted,
        windows=tally.windows,
        accounts={topic: _account(topic, topics[topic], reports) for topic in CHANGES},
    )
    return check(evidence)


def _account(topic: str, figures: dict[str, Any], reports: SubscriberLog | None) -> SubscriberAccount:
    of_subscription = figures["subscriptions"][_SUBSCRIPTION]
    said = {name: reports.total(topic, name) if reports else 0 for name in ("acked", "lost", "doubled")}
    return SubscriberAccount(
        owed=figures["next"],
        **said,
        unsettled=of_subscription["pending"] + of_subscription["in_flight"],
        dead=of_subscription["dead"],
        is_whole=reports is not None,
    )
