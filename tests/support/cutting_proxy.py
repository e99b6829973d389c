"""A TCP proxy that cuts one request, or the reply to it, after a number of bytes."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, Listener, SocketAttribute, SocketStream, TaskGroup

__all__ = ["CuttingProxy"]

Forward = Callable[[ByteReceiveStream, ByteSendStream], Awaitable[None]]


class CuttingProxy:
    """Forwards connections to a port. A connection whose reply is cut is closed on both sides.

    Args:
        port: The port of the server.
        mark: Bytes that identify the requests to cut, and the requests whose replies are to be cut.

    Attributes:
        cut_at: The number of bytes of the next such reply that are let through, None for all.
        request_cut_at: The number of bytes of the next such request that are let through, None for all.
        cuts: The number of requests and replies that were cut.
        longest: The length of the longest such reply that was let through whole.
    """

    def __init__(self, port: int, mark: bytes) -> None:
        self.cut_at: int | None = None
        self.request_cut_at: int | None = None
        self.cuts = 0
        self.longest = 0
        self.port = 0
        self._to = port
        self._mark = mark
        self._tasks: TaskGroup

    async def __aenter__(self) -> Self:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        self.port = listener.extra(SocketAttribute.local_port)
        self._tasks.start_soon(self._listen, listener)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(kind, error, trace)

    async def _listen(self, listener: Listener[SocketStream]) -> None:
        async with listener:
            await listener.serve(self._serve)

    async def _serve(self, client: SocketStream) -> None:
        try:
            server = await anyio.connect_tcp("127.0.0.1", self._to)
        except OSError:
            await client.aclose()
            return
        is_marked = False

        async def forward_requests(source: ByteReceiveStream, target: ByteSendStream) -> None:
            nonlocal is_marked
            async for data in source:
                is_marked = self._mark in data
                if is_marked and self.request_cut_at is not None and len(data) > self.request_cut_at:
                    await target.send(data[: self.request_cut_at])
                    self.request_cut_at = None
                    self.cuts += 1
                    return
                await target.send(data)

        async def forward_replies(source: ByteReceiveStream, target: ByteSendStream) -> None:
            async for data in source:
                if is_marked and self.cut_at is not None and len(data) >= self.cut_at:
                    await target.send(data[: self.cut_at])
                    self.cut_at = None
                    self.cuts += 1
                    return
                if is_marked:
                    self.longest = max(self.longest, len(data))
                await target.send(data)

        async def until_closed(forward: Forward, source: SocketStream, target: SocketStream) -> None:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await forward(source, target)
            tasks.cancel_scope.cancel()

        async with client, server, anyio.create_task_group() as tasks:
            tasks.start_soon(until_closed, forward_requests, client, server)
            tasks.start_soon(until_closed, forward_replies, server, client)
