"""Starts the ingester from its settings, and ends it in order."""

import gc
import sys
from pathlib import Path

import anyio
import httpx
import stamina
import stamina.instrumentation
from anyio.abc import Listener, SocketAttribute, SocketStream
from msgspec.structs import replace

from broker.errors import StartError
from broker.program import logger, port_taken, ready
from sse_ingest.console import Console
from sse_ingest.hashtags import HashtagCounts
from sse_ingest.ingest import Ingest, LineSettings, Stored, WriterSize
from sse_ingest.logger_stats import publish_statistics
from sse_ingest.metrics import exported
from sse_ingest.pool import PoolSize
from sse_ingest.scoring import parse_emotion_values
from sse_ingest.settings import Settings
from sse_ingest.sources import Source, StreamLimits, source_of
from sse_ingest.status import figures
from sse_ingest.store import Store

__all__ = ["serve"]

SWITCH_INTERVAL_S = 0.0005
"""The event loop waits this long for a reader that has much to read, at most; with Python's 5 ms workers would idle."""

OBJECTS_PER_COLLECTION = 100_000
"""Python's 700 would have a batch searched for cycles, of which it has none, dozens of times: a tenth of our time."""

KEEP_EVERY_S = 3.0
LAST_KEEP_S = 2.0

log = logger()


async def serve(settings: Settings, stop: anyio.Event) -> int:
    """Ingest until `stop` or, with --until-end, the end of all sources. Returns the exit status."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.freeze()
    gc.set_threshold(OBJECTS_PER_COLLECTION)
    # The store logs an outage once; stamina by itself would log every try.
    stamina.instrumentation.set_on_retry_hooks([])
    sources = _sources(settings)
    hashtags = HashtagCounts(settings.hashtags_file)
    hashtags.check()
    emotion_values = await _emotion_values(settings)
    listener = await _listen(settings)
    async with listener:
        store = await _open_store(settings, stop)
        if store is None:
            return 0
        try:
            stored = Stored(store, hashtags, await store.positions())
            writer = WriterSize(settings.batch_size, settings.flush_every)
            ingest = Ingest(sources, _line_settings(settings, emotion_values), writer, stored)
            return await _run(settings, stop, ingest, listener)
        finally:
            with anyio.CancelScope(shield=True):
                await store.aclose()


async def _open_store(settings: Settings, stop: anyio.Event) -> Store | None:
    """Wait for MongoDB, unless `stop` comes first."""
    store: Store | None = None
    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            await stop.wait()
            tasks.cancel_scope.cancel()

        tasks.start_soon(watch)
        store = await Store.open(settings.mongo_url, settings.database, settings.mongo_timeout)
        tasks.cancel_scope.cancel()
    return store


async def _run(settings: Settings, stop: anyio.Event, ingest: Ingest, listener: Listener[SocketStream]) -> int:
    starts_by_itself = settings.autostart or settings.until_end
    async with anyio.create_task_group() as background:
        background.start_soon(listener.serve, Console(ingest, is_autostarted=starts_by_itself).serve)
        background.start_soon(_keep_up, ingest)
        if settings.broker:
            background.start_soon(publish_statistics, settings.login(), settings.stats_every, lambda: figures(ingest))
        ready("sse_ingest", "{}:{}".format(*listener.extra(SocketAttribute.local_address)))
        if starts_by_itself:
            ingest.start()
        with exported(ingest):
            await _work(settings, stop, ingest)
        background.cancel_scope.cancel()
    with anyio.move_on_after(LAST_KEEP_S):
        await ingest.keep()
        await ingest.write_hashtags()
    ingest.report()
    return 1 if ingest.has_failed_sources or any(line.account.in_flight for line in ingest.lines) else 0


async def _work(settings: Settings, stop: anyio.Event, ingest: Ingest) -> None:
    """Run the lines to their end: the sources' own where --until-end asks for it, else that of `stop`.

    1. The readers stop, so that nothing new comes in.
    2. The inboxes end behind what is in them, the pools behind the inboxes, the writer behind the pools.
    3. What takes longer than --stop-within is given up, and the account tells of it.
    """
    async with anyio.create_task_group() as work:

        async def watch() -> None:
            await stop.wait()
            work.start_soon(ingest.drain)
            await anyio.sleep(settings.stop_within)
            log.error("the time to stop is over", within_s=settings.stop_within)
            work.cancel_scope.cancel()

        work.start_soon(watch)
        await ingest.run()
        if not settings.until_end and not stop.is_set():
            log.info("every source has ended")
            await stop.wait()
        work.cancel_scope.cancel()


async def _keep_up(ingest: Ingest) -> None:
    while True:
        await anyio.sleep(KEEP_EVERY_S)
        await ingest.keep()


def _sources(settings: Settings) -> list[Source]:
    limits = StreamLimits(
        silence_s=settings.silence,
        pause_s=settings.reconnect_pause,
        pause_max_s=settings.reconnect_pause_max,
        event_bytes_max=settings.event_bytes_max,
    )
    if not settings.source:
        raise StartError("there is nothing to read; give a source: --source http://HOST:4000/tweets/1 or replay:FILE")
    token = settings.mastodon_token.get_secret_value().strip()
    rate = settings.replay_rate or None
    sources: dict[str, Source] = {}
    for address in settings.source:
        source = source_of(address, limits, rate=rate, loop=settings.replay_loop, token=token)
        name, times = source.name, 1
        while name in sources:
            times += 1
            name = f"{source.name} ({times})"
        sources[name] = replace(source, name=name)
    return list(sources.values())


def _line_settings(settings: Settings, emotion_values: dict[str, float] | None) -> LineSettings:
    pool = PoolSize(settings.workers_min, settings.workers_max, settings.worker_events, settings.worker_timeout)
    return LineSettings(pool, settings.inbox_size, settings.scorer, emotion_values)


async def _emotion_values(settings: Settings) -> dict[str, float] | None:
    if settings.scorer != "lexicon":
        return None
    where = settings.emotion_values
    try:
        if where.startswith(("http://", "https://")):
            async with httpx.AsyncClient(timeout=10, follow_redirects=True) as client:
                text = (await client.get(where)).raise_for_status().text
        else:
            text = await anyio.Path(Path(where)).read_text("utf-8")
        return parse_emotion_values(text)
    except (OSError, httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise StartError(f"cannot use the emotion values of {where}: {error}") from error


async def _listen(settings: Settings) -> Listener[SocketStream]:
    try:
        return await anyio.create_tcp_listener(local_host=settings.host, local_port=settings.port)
    except OSError as error:
        raise port_taken(error, settings.host, settings.port, "--port") from error
