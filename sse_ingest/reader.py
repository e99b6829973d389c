"""The thread that reads a source into its inbox.

A thread, since httpx's and sseclient's iterators block; it waits for nothing but its socket and, when the inbox is full,
for room there.
"""

import asyncio
import threading
from typing import Literal

from broker.program import logger
from sse_ingest.account import Account
from sse_ingest.inbox import Inbox
from sse_ingest.sources import Feed, Source, SourceRefused, SourceState

__all__ = ["Reader"]

BEFORE_S = 1.0

log = logger()


class Reader:
    """Reads one source. `done` is set once the source has ended or failed for good; made on the event loop."""

    def __init__(self, source: Source, inbox: Inbox, account: Account) -> None:
        self.source = source
        self.state = SourceState(source.name)
        self.done = asyncio.Event()
        self.last_id = account.progress.position
        self._inbox = inbox
        self._account = account
        self._loop = asyncio.get_running_loop()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._feed: Feed | None = None

    @property
    def is_reading(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def has_failed(self) -> bool:
        """Whether the source turned out not to be one."""
        return self.state.state == "failed"

    def start(self) -> None:
        """Read, from behind what was read last, unless that is done already or the source has no more."""
        if self.done.is_set() or (self.is_reading and not self._stopped.is_set()):
            return
        self._stopped = threading.Event()
        self._feed = self.source.open_feed(self.state, self.last_id)
        # A thread in the midst of connecting cannot be ended; as a daemon it does not hold up the end of the program.
        self._thread = threading.Thread(
            target=self._read,
            args=(self._feed, self._stopped, self._thread),
            name=f"reader {self.source.name}",
            daemon=True,
        )
        self._thread.start()

    async def stop(self, within_s: float = 5.0) -> None:
        """Stop reading; `start` goes on. What has been read stays in the inbox."""
        if self._thread is None or self._feed is None:
            return
        self._stopped.set()
        self._feed.close()
        await asyncio.to_thread(self._thread.join, within_s)

    def _read(self, feed: Feed, stopped: threading.Event, before: threading.Thread | None) -> None:
        if before is not None:
            # What it has read last goes first. One that waits for an answer cannot be ended, and brings nothing any more.
            before.join(BEFORE_S)
        try:
            for arrival in feed:
                # Before it is put: a worker may have settled it before this thread runs again.
                arrival.event.number = self._account.progress.begin(arrival.last_id)
                self._account.read += 1
                if not self._inbox.put(arrival.event, stopped):
                    self._account.read -= 1
                    self._account.progress.withdraw(arrival.event.number)
                    break
                self.last_id = arrival.last_id
            if not stopped.is_set():
                self._finish("ended")
            elif stopped is self._stopped:
                # A thread that took long to stop has a successor by now, whose state this is.
                self.state.becomes("stopped")
        except SourceRefused as refusal:
            log.error("source cannot be read", source=self.source.name, reason=str(refusal))
            self._finish("failed", str(refusal))
        except Exception as error:
            log.exception("the reader has a defect", source=self.source.name)
            self._finish("failed", f"{type(error).__name__}: {error}")

    def _finish(self, state: Literal["ended", "failed"], reason: str = "") -> None:
        self.state.becomes(state, reason)
        self._loop.call_soon_threadsafe(self.done.set)
