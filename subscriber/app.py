"""A service that handles events: decorated functions, each with a durable subscription of its own.

What is always true: an event is acked only after its function returned, and refused with the reason when it raised or
took too long; so whatever dies, each event is handled at least once or becomes a dead letter. An event that came over a
connection that is gone is not begun any more, since the broker gives it again.
"""

import inspect
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import anyio
from anyio.abc import TaskStatus
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from msgspec import UNSET
from msgspec.structs import replace
from prometheus_client import Histogram
from pydantic import Field

from broker import Client, Event, Receipt, Refusal, StoredEvent, Subscription
from broker.errors import StartError
from broker.kinds import Address
from broker.login import Login
from broker.program import ClientSettings, logger, ready, run, settings_config
from broker.units import Seconds, parse_seconds
from subscriber.failures import failure_json
from subscriber.handler import Handler, Options
from subscriber.tracing import TRACEPARENT, span_of, traceparent_now
from subscriber.tries import HISTORY, Try, TryLog

__all__ = ["Delivery", "ServiceSettings", "Subscriber"]

F = TypeVar("F", bound=Callable[[Any], Any])

_LAST_ACKS_S = 5.0
_MESSAGE_CHARACTERS = 200
_SECONDS = Histogram("tweetwire_handler_seconds", "time that handlers took", ["topic", "subscription", "outcome"])
_handled: ContextVar[StoredEvent | None] = ContextVar("tweetwire_handled", default=None)


class ServiceSettings(ClientSettings):
    """The settings of a service: where its broker is, and how it ends."""

    model_config = settings_config("service")

    broker: Address = Field("", description="address of the broker (default: the one in the code)")
    drain: Seconds = Field("10s", validate_default=True, description="time that handlers have to end at a stop")


class Delivery:
    """One try at handling one event, as the hooks see it; `error` and `seconds` are there once it is over."""

    def __init__(self, event: StoredEvent, handler: Handler) -> None:
        self.event = event
        self.handler = handler
        self.error: Exception | None = None
        self.seconds = 0.0


Hook = Callable[[Delivery], Awaitable[None] | None]


