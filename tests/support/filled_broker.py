"""A broker with something of everything that it keeps, and all that a user can ask about it, to compare two brokers."""

from random import Random
from typing import Any

from tests.support.consumer import Consumer
from tests.support.processes import BrokerProcess
from tweetwire import Event, SyncClient

__all__ = ["ask_everything", "fill_broker"]


def fill_broker(broker: BrokerProcess, client: SyncClient, random: Random) -> None:
    """Make topics, priorities, settled and failed events, dead letters, producers and documents at random."""
    for topic in ("orders", "tweets"):
        events = [
            Event(id=f"e{n}", msg={"n": n}, priority=random.choice((0, 0, 3, 255)), producer=f"p{n % 3}", sequence=n)
            for n in range(400)
        ]
        client.publish_many(topic, events)
        client.checkpoint(topic, "p1", "checkpoint ☂")
        client.checkpoint(topic, "only-a-checkpoint", "c")
        client.command(f"describe {topic} about {topic}")
        client.command(f"comment {topic} a remark")
        client.command(f'schema {topic} {{"type":"object"}}')
        client.command(f"retain {topic} age=9d bytes=1GiB settled=yes")
        for name, options in (
            ("s", "from=earliest tries=1"),
            ("t", "from=9 tries=3 backoff=1h"),
            ("u", "from=250 timeout=9s"),
        ):
            with Consumer(broker, "hello c") as consumer:
                for event in consumer.type(f"sub {topic} as={name} prefetch=200 {options}"):
                    at = f"{topic} @{event['offset']}"
                    consumer.type(*random.choice(([f"ack {at}"], [f"ack {at}"], [f'nack {at} "why"'], [])))
    with Consumer(broker, "hello holder", 'pub2 orders {"id":"held","msg":{"n":-1}}'):
        pass
    client.publish("empty", Event(id="x", msg=1))


def ask_everything(client: SyncClient, topics: tuple[str, ...]) -> dict[str, Any]:
    """Return all that a user can ask about topics, except the counters of this run of the broker."""
    found: dict[str, Any] = {}
    for topic in topics:
        report = client.stats(topic)["topics"][topic]
        subscriptions = report["subscriptions"]
        info = next(one for one in client.topics() if one.topic == topic)
        found[topic] = {
            "info": (info.earliest, info.next, info.bytes, info.description, info.schema, info.comments),
            "lines": client.read_lines(topic, 0, limit=100_000),
            "retention": client.command(f"retain {topic}"),
            "producers": [client.last(topic, name) for name in ("p0", "p1", "p2", "only-a-checkpoint", "none")],
            "count": report["producers"],
            "subscriptions": {
                name: (one["policy"], one["durable"], one["pending"], one["dead"])
                for name, one in subscriptions.items()
            },
            "unsettled": [client.command(f"unsettled {topic} as={name}") for name in subscriptions],
            "backlog": [client.command(f"backlog {topic} as={name}") for name in subscriptions],
        }
    found["dead"] = client.command("dead limit=10000")
    found["letters"] = client.read_lines("dead_letters", 0, limit=100_000)
    return found
