"""Publishes the ingester's figures to the topic `logger_stats`, whether or not there is a broker just now."""

import time
from collections.abc import Callable
from typing import Any

import anyio

from broker import BrokerError, Event
from broker.errors import StartError
from broker.login import Login
from broker.program import logger

__all__ = ["TOPIC", "publish_statistics"]

TOPIC = "logger_stats"

log = logger()


async def publish_statistics(login: Login, every_s: float, figures: Callable[[], dict[str, Any]]) -> None:
    """Publish `figures()` every `every_s` seconds until cancelled; a broker that is away is logged once and waited for."""
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
                        log.info("the broker takes statistics again", broker=login.address)
        except (BrokerError, StartError, TimeoutError, OSError) as error:
            if not is_away:
                is_away = True
                log.warning("statistics wait for the broker", broker=login.address, reason=login.reason(error))
            await anyio.sleep(every_s)
