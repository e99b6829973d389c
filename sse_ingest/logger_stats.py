"""Publish the ingester's figures to the topic `logger_stats`. While the broker is unreachable, they are dropped."""

import time
from collections.abc import Callable
from typing import Any

import anyio

from tweetwire import BrokerError, Event
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.login import Login
from tweetwire.runtime.program import logger

__all__ = ["TOPIC", "publish_statistics"]

TOPIC = "logger_stats"

log = logger()


async def publish_statistics(login: Login, every_s: float, figures: Callable[[], dict[str, Any]]) -> None:
    """Publish `figures()` every `every_s` seconds until cancelled; an outage of the broker is logged once."""
    is_away = False
    while True:
        try:
            async with login.client("sse_ingest", connect_timeout_s=3.0) as client:
                while True:
                    await anyio.sleep(every_s)
                    with anyio.fail_after(max(every_s, 5.0)):
                        await client.publish(TOPIC, Event(id=str(time.time_ns() // 1_000_000), msg=figures()))
                    if is_away:
                        is_away = False
                        log.info("broker accepts statistics again", broker=login.address)
        except (BrokerError, StartError, TimeoutError, OSError) as error:
            if not is_away:
                is_away = True
                log.warning("broker unreachable, statistics paused", broker=login.address, reason=login.reason(error))
            await anyio.sleep(every_s)
