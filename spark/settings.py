"""What the Spark jobs can be told."""

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_settings import CliPositionalArg, SettingsConfigDict

from broker.kinds import Folder, Switch
from broker.program import ClientSettings, settings_config
from broker.units import Seconds
from spark.options import parse_start

__all__ = ["SparkSettings"]


class SparkSettings(ClientSettings):
    """Compute live statistics of the tweets in the broker, which are topics of the broker too.

    JOB is tweets-stats (topic tweets to tweets_stats), users-stats (topics tweets and users to users_stats), or all.
    Each window is published once, when it is final. What was counted lives in the checkpoint: started again, a job goes
    on where it was. Needs Java 17 or 21.
    """

    # The prefix goes before aliases too; else a shell's own FROM would be read.
    model_config = settings_config("python -m spark") | SettingsConfigDict(env_prefix_target="all")

    job: CliPositionalArg[Literal["tweets-stats", "users-stats", "all"]]
    master: str = Field("local[*]", description="where Spark runs: local[N], local[*], spark://HOST:PORT, k8s://…")
    window: Seconds = Field(
        "10s",
        gt=0,
        validate_default=True,
        description="length of a window: seconds to some minutes, since each micro-batch writes what the open ones hold anew",
    )
    watermark: Seconds = Field(
        "500ms",
        ge=0,
        validate_default=True,
        description="how much later than its successors a tweet may come and still be counted in its window",
    )
    idle: Seconds = Field(
        "5s",
        gt=0,
        validate_default=True,
        description="silence after which the clock ends windows in place of the tweets that do not come",
    )
    trigger: Seconds = Field(
        "2s",
        ge=0,
        validate_default=True,
        description="how often tweets are taken in while no window ends; one that ends is never kept waiting",
    )
    rows_max: int = Field(
        500_000,
        gt=0,
        description="most tweets in one micro-batch, save in one that ends a window; there are fewer where it would take long",
    )
    checkpoint: Folder = Field(Path("data/spark"), description="folder of what the jobs have counted")
    from_: str = Field(
        "earliest",
        alias="from",
        description="where a job without a checkpoint begins: earliest, latest, an offset or a time",
    )
    fail_on_data_loss: Switch = Field(
        True,
        description="whether a job fails when retention has removed tweets that it has not read yet, or goes on with what "
        "is there",
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
            raise ValueError("the smallest unit is a millisecond")
        return seconds
