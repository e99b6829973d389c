"""The uploader: it writes sealed segments, the state and manifests to the store, in the order that a restore needs.

One round:

1. If it is time, copy the state, and then end the open segments, so that the lines include all that the state knows.
2. Upload the sealed segments that the bucket does not have, `UPLOADS` at a time: the index, then the lines, verified.
3. Upload the state, if one was copied.
4. Write the next manifest. From then on, all of this exists.

Always true:

- a state that was copied is kept until a manifest names it, so a store that is away for hours does not make more segments;
- the event loop never waits for the store, and a failure of the store is repeated with growing pauses;
- after another broker has taken over, this one sends nothing more to the store.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

import anyio
import structlog
from crc32c import crc32c

from broker.core import Broker, Topic
from broker.log import CommitLog
from broker.tiers.background import Background
from broker.tiers.claim import OwnedChain
from broker.tiers.errors import Fenced, TierError
from broker.tiers.figures import TierFigures
from broker.tiers.holdings import Holdings, Waiting
from broker.tiers.leftovers import Leftovers
from broker.tiers.manifest import FORMAT, Manifest, NamedSegment, NamedState
from broker.tiers.object_names import state_object
from broker.tiers.segment_upload import Verify, put_verified, upload_segment
from broker.tiers.state_copy import StateCopy, copy_state, durable_topics, end_open_segments
from tweetwire.backoff import Backoff
from tweetwire.files import why
from tweetwire.version import VERSION

__all__ = ["Uploader"]

POLL_S: Final = 1.0
CHECK_S: Final = 10.0
"""How often the store is asked whether another broker has taken over."""
UPLOADS: Final = 2
MANIFEST_EVERY: Final = 64
"""How many segments are uploaded before a manifest names them, when many wait."""
PAUSE_MAX_S: Final = 60.0

logger = structlog.stdlib.get_logger()


class _Named(NamedTuple):
    """The state that the newest manifest names, and the copy that it was made from."""

    state: NamedState
    copy: StateCopy


class Uploader:
    """Uploads for one broker, which owns a chain. `when_fenced` is called when another broker takes over."""

    def __init__(
        self,
        broker: Broker,
        owned: OwnedChain,
        background: Background,
        figures: TierFigures,
        *,
        after_s: float,
        verify: Verify,
        when_fenced: Callable[[], None],
    ) -> None:
        self._broker = broker
        self._chain = owned.chain
        self._store = owned.chain.store
        self._background = background
        self._figures = figures
        self._after_s = after_s
        self._verify = verify
        self._when_fenced = when_fenced
        self._holdings = Holdings()
        self._leftovers = Leftovers(owned.chain.name, owned.newest, time.monotonic)
        self._backoff = Backoff(first_s=1.0, max_s=PAUSE_MAX_S)
        self._named: _Named | None = None
        # The first offset of each topic when the newest manifest was made, by which removed segments are noticed
        self._firsts: dict[Topic, int] = {}
        # A copy that no manifest names yet
        self._copy: StateCopy | None = None
        self._copied_s = self._checked_s = time.monotonic()
        self._is_ending = False
        self._wake = anyio.Event()
        self.ended = anyio.Event()
        for topic, named in owned.held:
            self._holdings.note(topic, named)

    async def run(self) -> None:
        """Upload until `finish` was called and everything is in the bucket, or until another broker takes over."""
        try:
            while not await self._run_round():
                pass
        except Fenced:
            self._when_fenced()
        finally:
            self.ended.set()

    async def _run_round(self) -> bool:
        """Run a round, and then wait for the next one. Returns whether that was the last one. Raises Fenced."""
        is_last = self._is_ending
        try:
            await self._round()
        except Fenced:
            raise
        except (TierError, OSError) as error:
            await self._pause(error)
            return self._is_ending
        except Exception as error:
            logger.error("a bug; the broker continues", exc_info=error)
            await self._pause(error)
            return self._is_ending
        self._backoff.reset()
        self._figures.is_away = False
        if not is_last:
            await self._sleep(POLL_S)
        return is_last

    def finish(self) -> None:
        """Upload everything that is there now, and then end."""
        self._is_ending = True
        self._wake.set()

    async def _round(self) -> None:
        await self._check()
        if self._copy is None and self._is_copy_due():
            await self._copy_state()
        is_changed = False
        waiting = list(self._holdings.waiting(durable_topics(self._broker)))
        for at in range(0, len(waiting), MANIFEST_EVERY):
            self._figures.waiting = len(waiting) - at
            await self._upload(waiting[at : at + MANIFEST_EVERY])
            is_changed = True
            if self._named is not None and at + MANIFEST_EVERY < len(waiting):
                await self._write_manifest(self._named)
        self._figures.waiting = 0
        self._note_covered()
        if self._copy is not None:
            await self._write_manifest(await self._upload_state(self._copy))
            self._figures.covered_ms = self._copy.taken_ms
            self._copy = None
        elif self._named is not None and (is_changed or self._firsts != _firsts(self._broker)):
            await self._write_manifest(self._named)
        if due := self._leftovers.take_due():
            await self._background.run(partial(self._delete, due))

    def _delete(self, names: list[str]) -> None:
        """Delete objects, unless another broker has taken over, which may name them. Called in a thread."""
        self._chain.check()
        self._store.delete(names)

    def _note_covered(self) -> None:
        if self._named is not None and self._named.copy.is_current(self._broker):
            self._figures.covered_ms = time.time_ns() // 1_000_000

    async def _check(self) -> None:
        """Ask every `CHECK_S` seconds whether another broker has taken over, also if there is nothing to upload."""
        if time.monotonic() - self._checked_s >= CHECK_S:
            await self._background.run(self._chain.check)
            self._checked_s = time.monotonic()

    def _is_copy_due(self) -> bool:
        if self._named is None:
            return True
        is_time = self._is_ending or time.monotonic() - self._copied_s >= self._after_s
        return is_time and not self._named.copy.is_current(self._broker)

    async def _copy_state(self) -> None:
        copy = copy_state(self._broker)
        self._copied_s = time.monotonic()
        logs = [
            (topic.log, visible)
            for topic, visible in copy.visible.items()
            if isinstance(topic.log, CommitLog) and topic.log.segments[-1].first < visible
        ]
        await self._background.run(partial(end_open_segments, logs))
        self._copy = copy

    async def _upload(self, waiting: list[Waiting]) -> None:
        """Upload segments, `UPLOADS` at a time. Raises the first error, after the uploads that had begun have ended."""
        errors: list[Exception] = []
        left = iter(waiting)
        async with anyio.create_task_group() as tasks:
            for _ in range(UPLOADS):
                tasks.start_soon(self._upload_some, left, errors)
        if errors:
            raise errors[0]

    async def _upload_some(self, left: Iterator[Waiting], errors: list[Exception]) -> None:
        for one in left:
            if errors:
                return
            try:
                named = await self._background.run(partial(self._upload_one, one))
            except FileNotFoundError:
                # Retention has removed the segment, or its topic was dropped.
                continue
            except (TierError, OSError) as error:
                errors.append(error)
                return
            self._holdings.note(one.topic, named)
            self._figures.segments += 1
            self._figures.bytes += named.bytes
            self._figures.stored_bytes += named.stored + named.index_bytes

    def _upload_one(self, one: Waiting) -> NamedSegment:
        return upload_segment(self._store, self._chain.name, one.topic.name, one.segment, self._verify)

    async def _upload_state(self, copy: StateCopy) -> _Named:
        def upload() -> NamedState:
            data = copy.encode()
            crc = crc32c(data)
            name = state_object(self._chain.name, self._chain.number + 1, crc)
            put_verified(self._store, name, data, self._verify)
            return NamedState(name, len(data), crc, copy.taken_ms)

        # The records of the whole state would take its memory a second time until the next copy.
        return _Named(await self._background.run(upload), copy._replace(records=[]))

    async def _write_manifest(self, named: _Named) -> None:
        topics, firsts = durable_topics(self._broker), _firsts(self._broker)
        contents = self._holdings.name_topics(topics, named.copy)

        def make(number: int) -> Manifest:
            now_ms = time.time_ns() // 1_000_000
            chain = self._chain
            return Manifest(FORMAT, number, chain.writer, chain.epoch, VERSION, now_ms, named.state, contents)

        def write() -> Manifest:
            written = self._chain.append(make)
            self._leftovers.note_manifest(written)
            return written

        written = await self._background.run(write)
        self._checked_s = time.monotonic()
        self._named, self._firsts = named, firsts
        self._figures.manifests += 1
        # An old manifest that cannot be emptied now only takes room.
        with suppress(TierError):
            await self._background.run(self._chain.empty_old)
        self._figures.manifest = written.number

    async def _pause(self, error: Exception) -> None:
        """Wait after a failure: longer with each failure in a row."""
        self._figures.failures += 1
        self._figures.is_away = True
        pause_s = self._backoff.next_pause_s()
        reason = why(error) if isinstance(error, OSError) else str(error)
        logger.warning("cannot upload to the tier; retrying", reason=reason, pause_s=round(pause_s, 1))
        await self._sleep(pause_s)

    async def _sleep(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await self._wake.wait()
        if self._wake.is_set() and not self._is_ending:
            self._wake = anyio.Event()


def _firsts(broker: Broker) -> dict[Topic, int]:
    """Return the first offset of each topic's oldest segment."""
    return {topic: topic.log.segments[0].first for topic in durable_topics(broker) if isinstance(topic.log, CommitLog)}
