"""Reads the topics, draws, and writes the file."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
from anyio import to_thread

from broker.errors import StartError
from broker.program import logger
from broker.units import format_seconds
from spark.link import Link, see_broker
from spark.plot.drawing import draw
from spark.plot.page import page
from spark.plot.settings import PlotSettings
from spark.windows import Window, windows_since

__all__ = ["write_plot"]


async def write_plot(settings: PlotSettings, stop: anyio.Event) -> None:
    """Draw what the topics hold now. Raises StartError and BrokerUnreachable."""
    now = datetime.now(UTC)
    tweets, users = await to_thread.run_sync(_read, settings, now - timedelta(seconds=settings.last))
    title = f"Statistics of the last {format_seconds(settings.last)}"
    if settings.out.suffix.lower() == ".png":
        picture = draw(tweets, users, "png", f"{title}, {now:%Y-%m-%d %H:%M:%S} UTC")
    else:
        picture = page(tweets, users, draw(tweets, users, "svg").decode(), title, now).encode()
    await to_thread.run_sync(_write, settings.out, picture)
    logger().info("plot written", file=str(settings.out), tweets_windows=len(tweets), users_windows=len(users))


def _read(settings: PlotSettings, since: datetime) -> tuple[list[Window], list[Window]]:
    see_broker(settings.login(), [settings.tweets_stats_topic, settings.users_stats_topic])
    with Link(settings.login(), name="spark-plot") as link:
        return (
            windows_since(link, settings.tweets_stats_topic, since),
            windows_since(link, settings.users_stats_topic, since),
        )


def _write(path: Path, picture: bytes) -> None:
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fresh.write_bytes(picture)
        fresh.replace(path)
    except OSError as error:
        raise StartError(f"cannot write {path}: {error.strerror}; choose another: --out") from error
    finally:
        fresh.unlink(missing_ok=True)