class Subscriber:
    """An application: register functions with `on`, then `run` it as a program or `serve` it in a task.

    `broker` is the broker's address, `name` how this application calls itself there; with `token` it is that of a user.
    With `tls` it speaks TLS.
    `history` is the topic that keeps each try and its processing time, None for none.
    """

    def __init__(
        self,
        broker: str = "127.0.0.1:8000",
        *,
        name: str = "service",
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
        history: str | None = HISTORY,
    ) -> None:
        self.broker = broker
        self.name = name
        self._token = token
        self._tls = tls
        self.handlers: list[Handler] = []
        self._before: list[Hook] = []
        self._after: list[Hook] = []
        self._failure: list[Hook] = []
        self._history = history
        self._tries: TryLog | None = None
        self._client: Client | None = None

    def on(
        self,
        topic: str,
        *,
        as_: str,
        prefetch: int = 100,
        concurrency: int = 10,
        timeout: str = "30s",
        tries: int = 5,
        backoff: str = "0s",
        from_: int | str = "latest",
    ) -> Callable[[F], F]:
        """Register a function, async or plain, for the events of `topic`; see `Options`.

        It takes one argument: the StoredEvent where that is its annotation or it has none, else `msg` decoded as the
        annotated type. Raises TypeError for a function that takes anything else.
        """
        options = Options(
            topic=topic,
            as_=as_,
            prefetch=prefetch,
            concurrency=concurrency,
            timeout_s=parse_seconds(timeout),
            tries=tries,
            backoff_s=parse_seconds(backoff),
            start=from_,
        )

        def register(function: F) -> F:
            self.handlers.append(Handler(function, options))
            return function

        return register

    def before(self, hook: Hook) -> Hook:
        """Register a hook that is called before each try; what it raises makes the try fail."""
        self._before.append(hook)
        return hook

    def failure(self, hook: Hook) -> Hook:
        """Register a hook that is called after each failed try, before those of `after`; what it raises is logged."""
        self._failure.append(hook)
        return hook

    def after(self, hook: Hook) -> Hook:
        """Register a hook that is called after each try, failed or not; what it raises is logged."""
        self._after.append(hook)
        return hook

    async def publish(self, topic: str, event: Event) -> Receipt:
        """Publish and wait for the confirmation. Raises Refusal.

        Inside a handler the event gets the handled one as its `parent`, and as ``traceparent`` header that of the try's
        span, or without OpenTelemetry that of the handled event, unless it has some of its own. A plain function calls it
        by ``anyio.from_thread.run(app.publish, topic, event)``.
        """
        if self._client is None:
            raise RuntimeError("the application does not run yet")
        return await self._client.publish(topic, _as_child(event, _handled.get()))

    async def serve(self, stop: anyio.Event, *, drain_s: float = 10.0) -> None:
        """Handle events until `stop` is set; then begin no more, and give those in hand `drain_s` to end.

        Raises StartError where the broker refuses a subscription, BrokerUnreachable where there is none.
        """
        async with (
            self._new_client(self.name) as self._client,
            self._keeping_tries(self._client),
            anyio.create_task_group() as tasks,
        ):
            for handler in self.handlers:
                await tasks.start(self._serve_handler, handler, stop, drain_s)
            ready(self.name, self.broker)

    @asynccontextmanager
    async def _keeping_tries(self, client: Client) -> AsyncIterator[None]:
        if self._history is None:
            yield
            return
        tries = self._tries = TryLog(client, self._history)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tries.run)
            yield
            tasks.cancel_scope.cancel()
        await tries.close()

    def run(self, argv: Sequence[str] | None = None) -> int:
        """Run as a program, with the flags of `ServiceSettings`, until a signal; returns the exit status."""
        return run(ServiceSettings, self._serve_program, argv)

    async def _serve_program(self, settings: ServiceSettings, stop: anyio.Event) -> None:
        login = settings.login()
        self.broker, self.name = login.address or self.broker, login.name(self.name)
        self._token = login.token or self._token
        self._tls = login.context() or self._tls
        await self.serve(stop, drain_s=settings.drain)

    def _new_client(self, name: str) -> Client:
        return Client(self.broker, name=name, token=self._token, tls=self._tls)

    async def _serve_handler(
        self, handler: Handler, stop: anyio.Event, drain_s: float, *, task_status: TaskStatus[None]
    ) -> None:
        # A connection has one subscription a topic, and several functions may want the same topic.
        name = f"{self.name}-{handler.options.as_}" if self._token is None else self.name
        async with self._new_client(name) as client:
            reader = _Reader(client, await self._subscribe(client, handler.options), handler)
            task_status.started()
            send, receive = anyio.create_memory_object_stream[_Item](handler.options.prefetch)
            async with anyio.create_task_group() as workers:
                for _ in range(handler.options.concurrency):
                    workers.start_soon(self._work, reader, receive.clone(), stop)
                receive.close()
                await reader.read(send, stop)
                workers.cancel_scope.deadline = anyio.current_time() + drain_s
            with anyio.move_on_after(_LAST_ACKS_S):
                await client.ping()

    async def _subscribe(self, client: Client, options: Options) -> Subscription:
        """Subscribe. Raises StartError where the broker refuses."""
        try:
            return await client.subscribe(
                options.topic,
                as_=options.as_,
                prefetch=options.prefetch,
                from_=options.start,
                create=True,
                timeout_s=options.patience_s,
                tries=options.tries,
                backoff_s=options.backoff_s,
            )
        except Refusal as refusal:
            login = Login(self.broker) if self._token is None else Login(self.broker, self.name, self._token)
            raise StartError(
                f"the broker refuses the subscription {options.as_} of {options.topic}: {login.reason(refusal)}"
            ) from refusal

    async def _work(self, reader: "_Reader", receive: "MemoryObjectReceiveStream[_Item]", stop: anyio.Event) -> None:
        with receive:
            async for event, connects in receive:
                if not stop.is_set() and connects == reader.client.connects:
                    await reader.settle(await self._try(event, reader.handler), connects)

    async def _try(self, event: StoredEvent, handler: Handler) -> Delivery:
        delivery = Delivery(event, handler)
        _handled.set(event)
        began_at = time.perf_counter()
        try:
            with span_of(event, handler.options.as_):
                for hook in self._before:
                    await _call(hook, delivery)
                await handler.handle(event)
        except Exception as error:  # noqa: BLE001 — whatever a handler raises is the event's failure, not the service's
            delivery.error = error
        delivery.seconds = time.perf_counter() - began_at
        _note(delivery)
        if self._tries is not None:
            self._tries.note(_try(delivery))
        for hook in (*(self._failure if delivery.error is not None else ()), *self._after):
            try:
                await _call(hook, delivery)
            except Exception:  # noqa: BLE001 — the event has been handled; only the hook has not
                logger().exception("a hook failed", hook=repr(hook))
        return delivery


