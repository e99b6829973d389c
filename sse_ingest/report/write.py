"""Asks, draws and writes the file."""

import os
from datetime import UTC, datetime
from typing import Any

import anyio
from pymongo import AsyncMongoClient
from pymongo.errors import ConfigurationError, InvalidName, InvalidURI, PyMongoError

from broker.errors import StartError
from broker.mongodb import no_address, unanswered
from broker.program import logger
from sse_ingest.report.figures import gather
from sse_ingest.report.page import page
from sse_ingest.report.settings import ReportSettings

__all__ = ["write_report"]


async def write_report(settings: ReportSettings, stop: anyio.Event) -> None:
    """Write the page to the file that the settings name."""
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
    await _write(anyio.Path(settings.output), page(figures, f"Tweets in {settings.database}", now))
    logger().info("report written", file=str(settings.output), tweets=figures.tweets)


async def _write(path: anyio.Path, text: str) -> None:
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        await fresh.write_text(text, "utf-8")
        await fresh.replace(path)
    except OSError as error:
        raise StartError(f"cannot write {path}: {error.strerror}; choose another: --output") from error
    finally:
        await fresh.unlink(missing_ok=True)
