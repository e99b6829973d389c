"""The command that queries the figures and writes the report."""

from datetime import UTC, datetime
from typing import Any

import anyio
from anyio import to_thread
from pymongo import AsyncMongoClient
from pymongo.errors import ConfigurationError, InvalidName, InvalidURI, PyMongoError

from sse_ingest.report.figures import gather
from sse_ingest.report.page import page
from sse_ingest.report.settings import ReportSettings
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.mongodb import no_address, unanswered
from tweetwire.runtime.output import write_output
from tweetwire.runtime.program import logger

__all__ = ["write_report"]


async def write_report(settings: ReportSettings, stop: anyio.Event) -> None:
    """Write the page to the settings' output file. Raises StartError if MongoDB or the file cannot be used."""
    now = datetime.now(UTC)
    since = datetime.fromtimestamp(max(now.timestamp() - settings.last, 0.0), UTC) if settings.last else None
    timeout_ms = int(settings.mongo_timeout * 1000)
    try:
        client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
            settings.mongo_url, tz_aware=True, appname="tweetwire report", serverSelectionTimeoutMS=timeout_ms
        )
        async with client:
            figures = await gather(client[settings.database], since, settings.steps, settings.top)
    except (ConfigurationError, InvalidURI, ValueError) as error:
        raise StartError(no_address(error)) from error
    except InvalidName as error:
        raise StartError(f"--database: {error}") from error
    except PyMongoError as error:
        raise StartError(unanswered(error)) from error
    text = page(figures, f"Tweets in {settings.database}", now)
    await to_thread.run_sync(write_output, settings.output, text.encode(), "--output")
    logger().info("report written", file=str(settings.output), tweets=figures.tweets)
