"""``python -m bench``: measure, and print one table."""

import sys
from collections.abc import Callable
from functools import partial

from pydantic import ValidationError
from pydantic_settings import CliApp
from rich.console import Console

from bench import ceilings, wire
from bench.settings import BenchSettings
from bench.table import Row, measure, show, store

tell: Callable[[str], None] = partial(Console(stderr=True, highlight=False).print, style="dim")


def _b1(settings: BenchSettings) -> Row:
    disk = ceilings.synced_bytes_per_second(settings.events * settings.size)
    figures = measure(partial(wire.publish_confirmed, settings), settings.rounds, tell, "B1")
    row = Row("B1", "publish, confirmed synced, one connection", figures, 400_000, goal_share=0.4)
    row.ceiling = f"1 MiB write+fdatasync ({disk / 1e6:,.0f} MB/s)"
    row.share = row.median * settings.size / disk
    return row


def _b2(settings: BenchSettings) -> Row:
    figures = measure(partial(wire.publish_deliver_ack, settings), settings.rounds, tell, "B2")
    return Row("B2", "publish, priority, deliver, ack, one subscriber", figures, 300_000)


ROWS: dict[str, Callable[[BenchSettings], Row]] = {"B1": _b1, "B2": _b2}


def main() -> int:
    """Measure the rows that are wanted; status 2 for a wrong setting."""
    try:
        settings = CliApp.run(BenchSettings)
    except ValidationError as error:
        tell(str(error))
        return 2
    unknown = set(settings.only) - set(ROWS)
    if unknown:
        tell(f"there is no row {', '.join(sorted(unknown))}; the rows are {', '.join(ROWS)}")
        return 2
    rows = [ROWS[name](settings) for name in settings.only or ROWS]
    show(rows)
    tell(f"figures written to {store(rows, settings.results)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
