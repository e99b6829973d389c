"""The metrics of a real broker: each figure of ``stats``, under a separate name."""

import socket
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from broker.metrics import BrokerCollector, Figures
from tests.support.processes import BrokerProcess
from tests.support.waiting import until
from tweetwire import Client, Event, SyncClient

Labels = tuple[tuple[str, str], ...]
Samples = dict[tuple[str, Labels], float]
SUBSCRIPTION = (("subscription", "s"), ("topic", "t"))


class Scraped:
    """A broker with its metrics on a port."""

    def __init__(self, process: BrokerProcess, port: int) -> None:
        self.process = process
        self._url = f"http://127.0.0.1:{port}/metrics"

    def scrape(self) -> Samples:
        with urllib.request.urlopen(self._url, timeout=10) as response:
            families = list(text_string_to_metric_families(response.read().decode()))
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in families
            for sample in family.samples
            if sample.name.startswith("tweetwire_broker_")
        }


@pytest.fixture
def scraped(tmp_path: Path) -> Iterator[Scraped]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with BrokerProcess(tmp_path / "broker", "--metrics-port", str(port)) as process:
        yield Scraped(process, port)


def scrape_until(samples: Callable[[], Samples], is_met: Callable[[Samples], bool]) -> Samples:
    """Scrape until the samples meet a condition, and return them."""
    return until(lambda: found if is_met(found := samples()) else {}, 10, samples)


def leaves(stats: dict[str, Any]) -> Iterator[tuple[Labels, float]]:
    """Yield every number of ``stats``, with the labels that its metric must have."""
    for name, value in stats.items():
        if name not in {"handshakes", "identity", "now_ms", "patterns", "topics"}:
            yield (), value
    for state, count in stats["handshakes"].items():
        yield (("state", state),), count
    for pattern in stats["patterns"]:
        labels = (("pattern", pattern["pattern"]), ("subscription", pattern["name"]))
        yield from ((labels, pattern[name]) for name in ("topics", "consumers", "in_flight"))
    for topic, report in stats["topics"].items():
        for name, value in report.items():
            if name not in {"subscriptions", "log", "marks"}:
                yield (("topic", topic),), value
        for mark, figures in report["marks"].items():
            yield from (((("mark", mark), ("topic", topic)), value) for value in figures.values())
        for subscription, figures in report["subscriptions"].items():
            labels = (("subscription", subscription), ("topic", topic))
            yield from ((labels, value) for name, value in figures.items() if name != "policy")
            for name, value in figures["policy"].items():
                if not isinstance(value, list | str):
                    yield labels, value / 1000 if name.endswith("_ms") else value


@pytest.mark.anyio
async def test_a_scrape_has_every_figure_of_stats(scraped: Scraped) -> None:
    async with Client(scraped.process.address) as client:
        async with client.publisher("t") as publisher:
            await publisher.publish_many(Event(id=str(n), msg=n, priority=n % 2) for n in range(50))
        again = Event(id="p", msg=0, producer="p", sequence=1)
        await client.publish("u", again)
        await client.publish("u", again)
        subscription = await client.subscribe("t", as_="s", prefetch=20, from_="earliest")
        batch = await anext(subscription)
        await subscription.ack(batch[:7])
        await client.publish("many.a", Event(id="1", msg=1))
        await client.subscribe("many.*", as_="m", from_="earliest")
        await client.command(f'nack t @{batch[7].offset} "no"')
        await client.mark("t", "m", 10, excepted=[3])
        stats = await client.stats()
        samples = scraped.scrape()
        by_labels: dict[Labels, list[float]] = {}
        for (name, labels), value in samples.items():
            if name != "tweetwire_broker_connection_ends_total":
                by_labels.setdefault(tuple(label for label in labels if label[0] != "cause"), []).append(value)
        expected: dict[Labels, list[float]] = {}
        for labels, value in leaves(stats):
            expected.setdefault(labels, []).append(value)
        # Each figure has exactly one metric. Figures that are not named below are compared by their values.
        assert {labels: sorted(values) for labels, values in by_labels.items()} == {
            labels: sorted(values) for labels, values in expected.items()
        }
        assert samples["tweetwire_broker_commands_total", ()] == stats["commands"]
        assert samples["tweetwire_broker_connections", ()] == 1
        pattern = (("pattern", "many.*"), ("subscription", "m"))
        assert samples["tweetwire_broker_pattern_topics", pattern] == 1
        assert samples["tweetwire_broker_events_published_total", (("topic", "t"),)] == 50
        assert samples["tweetwire_broker_events_duplicate_total", (("topic", "u"),)] == 1
        assert samples["tweetwire_broker_log_next_offset", (("topic", "t"),)] == 50
        assert samples["tweetwire_broker_log_bytes", (("topic", "t"),)] == stats["topics"]["t"]["bytes"]
        assert samples["tweetwire_broker_events_in_flight", SUBSCRIPTION] == 20
        assert samples["tweetwire_broker_events_pending", SUBSCRIPTION] == 23
        assert samples["tweetwire_broker_events_settled_total", SUBSCRIPTION] == 7
        assert samples["tweetwire_broker_subscription_timeout_seconds", SUBSCRIPTION] == 30
        assert samples["tweetwire_broker_failed_tries_total", (("cause", "nack"),)] == 1


