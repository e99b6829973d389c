"""What the topics hold, as the tests look at it."""

import json
from collections.abc import Sequence
from typing import Any

from broker import Event, Refusal, StoredEvent, SyncClient
from tests.processes import BrokerProcess
from tests.spark.reference import Row


def stored(broker: BrokerProcess, topic: str) -> list[Row]:
    """All events of a topic as the source's rows, without a watermark."""
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
    """The windows in a statistics topic, without their totals. Fails where one came twice."""
    found: dict[str, Row] = {}
    for event in stored(broker, topic):
        msg = json.loads(event["msg"])
        del msg["totals"]
        assert event["id"] == f"{topic}:{msg['window']['start']}"
        assert event["id"] not in found, "a window came twice"
        found[event["id"]] = msg
    return {msg["window"]["start"]: msg for msg in found.values()}


def totals(broker: BrokerProcess, topic: str) -> list[Row]:
    """The totals that a statistics topic's windows carry, in the order in which they were published."""
    return [json.loads(event["msg"])["totals"] for event in stored(broker, topic)]


def publish_windows(broker: BrokerProcess, topic: str, windows: Sequence[Row]) -> None:
    """Fill a statistics topic by hand."""
    with SyncClient(broker.address) as client:
        client.publish_many(topic, [Event(id=f"{topic}:{window['window']['start']}", msg=window) for window in windows])


def publish_others(broker: BrokerProcess, topic: str, messages: Sequence[Any]) -> None:
    """Publish what is no window to a statistics topic."""
    with SyncClient(broker.address) as client:
        client.publish_many(topic, [Event(id="other", msg=message) for message in messages])


def is_tweet(row: Row) -> bool:
    change = json.loads(row["msg"])
    return isinstance(change, dict) and change.get("op") in {"insert", "snapshot"}
