"""One set of async methods for both clients, so that a test can run with each. The blocking client works in a thread."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Protocol, TypeVar

import anyio
from anyio import to_thread

from tweetwire import Client, Event, Receipt, StoredEvent, Subscription, SyncClient, SyncSubscription

__all__ = ["CLIENTS", "EitherClient", "EitherSubscription", "Opener", "taken"]

WITHIN_S = 30.0

T = TypeVar("T")


class EitherSubscription(Protocol):
    """The methods that both kinds of subscription have."""

    @property
    def stale(self) -> int: ...
    @property
    def own(self) -> Any: ...
    async def take(self, within_s: float = WITHIN_S) -> list[StoredEvent]: ...
    async def ack(self, events: Sequence[StoredEvent]) -> None: ...
    async def nack(
        self, event: StoredEvent, message: str | None = None, *, code: str | int | None = None, trace: str | None = None
    ) -> None: ...
    async def extend(self, events: Sequence[StoredEvent]) -> None: ...


class EitherClient(Protocol):
    """The methods that both clients have. `call` is for methods whose arguments and results are the same."""

    @property
    def own(self) -> Any: ...
    async def call(self, method: str, *args: Any, **options: Any) -> Any: ...
    async def publish_many(self, topic: str, events: Sequence[Event], **options: Any) -> list[Receipt]: ...
    async def subscribe(self, topic: str, **options: Any) -> EitherSubscription: ...
    async def unsubscribe(self, subscription: EitherSubscription, *, end: bool = False) -> None: ...


class AsyncSubscription:
    """Adapts a `Subscription` to `EitherSubscription`."""

    def __init__(self, own: Subscription) -> None:
        self.own = own
        self.ack = own.ack
        self.nack = own.nack
        self.extend = own.extend

    @property
    def stale(self) -> int:
        return self.own.stale

    async def take(self, within_s: float = WITHIN_S) -> list[StoredEvent]:
        with anyio.move_on_after(within_s):
            async for batch in self.own:
                return batch
        return []


class AsyncClient:
    """Adapts a `Client` to `EitherClient`."""

    def __init__(self, own: Client) -> None:
        self.own = own

    async def call(self, method: str, *args: Any, **options: Any) -> Any:
        return await getattr(self.own, method)(*args, **options)

    async def publish_many(self, topic: str, events: Sequence[Event], **options: Any) -> list[Receipt]:
        receipts: list[Receipt] = []
        async with self.own.publisher(topic, on_confirm=receipts.append, **options) as publisher:
            await publisher.publish_many(events)
        return receipts

    async def subscribe(self, topic: str, **options: Any) -> EitherSubscription:
        return AsyncSubscription(await self.own.subscribe(topic, **options))

    async def unsubscribe(self, subscription: EitherSubscription, *, end: bool = False) -> None:
        await self.own.unsubscribe(subscription.own, end=end)


async def in_thread(function: Callable[..., T], *args: Any, **options: Any) -> T:
    return await to_thread.run_sync(partial(function, *args, **options))


class BlockingSubscription:
    """Adapts a `SyncSubscription` to `EitherSubscription`; each call runs in a thread."""

    def __init__(self, own: SyncSubscription) -> None:
        self.own = own
        self.take = partial(in_thread, own.take)
        self.ack = partial(in_thread, own.ack)
        self.nack = partial(in_thread, own.nack)
        self.extend = partial(in_thread, own.extend)

    @property
    def stale(self) -> int:
        return self.own.stale


class BlockingClient:
    """Adapts a `SyncClient` to `EitherClient`; each call runs in a thread."""

    def __init__(self, own: SyncClient) -> None:
        self.own = own

    async def call(self, method: str, *args: Any, **options: Any) -> Any:
        return await in_thread(getattr(self.own, method), *args, **options)

    async def publish_many(self, topic: str, events: Sequence[Event], **options: Any) -> list[Receipt]:
        return await in_thread(self.own.publish_many, topic, events, **options)

    async def subscribe(self, topic: str, **options: Any) -> EitherSubscription:
        return BlockingSubscription(await in_thread(self.own.subscribe, topic, **options))

    async def unsubscribe(self, subscription: EitherSubscription, *, end: bool = False) -> None:
        await in_thread(self.own.unsubscribe, subscription.own, end=end)


@asynccontextmanager
async def async_client(address: str, **options: Any) -> AsyncIterator[EitherClient]:
    async with Client(address, **options) as client:
        yield AsyncClient(client)


@asynccontextmanager
async def blocking_client(address: str, **options: Any) -> AsyncIterator[EitherClient]:
    client = await in_thread(SyncClient, address, **options)
    with client:
        yield BlockingClient(client)


Opener = Callable[..., Any]

CLIENTS: dict[str, Opener] = {"Client": async_client, "SyncClient": blocking_client}


async def taken(subscription: EitherSubscription, count: int) -> list[StoredEvent]:
    """Take `count` events, in any number of batches."""
    events: list[StoredEvent] = []
    while len(events) < count:
        some = await subscription.take()
        assert some, f"{len(events)} of {count}"
        events += some
    return events
