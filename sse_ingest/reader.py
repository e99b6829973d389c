"""The thread that reads a source into its inbox.

It is a thread because the iterators of httpx and sseclient block. It waits only for its socket, and for room in the inbox.
"""

import asyncio
import threading
from typing import Literal

from sse_ingest.account import SourceAccount
from sse_ingest.inbox import Inbox
from sse_ingest.sources import Feed, Source, SourceRefused, SourceState
from tweetwire.runtime.program import logger

__all__ = ["SourceReader"]

BEFORE_S = 1.0

log = logger()


class SourceReader:
    """Reads one source. `done` is set once the source has ended or failed permanently.

    Must be made on the event loop.
    """

    def __init__(self, source: Source, inbox: Inbox, account: SourceAccount) -> None:
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
        """Whether the thread is running."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def has_failed(self) -> bool:
        """Whether the source cannot be read, now or later."""
        return self.state.state == "failed"

    def start(self) -> None:
        """Start to read after the last event, unless the thread is already reading or the source has ended."""
        if self.done.is_set() or (self.is_reading and not self._stopped.is_set()):
            return
        self._stopped = threading.Event()
        self._feed = self.source.open_feed(self.state, self.last_id)
        # A thread that is connecting cannot be interrupted; a daemon thread does not delay the end of the program.
        self._thread = threading.Thread(
            target=self._read,
            args=(self._feed, self._stopped, self._thread),
            name=f"reader {self.source.name}",
            daemon=True,
        )
        self._thread.start()

    async def stop(self, within_s: float = 5.0) -> None:
        """Stop reading; `start` resumes. Events that were read stay in the inbox."""
        if self._thread is None or self._feed is None:
            return
        self._stopped.set()
        self._feed.close()
        await asyncio.to_thread(self._thread.join, within_s)

    def _read(self, feed: Feed, stopped: threading.Event, before: threading.Thread | None) -> None:
        if before is not None:
            # The previous thread's last event must come first. If that thread waits for a response, it cannot be ended, but
            # it will not deliver anything either.
            before.join(BEFORE_S)
        try:
            for arrival in feed:
                # Register the event before `put`, since a worker may settle it before this thread runs again.
                arrival.event.number = self._account.progress.begin(arrival.last_id)
                self._account.read += 1
                if not self._inbox.put_event(arrival.event, stopped):
                    self._account.read -= 1
                    self._account.progress.withdraw(arrival.event.number)
                    break
                self.last_id = arrival.last_id
            if not stopped.is_set():
                self._finish("ended")
            elif stopped is self._stopped:
                # If this thread took long to stop, a new thread may have started, and the state belongs to the new one.
                self.state.becomes("stopped")
        except SourceRefused as refusal:
            log.error("source cannot be read", source=self.source.name, reason=str(refusal))
            self._finish("failed", str(refusal))
        except Exception as error:
            log.exception("reader failed unexpectedly", source=self.source.name)
            self._finish("failed", f"{type(error).__name__}: {error}")

    def _finish(self, state: Literal["ended", "failed"], reason: str = "") -> None:
        self.state.becomes(state, reason)
        self._loop.call_soon_threadsafe(self.done.set)
