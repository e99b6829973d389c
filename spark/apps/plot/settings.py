"""The settings of the plot."""

from pathlib import Path

from pydantic import Field, field_validator

from tweetwire.runtime.kinds import Seconds
from tweetwire.runtime.program import ClientSettings, settings_config

__all__ = ["PlotSettings"]


class PlotSettings(ClientSettings):
    """Draw the last hour of both statistics topics as a self-contained HTML page or a PNG."""

    model_config = settings_config("python -m spark plot")

    last: Seconds = Field("1h", gt=0, validate_default=True, description="length of time to draw")
    out: Path = Field(Path("stats.html"), description="file to write: ….html or ….png")
    tweets_stats_topic: str = Field("tweets_stats", description="topic of the tweets' statistics")
    users_stats_topic: str = Field("users_stats", description="topic of the users' statistics")

    @field_validator("out")
    @classmethod
    def _is_known(cls, out: Path) -> Path:
        if out.suffix.lower() not in (".html", ".png"):
            raise ValueError("a page ends in .html, a picture in .png")
        return out
