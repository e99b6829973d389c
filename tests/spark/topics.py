"""Read topics in the form that the tests compare, and fill topics."""

import json
from collections.abc import Sequence
from typing import Any

from tests.spark.reference import Row
from tests.support.processes import BrokerProcess
from tweetwire import Event, Refusal, StoredEvent, SyncClient


def stored(broker: BrokerProcess, topic: str) -> list[Row]:
    """Return all events of a topic as rows of the source, without a watermark."""
    events: list[StoredEvent] = []
    with SyncClient(broker.address) as client:
        try:
            while found := client.read(topic, len(events)).events:
                events += found
        except Refusal:
            return []
    return [
        {"topic": topic, "offset": e.offset, "timestamp": e.timestamp, "id": e.id, "msg": bytes(e.msg)} for e in events
    ]


def windows(broker: BrokerProcess, topic: str) -> dict[str, Row]:
    """Return the windows in a statistics topic, without their totals. Fails if a window is there twice."""
    found: dict[str, Row] = {}
    for event in stored(broker, topic):
        msg = json.loads(event["msg"])
        del msg["totals"]
        assert event["id"] == f"{topic}:{msg['window']['start']}"
        assert event["id"] not in found, "a window came twice"
        found[event["id"]] = msg
    return {msg["window"]["start"]: msg for msg in found.values()}


def totals(broker: BrokerProcess, topic: str) -> list[Row]:
    """Return the totals in the events of a statistics topic, in the order in which they were published."""
    return [json.loads(event["msg"])["totals"] for event in stored(broker, topic)]


def publish_windows(broker: BrokerProcess, topic: str, windows: Sequence[Row]) -> None:
    """Publish windows to a statistics topic."""
    with SyncClient(broker.address) as client:
        client.publish_many(topic, [Event(id=f"{topic}:{window['window']['start']}", msg=window) for window in windows])


def publish_others(broker: BrokerProcess, topic: str, messages: Sequence[Any]) -> None:
    """Publish messages that are not windows to a statistics topic."""
    with SyncClient(broker.address) as client:
        client.publish_many(topic, [Event(id="other", msg=message) for message in messages])


def is_tweet(row: Row) -> bool:
    change = json.loads(row["msg"])
    return isinstance(change, dict) and change.get("op") in {"insert", "snapshot"}
