"""The settings of the backfill."""

from typing import Literal

from pydantic import Field, field_validator

from tweetwire.runtime.kinds import Seconds
from tweetwire.runtime.program import ClientSettings, settings_config

__all__ = ["BackfillSettings"]


class BackfillSettings(ClientSettings):
    """Compute both statistics of all tweets in MongoDB, and publish each window once.

    The results are events of the topics tweets_stats_backfill and users_stats_backfill. They have the members of
    tweets_stats and users_stats, computed by the same expressions. A second run publishes only windows that are new.
    """

    model_config = settings_config("python -m spark backfill")

    job: Literal["tweets-stats", "users-stats", "all"] = Field("all", description="statistics to compute")
    mongo_url: str = Field("mongodb://127.0.0.1:27017", description="address of MongoDB")
    database: str = Field("rtp_sse_db", pattern=r"^[A-Za-z0-9_-]{1,63}$", description="name of the database")
    mongo_timeout: Seconds = Field("10s", gt=0, validate_default=True, description="time to wait for MongoDB")
    master: str = Field("local[*]", description="where Spark runs: local[N], local[*], spark://HOST:PORT, k8s://…")
    window: Seconds = Field("10s", gt=0, validate_default=True, description="length of a window")
    event_time: Literal["stored", "ingested"] = Field(
        "stored",
        description="the time that decides a tweet's window. stored: when MongoDB stored it, as in the live statistics, "
        "or ingested_at if the topic of the changes no longer holds the tweet. ingested: always ingested_at",
    )
    complete_after: Seconds = Field(
        "1m",
        ge=0,
        validate_default=True,
        description="age from which a window counts as complete; younger ones are left to the next run",
    )
    rows: int = Field(50_000, gt=0, description="documents in one partition, read by one task")
    suffix: str = Field(
        "_backfill",
        pattern=r"^[A-Za-z0-9_.-]{1,64}$",
        description="end of the names of the result topics; a new suffix computes everything again",
    )
    tweets_topic: str = Field("tweets", description="topic of the tweets' changes")
    users_topic: str = Field("users", description="topic of the users' changes")
    ui_port: int = Field(0, ge=0, le=65535, description="port of Spark's own page, 0 for none")

    @field_validator("window")
    @classmethod
    def _is_whole_ms(cls, seconds: float) -> float:
        if seconds * 1000 % 1:
            raise ValueError(f"{seconds:g} s is not a whole number of milliseconds")
        return seconds
