"""The command that reads the topics, draws, and writes the file."""

from datetime import UTC, datetime, timedelta

import anyio
from anyio import to_thread

from spark.apps.plot.drawing import draw
from spark.apps.plot.page import page
from spark.apps.plot.settings import PlotSettings
from spark.connector.link import SparkLink, see_broker
from spark.connector.windows import windows_since
from tweetwire.protocol.units import format_seconds
from tweetwire.runtime.output import write_output
from tweetwire.runtime.program import logger
from tweetwire.statistics import TweetsWindow, UsersWindow

__all__ = ["write_plot"]


async def write_plot(settings: PlotSettings, stop: anyio.Event) -> None:
    """Draw the current windows of the topics. Raises StartError and BrokerUnreachable."""
    now = datetime.now(UTC)
    tweets, users = await to_thread.run_sync(_read, settings, now - timedelta(seconds=settings.last))
    title = f"Statistics of the last {format_seconds(settings.last)}"
    if settings.out.suffix.lower() == ".png":
        picture = draw(tweets, users, "png", f"{title}, {now:%Y-%m-%d %H:%M:%S} UTC")
    else:
        picture = page(tweets, users, draw(tweets, users, "svg").decode(), title, now).encode()
    await to_thread.run_sync(write_output, settings.out, picture, "--out")
    logger().info("plot written", file=str(settings.out), tweets_windows=len(tweets), users_windows=len(users))


def _read(settings: PlotSettings, since: datetime) -> tuple[list[TweetsWindow], list[UsersWindow]]:
    see_broker(settings.login(), [settings.tweets_stats_topic, settings.users_stats_topic])
    with SparkLink(settings.login(), name="spark-plot") as link:
        return (
            windows_since(link, settings.tweets_stats_topic, TweetsWindow, since),
            windows_since(link, settings.users_stats_topic, UsersWindow, since),
        )
