"""The settings of the Spark jobs."""

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_settings import CliPositionalArg, SettingsConfigDict

from spark.connector.options import parse_start
from tweetwire.runtime.kinds import Folder, Seconds, Switch
from tweetwire.runtime.program import ClientSettings, settings_config

__all__ = ["SparkSettings"]


class SparkSettings(ClientSettings):
    """Compute live statistics of the tweets in the broker, and publish them to topics of the broker.

    JOB is tweets-stats (topic tweets to tweets_stats), users-stats (topics tweets and users to users_stats), or all. Each
    window is published once, when it is final. The checkpoint holds the counts, so a job continues after a restart. Needs Java
    17 or 21.
    """

    # The prefix must apply to aliases too; otherwise a shell's FROM would be read.
    model_config = settings_config("python -m spark") | SettingsConfigDict(env_prefix_target="all")

    job: CliPositionalArg[Literal["tweets-stats", "users-stats", "all"]]
    master: str = Field("local[*]", description="where Spark runs: local[N], local[*], spark://HOST:PORT, k8s://…")
    window: Seconds = Field(
        "10s",
        gt=0,
        validate_default=True,
        description="length of a window, from seconds to a few minutes: each micro-batch writes all open windows again",
    )
    watermark: Seconds = Field(
        "500ms",
        ge=0,
        validate_default=True,
        description="how much later than its successors a tweet may arrive and still count in its window",
    )
    idle: Seconds = Field(
        "5s",
        gt=0,
        validate_default=True,
        description="silence after which the clock ends windows, without waiting for further tweets",
    )
    trigger: Seconds = Field(
        "2s",
        ge=0,
        validate_default=True,
        description="time between two micro-batches while no window ends; a window that ends is never delayed",
    )
    rows_max: int = Field(
        500_000,
        gt=0,
        description="most tweets in one micro-batch, except in one that ends a window; fewer if they would take long",
    )
    checkpoint: Folder = Field(Path("data/spark"), description="folder of the jobs' counts")
    from_: str = Field(
        "earliest",
        alias="from",
        description="where a job without a checkpoint begins: earliest, latest, an offset or a time",
    )
    fail_on_data_loss: Switch = Field(
        True,
        description="whether a job fails if retention has removed tweets that it has not read, instead of continuing "
        "with the remaining ones",
    )
    jit: Literal["quick", "full"] = Field(
        "quick", description="how Java compiles on a local master: quick to start, or full speed after a minute"
    )
    drain: Seconds = Field(
        "15s", ge=0, validate_default=True, description="time that running batches have to end at a stop"
    )
    ui_port: int = Field(4040, ge=0, le=65535, description="port of Spark's own page, 0 for none")
    tweets_topic: str = Field("tweets", description="topic of the tweets' changes")
    users_topic: str = Field("users", description="topic of the users' changes")

    @field_validator("from_")
    @classmethod
    def _is_start(cls, text: str, info: ValidationInfo) -> str:
        if isinstance(parse_start(text), int) and info.data.get("job") != "tweets-stats":
            raise ValueError("an offset belongs to one topic, and users-stats reads two; give a time")
        return text

    @field_validator("window", "watermark", "idle", "trigger")
    @classmethod
    def _is_whole_ms(cls, seconds: float) -> float:
        if seconds * 1000 % 1:
            raise ValueError(f"{seconds:g} s is not a whole number of milliseconds")
        return seconds
