"""What a benchmark run is told."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings

from broker.program import settings_config

__all__ = ["BenchSettings"]


class BenchSettings(BaseSettings):
    """Measures the broker; every figure stands beside its ceiling of the same run. Compare ratios, not machines."""

    model_config = settings_config("python -m bench")

    only: list[str] = Field([], description="rows to measure, e.g. B1 (repeatable; all when left out)")
    events: int = Field(500_000, ge=1000, description="events of a run")
    backlog: int = Field(10_000_000, ge=1000, description="events of the long log of row B8")
    size: int = Field(200, ge=60, description="length of a stored event line (bytes, about)")
    rounds: int = Field(5, ge=1, description="runs of each row; the median is told, with the lowest and the highest")
    results: Path = Field(Path("bench/results"), description="folder that the figures are written to, as JSON")
