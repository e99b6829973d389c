"""``python -m subscriber`` runs the stress test; the commands ``publish`` and ``history`` are other programs."""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import anyio
import msgspec
from prometheus_client import REGISTRY

from subscriber.handlers.history import HistorySettings, show_history
from subscriber.stress.metrics import RunCollector
from subscriber.stress.page import page
from subscriber.stress.publishing import PublishSettings, publish
from subscriber.stress.report import StressReport, reporter
from subscriber.stress.run import Stress
from subscriber.stress.settings import SubscriberSettings
from tweetwire.runtime.output import naming_flag
from tweetwire.runtime.program import run

COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "publish": partial(run, PublishSettings, publish),
    "history": partial(run, HistorySettings, show_history),
}


async def serve(settings: SubscriberSettings, stop: anyio.Event) -> int:
    """Run until `stop`, the count or the time. Return 1 if anything was lost, doubled or out of order, else 0."""
    stress = Stress(settings, stop)
    REGISTRY.register(RunCollector(stress.account.ledgers, stress.account.latency))
    with reporter(settings.report) as show:
        report = await stress.run(show)
    await _write(report, settings)
    return 0 if report.is_right else 1


async def _write(report: StressReport, settings: SubscriberSettings) -> None:
    if settings.json_file is not None:
        await _write_file(settings.json_file, msgspec.json.encode(report).decode() + "\n", "--json-file")
    if settings.html is not None:
        await _write_file(settings.html, page(report, f"Stress of {settings.broker}"), "--html")


async def _write_file(path: Path, text: str, flag: str) -> None:
    # Write the file in place instead of replacing it: a person may name a pipe or /dev/stdout.
    with naming_flag(path, flag):
        await anyio.Path(path).write_text(text, "utf-8")


def main(argv: Sequence[str]) -> int:
    """Run a command, or the stress test if there is none, and return the exit status."""
    if argv and argv[0] in COMMANDS:
        return COMMANDS[argv[0]](argv[1:])
    return run(SubscriberSettings, serve, argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
