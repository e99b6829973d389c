"""The settings of a benchmark run."""

from pathlib import Path
from typing import Self

from pydantic import Field
from pydantic_settings import BaseSettings, CliPositionalArg

from tweetwire.runtime.kinds import Folder, Seconds
from tweetwire.runtime.program import settings_config

__all__ = ["BenchSettings", "CompareSettings"]


class BenchSettings(BaseSettings):
    """Measures the broker and the pipeline; every figure is shown with its ceiling of the same run.

    `compare OLD.json NEW.json` compares two runs. The exit status is 1 if a row failed, and 130 after Ctrl-C; the figures
    measured so far are kept.
    """

    model_config = settings_config("python -m bench")

    only: list[str] = Field([], description="rows to measure, e.g. B1 (repeatable; all when left out)")
    events: int = Field(500_000, ge=1000, description="events of a round; slow rows take a share of them")
    backlog: int = Field(10_000_000, ge=1000, description="events of the long log of row B8")
    size: int = Field(200, ge=60, description="length of a stored event line (bytes, about)")
    rounds: int = Field(5, ge=1, description="rounds of each row; the median counts, the lowest and highest are shown")
    row_time: Seconds = Field(
        "45s",
        validate_default=True,
        description="no row begins a round that would end later than this after its first",
    )
    budget: Seconds = Field("18m", validate_default=True, description="no row begins later than this")
    scales: list[float] = Field(
        [0.1, 1.0, 10.0], description="times the work of the scale runs: how cost grows (repeatable; 0: none)"
    )
    scale_events: int = Field(
        300_000, ge=1000, description="events of a scale run at 1; slow rows take a share of them"
    )
    results: Folder = Field(Path("bench/results"), description="folder that JSON and a page with plots are written to")

    def with_share(self, share: float) -> Self:
        """Return settings with fewer events, for a row that would take too long with all of them."""
        return self.model_copy(update={"events": max(1000, round(self.events * share))})


class CompareSettings(BaseSettings):
    """Compares the medians of two runs, with their ratio."""

    model_config = settings_config("python -m bench compare")

    old: CliPositionalArg[Path] = Field(description="JSON file of the first run")
    new: CliPositionalArg[Path] = Field(description="JSON file of the second run")
