"""The settings of the report."""

from pathlib import Path

from pydantic import Field

from tweetwire.runtime.kinds import Seconds
from tweetwire.runtime.program import ProgramSettings, settings_config

__all__ = ["ReportSettings"]


class ReportSettings(ProgramSettings):
    """Writes an HTML page about the stored tweets: rates, sentiment over time, hashtags, languages, authors."""

    model_config = settings_config("python -m sse_ingest report")

    mongo_url: str = Field("mongodb://127.0.0.1:27017", description="address of MongoDB")
    database: str = Field("rtp_sse_db", min_length=1, description="name of the database")
    mongo_timeout: Seconds = Field("10s", gt=0, validate_default=True, description="time to wait for MongoDB")
    output: Path = Field(Path("report.html"), description="file to write")
    last: Seconds = Field("0s", ge=0, validate_default=True, description="only tweets stored within this time; 0s: all")
    steps: int = Field(60, ge=2, le=1000, description="points in time of each curve")
    top: int = Field(15, ge=1, le=100, description="rows of each list")
