"""``python -m bench`` measures, prints one table, writes JSON and a page; ``compare OLD NEW`` compares two runs."""

import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from rich.console import Console

from bench.compare import compare
from bench.machine import machine_facts, peer_versions
from bench.page import page
from bench.results import Results, read_results
from bench.rows import ROWS
from bench.runner import Runner
from bench.settings import BenchSettings, CompareSettings
from bench.table import show_compared, show_growths, show_rows
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.flags import read_flags

FAILED = 1
WRONG_SETTING = 2
INTERRUPTED = 130

tell: Callable[[str], None] = partial(Console(stderr=True, highlight=False).print, style="dim", markup=False)


def main(words: list[str]) -> int:
    """Run the command, and return the exit status."""
    try:
        if words[:1] == ["compare"]:
            return _compare(read_flags(CompareSettings, words[1:]))
        return _measure(read_flags(BenchSettings, words))
    except StartError as error:
        tell(str(error))
        return WRONG_SETTING


def _compare(settings: CompareSettings) -> int:
    try:
        show_compared(compare(read_results(settings.old), read_results(settings.new)))
    except OSError as error:
        tell(f"cannot compare: {error.filename}: {error.strerror}")
        return WRONG_SETTING
    except ValueError as error:
        tell(f"cannot compare: {error}")
        return WRONG_SETTING
    return 0


def _measure(settings: BenchSettings) -> int:
    unknown = set(settings.only) - set(ROWS)
    if unknown:
        tell(f"there is no row {', '.join(sorted(unknown))}; the rows are {', '.join(ROWS)} (B6 measures B7 as well)")
        return WRONG_SETTING
    began, machine = datetime.now(UTC), machine_facts()
    runner, is_complete = Runner(settings, tell), True
    try:
        runner.run()
    except KeyboardInterrupt:
        is_complete = False
    _keep(
        Results(
            began=began,
            seconds=runner.seconds,
            is_complete=is_complete,
            machine=machine,
            versions=peer_versions(),
            settings={name: str(value) for name, value in settings.model_dump().items()},
            rows=runner.rows,
            growths=runner.growths,
        ),
        settings,
    )
    return FAILED if runner.is_failed else 0 if is_complete else INTERRUPTED


def _keep(results: Results, settings: BenchSettings) -> None:
    show_rows(results.rows)
    if results.growths:
        show_growths(results.growths)
    settings.results.mkdir(parents=True, exist_ok=True)
    path = settings.results / results.stem
    results.write(path.with_suffix(".json"))
    path.with_suffix(".html").write_text(page(results))
    tell(f"{results.seconds:.0f} s; written to {path}.json and {path}.html")


if __name__ == "__main__":
    # SIGTERM too must keep the figures that were measured so far.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
