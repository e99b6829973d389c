"""Grafana's dashboard uses only metrics that the programs export."""

import json
import re
import socket
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from change_stream.metrics import RelayCollector
from sse_ingest.hashtags import HashtagCounts
from sse_ingest.ingest import Ingest, LineSettings, StoredState, WriterSize
from sse_ingest.metrics import IngestCollector
from sse_ingest.pool import PoolSize
from sse_ingest.store import Store
from subscriber.stress.latency import LatencyHistogram
from subscriber.stress.metrics import RunCollector
from tests.support.paths import ROOT
from tests.support.processes import BrokerProcess

DASHBOARD = json.loads((ROOT / "deploy/grafana/dashboards/tweetwire.json").read_text())
QUERIES = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", [])]
ASKED_FOR = {name for query in QUERIES for name in re.findall(r"\b(?:tweetwire|process|metrics)_\w+", query)}


def names_of(text: str) -> set[str]:
    """Return the names of the metrics on a page; for a histogram, the names of its samples."""
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)", text, re.MULTILINE))
    histograms = {name for name, kind in kinds.items() if kind == "histogram"}
    return set(kinds) | {f"{name}_bucket" for name in histograms}


def exported_by(collector: Collector) -> set[str]:
    registry = CollectorRegistry()
    registry.register(collector)
    return names_of(generate_latest(registry).decode())


@pytest.fixture
def of_the_broker(tmp_path: Path) -> Iterator[set[str]]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (
        BrokerProcess(tmp_path / "broker", "--metrics-port", str(port)),
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer,
    ):
        yield names_of(answer.read().decode())


@pytest.mark.anyio
@pytest.mark.stack
async def test_every_metric_of_the_dashboard_is_exported(
    of_the_broker: set[str], mongo_url: str, tmp_path: Path
) -> None:
    store = await Store.open(mongo_url, f"dashboard_{uuid.uuid4().hex[:12]}", 30.0)
    try:
        lines = LineSettings(PoolSize(1, 1, 1, 1.0), 1, "vader", None)
        hashtags = HashtagCounts(tmp_path / "hashtags.json")
        ingest = Ingest([], lines, WriterSize(), StoredState(store, hashtags, {}))
        of_the_ingester = exported_by(IngestCollector(ingest))
        await ingest.run()
    finally:
        await store.aclose()
    exported = {
        *of_the_broker,
        *of_the_ingester,
        *exported_by(RelayCollector([])),
        *exported_by(RunCollector([], LatencyHistogram())),
        *names_of(generate_latest(REGISTRY).decode()),
    }
    of_spark = {name for name in ASKED_FOR if name.startswith("metrics_executor_")}
    assert len(ASKED_FOR) > 30
    assert ASKED_FOR - of_spark - exported == set()


def test_a_panel_has_queries_and_its_own_place() -> None:
    places: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert panel["type"] == "row" or panel["targets"], panel["title"]
        assert place["x"] + place["w"] <= 24
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & places, panel["title"]
        places |= cells