def test_metrics_count_dead_letters_and_the_ends_of_connections(scraped: Scraped) -> None:
    with socket.create_connection(("127.0.0.1", scraped.process.port), 10) as connection:
        connection.sendall(b'sub t as=s tries=1 create\npub t {"id":"1","msg":1}\n')
        lines = connection.makefile("rb")
        while not lines.readline().startswith(b"{"):
            pass
        connection.sendall(b"nack t 1\nquit\n")
        assert lines.read().endswith(b"+OK bye\n")
    with socket.create_connection(("127.0.0.1", scraped.process.port), 10) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        while connection.recv(4096):
            pass
    left = ("tweetwire_broker_connection_ends_total", (("reason", "left"),))
    foreign = ("tweetwire_broker_connection_ends_total", (("reason", "foreign"),))
    samples = scrape_until(scraped.scrape, lambda found: found[left] == found[foreign] == 1)
    assert samples["tweetwire_broker_events_dead", SUBSCRIPTION] == 1
    assert samples["tweetwire_broker_connections", ()] == 0


def test_a_scrape_during_publishing_has_consistent_figures(scraped: Scraped) -> None:
    with SyncClient(scraped.process.address) as client:
        client.publish("t", Event(id="first", msg=0))
        publishing = Thread(
            target=client.publish_many, args=("t", [Event(id=str(n), msg=n) for n in range(60_000)]), daemon=True
        )
        publishing.start()
        seen = set()
        at = (("topic", "t"),)
        while publishing.is_alive():
            samples = scraped.scrape()
            published = samples["tweetwire_broker_events_published_total", at]
            assert samples["tweetwire_broker_log_next_offset", at] == published
            seen.add(published)
        publishing.join()
        assert len(seen) > 2
        assert scraped.scrape()["tweetwire_broker_events_published_total", at] == 60_001


def test_a_broker_that_is_ending_answers_with_no_figures() -> None:
    registry = CollectorRegistry(auto_describe=True)
    registry.register(BrokerCollector(lambda: None))
    assert list(registry.collect()) == []


def test_a_counter_that_is_not_listed_keeps_its_name() -> None:
    registry = CollectorRegistry(auto_describe=True)
    registry.register(BrokerCollector(lambda: Figures(counts | {"novel": 7}, {})))
    assert registry.get_sample_value("tweetwire_broker_novel_total") == 7


counts: dict[str, Any] = {
    **dict.fromkeys(
        ("connections", "commands", "refused", "rejected_lines", "delivered", "acked", "expired", "damaged"), 0
    ),
    **dict.fromkeys(("requests", "replied", "unreplied", "confirmed_replicated", "confirmed_late"), 0),
    "topics": {},
}
