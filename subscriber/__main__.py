"""``python -m subscriber``."""

import sys

import anyio
from prometheus_client import REGISTRY

from broker.program import run
from subscriber.metrics import RunCollector
from subscriber.report import reporter
from subscriber.settings import SubscriberSettings
from subscriber.stress import Stress


async def serve(settings: SubscriberSettings, stop: anyio.Event) -> int:
    """Run until `stop`, the count or the time; returns 1 if anything was lost or doubled."""
    stress = Stress(settings, stop)
    REGISTRY.register(RunCollector(stress.ledgers, stress.latency))
    with reporter(settings.report) as show:
        report = await stress.run(show)
    return 0 if report.is_right else 1


if __name__ == "__main__":
    sys.exit(run(SubscriberSettings, serve))