_Item = tuple[StoredEvent, int]
"""An event, and over which of the client's connections it came."""


class _Reader:
    """One handler's subscription: reads it, and tells the broker how each event went."""

    def __init__(self, client: Client, subscription: Subscription, handler: Handler) -> None:
        self.client = client
        self.handler = handler
        self._subscription = subscription

    async def read(self, send: "MemoryObjectSendStream[_Item]", stop: anyio.Event) -> None:
        """Hand on what comes until `stop`."""
        async with send, anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_when, stop, tasks.cancel_scope)
            async for batch in self._subscription:
                for event in batch:
                    await send.send((event, self.client.connects))

    async def settle(self, delivery: Delivery, connects: int) -> None:
        """Ack, or refuse with the reason; nothing where the connection is gone, since the event comes again."""
        if connects != self.client.connects:
            return
        event = delivery.event
        if delivery.error is None:
            await self._subscription.ack([event])
            return
        try:
            await self.client.command(f"nack {event.topic} @{event.offset} {failure_json(delivery.error)}")
        except Refusal as refusal:
            logger().warning("the broker no longer waits for this event", event_id=event.id, reason=str(refusal))


async def _cancel_when(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


async def _call(hook: Hook, delivery: Delivery) -> None:
    outcome = hook(delivery)
    if inspect.isawaitable(outcome):
        await outcome


def _as_child(event: Event, parent: StoredEvent | None) -> Event:
    if parent is None:
        return event
    if event.parent is UNSET:
        event = replace(event, parent=parent.id)
    trace = traceparent_now() or (parent.headers.get(TRACEPARENT) if parent.headers is not UNSET else None)
    if trace is None:
        return event
    own = event.headers if event.headers is not UNSET else {}
    return replace(event, headers={TRACEPARENT: trace, **own})


def _try(delivery: Delivery) -> Try:
    event, error = delivery.event, delivery.error
    return Try(
        topic=event.topic,
        subscription=delivery.handler.options.as_,
        offset=event.offset,
        id=event.id,
        attempt=event.attempt,
        at=time.time_ns() // 1_000_000,
        seconds=round(delivery.seconds, 6),
        outcome="handled" if error is None else "failed",
        error=None if error is None else type(error).__name__,
        message=None if error is None else str(error)[:_MESSAGE_CHARACTERS],
    )


def _note(delivery: Delivery) -> None:
    options = delivery.handler.options
    outcome = "handled" if delivery.error is None else "failed"
    _SECONDS.labels(options.topic, options.as_, outcome).observe(delivery.seconds)
    if delivery.error is not None:
        logger().warning(
            "an event was not handled",
            handler=delivery.handler.name,
            event_id=delivery.event.id,
            offset=delivery.event.offset,
            attempt=delivery.event.attempt,
            error=repr(delivery.error),
        )
