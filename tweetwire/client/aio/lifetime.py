"""The life of an async client: it is entered, serves its connection and its spool with tasks, and is left."""

from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
from anyio.abc import TaskGroup

from tweetwire.client.aio.handshakes import AsyncHandshakes, AsyncOncePublishing
from tweetwire.client.aio.link import AsyncLink
from tweetwire.client.aio.opening import Opened
from tweetwire.client.aio.subscriptions import AsyncSubscribing
from tweetwire.client.exactly_once import Spool
from tweetwire.protocol.errors import ClientClosed

__all__ = ["AsyncLifetime"]


class AsyncLifetime:
    """The part of `Client` that enters and leaves its ``async with`` block, and runs tasks in between.

    It is a base class, so that the client itself is the context manager. The spool and the tasks exist only in the block.
    """

    _publishing: AsyncOncePublishing
    _tasks: TaskGroup
    _work: anyio.CancelScope

    def __init__(
        self,
        link: AsyncLink,
        name: str,
        spool: Path | None,
        *,
        connect_timeout_s: float,
        answer_s: float,
        leave_timeout_s: float,
    ) -> None:
        self.address = link.address
        self.name = name
        self._link = link
        self._engine = link.engine
        self._owner = link.owner
        self._subscribing = AsyncSubscribing(link)
        self._stack = AsyncExitStack()
        self._spool: Spool | None = None
        self._spool_folder = spool
        self._connect_timeout_s = connect_timeout_s
        self._answer_s = answer_s
        self._leave_timeout_s = leave_timeout_s

    async def __aenter__(self) -> Self:
        self._owner.check_new()
        async with AsyncExitStack() as stack:
            if self._spool_folder is not None:
                self._spool = Spool(self._spool_folder, self.name)
                stack.callback(self._spool.close)
                self._publishing = AsyncOncePublishing(AsyncHandshakes(self._link, self._spool, self._answer_s))
            opened = await self._link.connect(self._connect_timeout_s)
            self._work = anyio.CancelScope(shield=True)
            tasks = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(self._work.cancel)
            self._owner.enter()
            # Do not use `tasks.start`: if cancelled, it waits for the task's end, and `_work` shields the task from the
            # cancellation.
            has_begun = anyio.Event()
            tasks.start_soon(self._serve, opened, has_begun)
            await has_begun.wait()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        if not self._owner.is_this_process:
            # This process was forked: the connection and the files belong to its parent.
            return None
        self._owner.check()
        await self._leave()
        try:
            return await self._stack.__aexit__(exc_type, exc, traceback)
        except BaseExceptionGroup as group:
            # The block's own exception must not be wrapped in a group, because the task group is internal to the client.
            if group.split(lambda one: one is exc)[1] is None:
                return False
            raise

    def abandon(self) -> None:
        """Make the end of the block close the connection without ``quit``, as the death of this process would.

        Queued data may be lost, and each event in flight gets a failed try. This is for tests of services.
        """
        self._owner.check()
        self._engine.end_connection()

    async def _serve(self, opened: Opened, has_begun: anyio.Event) -> None:
        # `_work` is shielded, because the client also sends its queued data after a cancellation. It is cancelled after that.
        with self._work:
            async with anyio.create_task_group() as self._tasks:
                has_begun.set()
                if self._spool is not None:
                    self._tasks.start_soon(self._publishing.resume)
                await self._link.serve(opened)

    async def _leave(self) -> None:
        """Send the queued data, wait for replies up to the deadline, and say ``quit``.

        The broker then takes the events in flight back.
        """
        with anyio.CancelScope(shield=True):
            deadline = anyio.current_time() + self._leave_timeout_s
            try:
                if self._engine.is_connected:
                    with anyio.move_on_at(deadline):
                        await self._subscribing.finish()
            finally:
                self._owner.leave()
                await self._link.leave(deadline)
                self._engine.fail(ClientClosed(self.address))

    @property
    def is_connected(self) -> bool:
        """Whether the client is connected now."""
        return self._engine.is_connected

    @property
    def broker_identity(self) -> str | None:
        """The identity of the broker's data folder, as the last greeting showed it. None if the broker shows none."""
        return self._engine.identity

    @property
    def connects(self) -> int:
        """The number of connections made so far."""
        return self._engine.connects

    @property
    def unsent(self) -> int:
        """The number of `qos` 2 messages in the spool that the broker has not yet confirmed."""
        return 0 if self._spool is None else len(self._spool.outgoing)

    @property
    def unfinished(self) -> int:
        """The number of `qos` 2 events in the spool whose handshake has not ended."""
        return 0 if self._spool is None else len(self._spool.incoming)
