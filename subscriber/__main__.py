"""``python -m subscriber``: the stress run; with a command, ``publish`` or ``history``, something else."""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import anyio
import msgspec
from prometheus_client import REGISTRY

from broker.errors import StartError
from broker.program import run
from subscriber.history import HistorySettings, show_history
from subscriber.metrics import RunCollector
from subscriber.page import page
from subscriber.publishing import PublishSettings, publish
from subscriber.report import Report, reporter
from subscriber.settings import SubscriberSettings
from subscriber.stress import Stress

COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "publish": partial(run, PublishSettings, publish),
    "history": partial(run, HistorySettings, show_history),
}


async def serve(settings: SubscriberSettings, stop: anyio.Event) -> int:
    """Run until `stop`, the count or the time; returns 1 if anything was lost, doubled or out of order."""
    stress = Stress(settings, stop)
    REGISTRY.register(RunCollector(stress.account.ledgers, stress.account.latency))
    with reporter(settings.report) as show:
        report = await stress.run(show)
    await _write(report, settings)
    return 0 if report.is_right else 1


async def _write(report: Report, settings: SubscriberSettings) -> None:
    if settings.json_file is not None:
        await _write_file(settings.json_file, msgspec.json.encode(report).decode() + "\n", "--json-file")
    if settings.html is not None:
        await _write_file(settings.html, page(report, f"Stress of {settings.broker}"), "--html")


async def _write_file(path: Path, text: str, flag: str) -> None:
    try:
        await anyio.Path(path).write_text(text, "utf-8")
    except OSError as error:
        raise StartError(f"cannot write {path}: {error.strerror}; choose another: {flag}") from error


def main(argv: Sequence[str]) -> int:
    """Carry out a command, or the stress run. Returns the exit status."""
    if argv and argv[0] in COMMANDS:
        return COMMANDS[argv[0]](argv[1:])
    return run(SubscriberSettings, serve, argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
