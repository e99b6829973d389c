"""The settings of the demo."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from tweetwire.runtime.kinds import Folder, Seconds
from tweetwire.runtime.program import ProgramSettings, settings_config

__all__ = ["DemoSettings"]


def _port(number: int, user: str) -> int:
    port: int = Field(number, ge=0, le=65535, description=f"port of {user} (0: any free one)")
    return port


class DemoSettings(ProgramSettings):
    """Run the whole stack: tweets from SSE through MongoDB, change streams and the broker to a subscriber and Spark.

    It ends on Ctrl-C, after --seconds, or when the source has ended. It ends in order, with a closing check. Exit status: 0
    if everything arrived everywhere once, 1 if not, 2 if the stack could not start.
    """

    model_config = settings_config("python -m demo")

    seconds: float | None = Field(
        None, gt=0, description="ingest for this many seconds, then end (default: until Ctrl-C)"
    )
    rate: float = Field(300, gt=0, description="tweets a second that the simulator or a replay sends")
    source: str | None = Field(
        None,
        description="source to ingest instead of the simulator: http://…, replay:FILE, mastodon:INSTANCE, wikimedia",
    )
    data_dir: Folder = Field(
        Path("data/demo"), description="folder of all data and logs; a later run continues with the same folder"
    )
    spark: bool = Field(True, description="compute statistics with Spark, which needs Java 17 or 21")
    dashboard: bool = Field(True, description="serve the dashboard, if NiceGUI is installed")
    window: Seconds = Field("10s", validate_default=True, description="length of the statistics' windows")
    patience: Seconds = Field(
        "120s",
        validate_default=True,
        description="time without progress after which the end waits no longer",
    )
    report: Literal["text", "json"] = Field("text", description="form of the closing check")
    database: str = Field("rtp_sse_db", description="database in MongoDB")

    broker_port: int = _port(8000, "the broker")
    broker_metrics_port: int = _port(9600, "the broker's metrics")
    ingest_port: int = _port(8080, "the ingester's telnet")
    ingest_metrics_port: int = _port(9601, "the ingester's metrics")
    simulator_port: int = _port(4000, "the tweet simulator")
    change_stream_metrics_port: int = _port(9602, "the change stream's metrics")
    subscriber_metrics_port: int = _port(9603, "the subscriber's metrics")
    spark_port: int = _port(4040, "Spark's own page")
    dashboard_port: int = _port(8088, "the dashboard")
    mongo_port: int = _port(0, "MongoDB")
    free_ports: bool = Field(False, description="take any free port for every program")
