"""What the plot can be told."""

from pathlib import Path

from pydantic import Field, field_validator

from broker.program import ClientSettings, settings_config
from broker.units import Seconds

__all__ = ["PlotSettings"]


class PlotSettings(ClientSettings):
    """Draw the last hour of both statistics topics: one HTML page that needs nothing else, or a PNG."""

    model_config = settings_config("python -m spark plot")

    last: Seconds = Field("1h", gt=0, validate_default=True, description="how far back the picture goes")
    out: Path = Field(Path("stats.html"), description="file that is written: ….html or ….png")
    tweets_stats_topic: str = Field("tweets_stats", description="topic of the tweets' statistics")
    users_stats_topic: str = Field("users_stats", description="topic of the users' statistics")

    @field_validator("out")
    @classmethod
    def _is_known(cls, out: Path) -> Path:
        if out.suffix.lower() not in (".html", ".png"):
            raise ValueError("a page ends in .html, a picture in .png")
        return out
