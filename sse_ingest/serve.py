"""Start the ingester from its settings, and end it in order."""

import gc
import sys
from pathlib import Path

import anyio
import httpx
from anyio.abc import Listener, SocketAttribute, SocketStream
from msgspec.structs import replace

from sse_ingest.console import Console
from sse_ingest.hashtags import HashtagCounts
from sse_ingest.ingest import Ingest, LineSettings, StoredState, WriterSize
from sse_ingest.logger_stats import publish_statistics
from sse_ingest.metrics import exported
from sse_ingest.pool import PoolSize
from sse_ingest.scoring import parse_emotion_values
from sse_ingest.settings import IngestSettings
from sse_ingest.sources import Source, StreamLimits, source_of
from sse_ingest.sources.download import download
from sse_ingest.status import figures
from sse_ingest.store import Store
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.listening import accept_forever, listen
from tweetwire.runtime.program import logger, ready

__all__ = ["serve"]

SWITCH_INTERVAL_S = 0.0005
"""The longest time that the event loop waits for a busy reader thread. With Python's default of 5 ms, workers would be idle."""

OBJECTS_PER_COLLECTION = 100_000
"""How many new objects start a garbage collection.

A batch has no reference cycles. With Python's default of 700, the search for them would take a tenth of the ingester's time.
"""

WORD_LIST_BYTES_MAX = 16 << 20
KEEP_EVERY_S = 3.0
LAST_KEEP_S = 2.0

log = logger()


async def serve(settings: IngestSettings, stop: anyio.Event) -> int:
    """Ingest until `stop` is set or, with --until-end, until all sources have ended.

    Returns:
        The exit status: 1 if a source could not be read or an event was not written, else 0.

    Raises:
        StartError: a setting, MongoDB or a file cannot be used.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.freeze()
    gc.set_threshold(OBJECTS_PER_COLLECTION)
    sources = _sources(settings)
    hashtags = HashtagCounts(settings.hashtags_file)
    hashtags.check()
    emotion_values = await _emotion_values(settings)
    async with await listen(settings.host, settings.port, "--port") as listener:
        store = await _open_store(settings, stop)
        if store is None:
            return 0
        try:
            stored = StoredState(store, hashtags, await store.positions())
            writer = WriterSize(settings.batch_size, settings.flush_every)
            ingest = Ingest(sources, _line_settings(settings, emotion_values), writer, stored)
            return await _run(settings, stop, ingest, listener)
        finally:
            with anyio.CancelScope(shield=True):
                await store.aclose()


async def _open_store(settings: IngestSettings, stop: anyio.Event) -> Store | None:
    """Wait for MongoDB and return the store, or None if `stop` is set first."""
    store: Store | None = None
    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            await stop.wait()
            tasks.cancel_scope.cancel()

        tasks.start_soon(watch)
        store = await Store.open(settings.mongo_url, settings.database, settings.mongo_timeout)
        tasks.cancel_scope.cancel()
    return store


async def _run(settings: IngestSettings, stop: anyio.Event, ingest: Ingest, listener: Listener[SocketStream]) -> int:
    starts_by_itself = settings.autostart or settings.until_end
    async with anyio.create_task_group() as background:
        console = Console(ingest, is_autostarted=starts_by_itself)
        background.start_soon(accept_forever, listener, console.serve, background)
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


async def _work(settings: IngestSettings, stop: anyio.Event, ingest: Ingest) -> None:
    """Run until all sources have ended (with --until-end), else until `stop` is set and everything read is written.

    1. The readers stop, so that no new events arrive.
    2. The inboxes end once they are empty, then the pools, then the writer.
    3. After --stop-within, the remaining events are abandoned, and the account shows them as in flight.
    """
    async with anyio.create_task_group() as work:

        async def watch() -> None:
            await stop.wait()
            work.start_soon(ingest.drain)
            await anyio.sleep(settings.stop_within)
            log.error("shutdown timed out", within_s=settings.stop_within)
            work.cancel_scope.cancel()

        work.start_soon(watch)
        await ingest.run()
        if not settings.until_end and not stop.is_set():
            log.info("all sources ended")
            await stop.wait()
        work.cancel_scope.cancel()


async def _keep_up(ingest: Ingest) -> None:
    while True:
        await anyio.sleep(KEEP_EVERY_S)
        await ingest.keep()


def _sources(settings: IngestSettings) -> list[Source]:
    limits = StreamLimits(
        silence_s=settings.silence,
        pause_s=settings.reconnect_pause,
        pause_max_s=settings.reconnect_pause_max,
        event_bytes_max=settings.event_bytes_max,
    )
    if not settings.source:
        raise StartError("no source is given; give one: --source http://HOST:4000/tweets/1 or --source replay:FILE")
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


def _line_settings(settings: IngestSettings, emotion_values: dict[str, float] | None) -> LineSettings:
    pool = PoolSize(settings.workers_min, settings.workers_max, settings.worker_events, settings.worker_timeout)
    return LineSettings(pool, settings.inbox_size, settings.scorer, emotion_values)


async def _emotion_values(settings: IngestSettings) -> dict[str, float] | None:
    if settings.scorer != "lexicon":
        return None
    where = settings.emotion_values
    try:
        if where.startswith(("http://", "https://")):
            body = await anyio.to_thread.run_sync(download, where, WORD_LIST_BYTES_MAX, abandon_on_cancel=True)
            text = body.decode()
        else:
            text = await anyio.Path(Path(where)).read_text("utf-8")
        return parse_emotion_values(text)
    except (OSError, httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise StartError(f"cannot use the emotion values of {where}: {error}") from error
