"""The tier of a running broker: test the store, claim the chain, upload, and stop in order."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final

import anyio
import structlog
from anyio.abc import TaskGroup

from broker.log import CommitLog
from broker.server import Server
from broker.tiers.background import Background
from broker.tiers.chain_file import note_fence, read_chain_file
from broker.tiers.claim import OwnedChain, claim_chain, held_segments
from broker.tiers.errors import Fenced, StoreUnusable, TierError
from broker.tiers.figures import TierFigures
from broker.tiers.location import open_store
from broker.tiers.metrics import TierCollector
from broker.tiers.options import TierOptions
from broker.tiers.probe import probe_store
from broker.tiers.segment_upload import Verify
from broker.tiers.state_copy import durable_topics
from broker.tiers.store import Store
from broker.tiers.uploader import Uploader
from tweetwire.backoff import Backoff
from tweetwire.files import why
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.collectors import registered

__all__ = ["Tier"]

START_S: Final = 15.0
"""How long a start waits for the store. After that the broker serves, and claims the chain when the store answers."""
END_S: Final = 5.0
"""How long a stop waits until the last segments are in the bucket."""
PAUSE_MAX_S: Final = 60.0

logger = structlog.stdlib.get_logger()


class Tier:
    """The tier of one server, which must be open. `store` is for tests; without it, the URL of `options` is opened."""

    def __init__(self, server: Server, options: TierOptions, store: Store | None = None) -> None:
        self.figures = TierFigures(started_ms=time.time_ns() // 1_000_000)
        self._server = server
        self._options = options
        self._store = open_store(options.url) if store is None else store
        self._uploader: Uploader | None = None
        self._is_probed = False
        # Set after the first claim has succeeded or failed
        self._tried = anyio.Event()
        self._unusable = ""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Upload until the end of the block, and then what is left. Raises StartError if the store is unusable."""
        async with Background.open() as background, anyio.create_task_group() as tasks:
            tasks.start_soon(self._run, background)
            await self._wait_for_claim()
            try:
                with registered(TierCollector(self.figures)):
                    yield
            finally:
                await self._end(tasks)

    async def _wait_for_claim(self) -> None:
        """Wait until the first claim has succeeded or failed, but not long. Raises StartError if the store is unusable."""
        with anyio.move_on_after(START_S):
            await self._tried.wait()
        if self._unusable:
            raise StartError(f"--tier: {self._unusable}")
        if not self._tried.is_set():
            self._remember_fence()
            logger.warning("the tier does not answer; serving without it until it does", tier=self._store.shown)

    async def _claim(self, background: Background) -> OwnedChain:
        """Test the store, and claim the chain."""
        server, topics = self._server, durable_topics(self._server.broker)

        def claim() -> OwnedChain:
            identity = server.data.identity()
            if not self._is_probed:
                probe_store(self._store, identity)
                self._is_probed = True
            logs = {topic.name: topic.log for topic in topics if isinstance(topic.log, CommitLog)}
            try:
                claimed = claim_chain(self._store, server.data.path, identity, logs)
            except Fenced:
                # On a full disk, the next start has to ask the store.
                with suppress(OSError):
                    note_fence(server.data.path)
                raise
            return OwnedChain(*claimed, held_segments(claimed.newest, topics))

        return await background.run(claim)

    async def _run(self, background: Background) -> None:
        """Claim the chain, with pauses after failures, and then upload until the end."""
        backoff = Backoff(first_s=1.0, max_s=PAUSE_MAX_S)
        # One claim after the other: two at the same time would take each other for another broker.
        while (owned := await self._try_to_claim(background)) is None:
            if self.figures.is_fenced or self._unusable:
                return
            await anyio.sleep(backoff.next_pause_s())
        chain = owned.chain
        logger.info("claimed the tier", tier=self._store.shown, chain=chain.name, manifest=chain.number)
        self.figures.is_away = self.figures.is_fenced = False
        self._server.broker.set_fence("")
        self._uploader = Uploader(
            self._server.broker,
            owned,
            background,
            self.figures,
            after_s=self._options.after_s,
            verify=Verify(self._options.verify),
            when_fenced=self._take_fence,
        )
        await self._uploader.run()
        if self.figures.is_fenced:
            with suppress(OSError, StartError):
                await background.run(partial(note_fence, self._server.data.path))

    async def _try_to_claim(self, background: Background) -> OwnedChain | None:
        """Return the claimed chain, None if the claim has failed."""
        try:
            return await self._claim(background)
        except Fenced:
            self._take_fence()
        except Exception as error:  # noqa: BLE001 — a bug in the tier must not end the broker
            self.figures.failures += 1
            self.figures.is_away = True
            if isinstance(error, StoreUnusable | StartError) and not self._tried.is_set():
                self._unusable = str(error)
            else:
                _warn("cannot use the tier yet; retrying", error)
                self._remember_fence()
        finally:
            self._tried.set()
        return None

    async def _end(self, tasks: TaskGroup) -> None:
        """Upload what is left, for a few seconds. The rest is uploaded after the next start."""
        with anyio.CancelScope(shield=True), anyio.move_on_after(END_S):
            if self._uploader is not None:
                self._uploader.finish()
                await self._uploader.ended.wait()
        tasks.cancel_scope.cancel()

    def _remember_fence(self) -> None:
        """Stay fenced while the store cannot be asked, if another broker had taken over before this start."""
        with suppress(StartError, OSError):
            record = read_chain_file(self._server.data.path)
            if record is not None and record.is_fenced:
                self._take_fence()

    def _take_fence(self) -> None:
        """Stop using the tier, and refuse publishes unless the settings ask only for a warning."""
        self.figures.is_fenced = True
        reason = (
            f"another broker has taken over {self._store.shown}, so this one must not accept events;"
            " use the other one, or stop this one and restore its folder from the bucket"
        )
        logger.error("another broker has taken over the tier; nothing is uploaded any more", tier=self._store.shown)
        if self._options.fence == "refuse":
            self._server.broker.set_fence(reason)


def _warn(text: str, error: Exception) -> None:
    """Log a failure of the tier, with the traceback if it is a bug."""
    is_expected = isinstance(error, TierError | OSError | StartError)
    reason = why(error) if isinstance(error, OSError) else str(error)
    logger.warning(text, reason=reason, exc_info=None if is_expected else error)
