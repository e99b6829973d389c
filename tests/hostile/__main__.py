"""``python -m tests.hostile``: attack real servers while another client pings them, and print a table."""

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from pydantic import Field
from pydantic_settings import BaseSettings
from rich.console import Console
from rich.table import Table

from demo.mongod import mongodb
from tests.hostile.attacks import ATTACKS, Attack
from tests.hostile.target import Kind, Measured, Target, broker_target, ingester_target, measured
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.flags import read_flags
from tweetwire.runtime.kinds import Bytes, Seconds
from tweetwire.runtime.program import settings_config

LIMIT_MS: Final = 250.0
LIMIT_OF_BASELINE: Final = 3.0


class HostileSettings(BaseSettings):
    """Attack the broker and the ingester. Status 1 if a process ends, memory grows too far, or other clients wait too long."""

    model_config = settings_config("python -m tests.hostile")

    only: str = Field("", description="make only the attacks whose name has this text")
    size: float = Field(1.0, gt=0, le=1, description="share of each attack that is made")
    time: Seconds = Field(
        "0s", ge=0, validate_default=True, description="repeat all attacks until this much time is over"
    )
    resident_max: Bytes = Field("300MiB", ge=0, validate_default=True, description="most resident memory of the server")


class Outcome(NamedTuple):
    """The outcome of one attack. `failure` is empty if no limit was exceeded."""

    attack: Attack
    found: Measured | None
    failure: str


@contextmanager
def _target(kind: Kind, folder: Path) -> Iterator[Target]:
    if kind == "ingester":
        with mongodb(folder / "mongod") as url, ingester_target(folder, url) as target:
            yield target
    else:
        with broker_target(kind, folder) as target:
            yield target


def _outcome(attack: Attack, settings: HostileSettings) -> Outcome:
    """Run one attack on a separate server."""
    with TemporaryDirectory(prefix="tweetwire-hostile-") as folder, _target(attack.kind, Path(folder)) as target:
        try:
            found = measured(target, lambda attacked: attack.run(attacked, settings.size))
        except (AssertionError, OSError) as error:
            return Outcome(attack, None, f"{type(error).__name__}: {error}"[-300:])
    limit_ms = max(LIMIT_MS, LIMIT_OF_BASELINE * found.before.worst_ms)
    if found.during.worst_ms > limit_ms:
        return Outcome(
            attack, found, f"the victim waited {found.during.worst_ms:,.0f} ms; the limit is {limit_ms:,.0f} ms"
        )
    if found.peak_bytes > settings.resident_max:
        return Outcome(attack, found, f"resident memory reached {found.peak_bytes >> 20} MiB")
    return Outcome(attack, found, "")


def _show(outcomes: list[Outcome]) -> None:
    table = Table(title="attacks")
    for heading in ("attack", "done", "worst ping without", "worst ping", "median ping", "peak memory", ""):
        table.add_column(heading, justify="left" if heading in ("attack", "") else "right")
    for attack, found, failure in outcomes:
        figures = ["", "", "", "", ""]
        if found is not None:
            pings = (found.before.worst_ms, found.during.worst_ms, found.during.median_ms)
            figures = [
                f"{found.done:,} {attack.unit}",
                *(f"{ms:.1f} ms" for ms in pings),
                f"{found.peak_bytes >> 20} MiB",
            ]
        table.add_row(attack.name, *figures, failure or "held")
    Console(width=160).print(table)


def main() -> int:
    """Run the attacks. Returns 2 for a wrong setting."""
    try:
        settings = read_flags(HostileSettings, sys.argv[1:])
    except StartError as error:
        print(error, file=sys.stderr)
        return 2
    attacks = [attack for attack in ATTACKS if settings.only in attack.name]
    if not attacks:
        print(f"no attack has {settings.only!r} in its name", file=sys.stderr)
        return 2
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    outcomes: list[Outcome] = []
    deadline = time.monotonic() + settings.time
    while not outcomes or time.monotonic() < deadline:
        for number, attack in enumerate(attacks):
            if outcomes and len(outcomes) >= len(attacks) and time.monotonic() >= deadline:
                break
            outcome = _outcome(attack, settings)
            outcomes.append(outcome)
            print(f"{number + 1}/{len(attacks)} {attack.name}: {outcome.failure or 'held'}", file=sys.stderr)
    _show(outcomes)
    return int(any(outcome.failure for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
