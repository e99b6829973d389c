"""A service that handles events: decorated functions, each with a separate durable subscription.

An event is acked only after its function returned. If the function raised or took too long, the event is nacked with the
reason. So each event is handled at least once or becomes a dead letter, whichever process dies. Once a connection is lost, no
further event from it is handled, since the broker delivers these events again.
"""

import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
from anyio.abc import TaskStatus
from anyio.streams.memory import MemoryObjectReceiveStream
from msgspec import UNSET
from msgspec.structs import replace
from pydantic import Field

from subscriber.handlers.delivery import Delivery, Hook, Hooks, handled_event
from subscriber.handlers.handler import Handler, HandlerOptions
from subscriber.handlers.reader import EventReader, Item
from subscriber.handlers.tracing import TRACEPARENT, traceparent_now
from subscriber.handlers.tries import HISTORY, TryLog
from tweetwire import Client, Event, Receipt, Refusal, StoredEvent, Subscription
from tweetwire.protocol.errors import StartError
from tweetwire.protocol.units import parse_seconds
from tweetwire.runtime.kinds import Address, Seconds
from tweetwire.runtime.login import Login
from tweetwire.runtime.program import ClientSettings, ready, run, settings_config

__all__ = ["Delivery", "ServiceSettings", "Subscriber"]

F = TypeVar("F", bound=Callable[[Any], Any])

_LAST_ACKS_S = 5.0


class ServiceSettings(ClientSettings):
    """The settings of a service: the address of its broker, and its shutdown."""

    model_config = settings_config("service")

    broker: Address = Field("", description="address of the broker (default: the one in the code)")
    drain: Seconds = Field("10s", validate_default=True, description="time that running handlers have to end at a stop")


class Subscriber:
    """An application: register functions with `on`, then `run` it as a program or `serve` it in a task.

    Args:
        broker: the broker's address, ``host:port``.
        name: the name of this application at the broker; with `token`, the name of a user.
        token: the user's token, None for an anonymous client.
        tls: the context for TLS, None for a plain connection.
        history: the topic that keeps each try and its processing time, None for no history.
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
        self._hooks = Hooks()
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
        """Register a function, async or plain, for the events of `topic`.

        The function takes one argument. If the argument is annotated as StoredEvent or not at all, it receives the event,
        else the event's `msg` decoded as the annotated type.

        Args:
            topic: the topic to subscribe to.
            as_: the name of the durable subscription; all processes that use it share the events.
            prefetch: the most events in flight to this process.
            concurrency: the most events in the function at once.
            timeout: the time after which a running function is cancelled and the try fails, such as ``30s``.
            tries: the number of failed tries after which an event becomes a dead letter.
            backoff: the pause after the first failed try, doubled for each further one, such as ``1s``.
            from_: where a new subscription begins: latest, earliest, an offset, or a time.

        Returns:
            A decorator that returns the function unchanged.

        Raises:
            TypeError: the function does not take exactly one argument.
        """
        options = HandlerOptions(
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
        """Register a hook that is called before each try; an exception in it makes the try fail."""
        self._hooks.before.append(hook)
        return hook

    def failure(self, hook: Hook) -> Hook:
        """Register a hook that is called after each failed try, before those of `after`; its exceptions are logged."""
        self._hooks.failure.append(hook)
        return hook

    def after(self, hook: Hook) -> Hook:
        """Register a hook that is called after each try, failed or not; its exceptions are logged."""
        self._hooks.after.append(hook)
        return hook

    async def publish(self, topic: str, event: Event) -> Receipt:
        """Publish an event and wait for the confirmation.

        Inside a handler, the handled event becomes the `parent` of the new event. The new event's header ``traceparent`` is
        that of the try's span, or without OpenTelemetry that of the handled event. Values that the event already has stay.
        A plain function publishes with ``anyio.from_thread.run(app.publish, topic, event)``.

        Raises:
            Refusal: the broker refuses the event.
            TypeError: `event` is not an `Event`.
            RuntimeError: the application is not running.
        """
        if not isinstance(event, Event):
            raise TypeError(f'publish takes an Event, not a {type(event).__name__}: Event(id="1", msg=...)')
        if self._client is None:
            raise RuntimeError("the application is not running; publish from a handler or after serve() has connected")
        return await self._client.publish(topic, _as_child(event, handled_event.get()))

    async def reply(self, msg: Any) -> Receipt:
        """Answer the request that the calling handler handles, and wait for the confirmation.

        A plain function replies with ``anyio.from_thread.run(app.reply, msg)``.

        Raises:
            ValueError: the handled event is not a request, or `msg` cannot be written as JSON.
            Refusal: the broker refuses the reply.
            RuntimeError: the function is called outside of a handler.
        """
        request = handled_event.get()
        if self._client is None or request is None:
            raise RuntimeError("reply answers the event that a handler handles; call it inside the handler")
        return await self._client.reply(request, msg)

    async def serve(self, stop: anyio.Event, *, drain_s: float = 10.0) -> None:
        """Handle events until `stop` is set. Then start no more, and give running handlers `drain_s` seconds to end.

        Raises:
            StartError: the broker refuses or ends a subscription.
            BrokerUnreachable: no broker answers at the address.
        """
        async with (
            self._new_client(self.name) as self._client,
            self._keeping_tries(self._client),
            anyio.create_task_group() as tasks,
        ):
            for handler in self.handlers:
                await tasks.start(self._serve_handler, handler, stop, drain_s)
            ready(self.name, self.broker)
            # Wait here too, because a service without handlers must run until it is stopped.
            await stop.wait()

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
        """Run as a program with the flags of `ServiceSettings` until a signal, and return the exit status."""
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
        # A connection has one subscription per topic, and several functions may use the same topic.
        name = f"{self.name}-{handler.options.as_}" if self._token is None else self.name
        async with self._new_client(name) as client:
            reader = EventReader(client, await self._subscribe(client, handler.options), handler.options.concurrency)
            task_status.started()
            send, receive = anyio.create_memory_object_stream[Item](handler.options.prefetch)
            async with anyio.create_task_group() as workers:
                for _ in range(handler.options.concurrency):
                    workers.start_soon(self._work, reader, handler, receive.clone(), stop)
                receive.close()
                await reader.read(send, stop)
                workers.cancel_scope.deadline = anyio.current_time() + drain_s
            with anyio.move_on_after(_LAST_ACKS_S):
                await client.ping()

    async def _subscribe(self, client: Client, options: HandlerOptions) -> Subscription:
        """Subscribe. Raises StartError if the broker refuses."""
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
                begins=True,
            )
        except Refusal as refusal:
            login = Login(self.broker) if self._token is None else Login(self.broker, self.name, self._token)
            raise StartError(
                f"the broker refuses the subscription {options.as_} of {options.topic}: {login.reason(refusal)}"
            ) from refusal

    async def _work(
        self, reader: EventReader, handler: Handler, receive: "MemoryObjectReceiveStream[Item]", stop: anyio.Event
    ) -> None:
        with receive:
            async for event, connects in receive:
                if stop.is_set() or not reader.is_current(connects):
                    continue
                if not event.is_suspect:
                    await self._handle(reader, handler, event, connects)
                    continue
                async with reader.turn(event, connects) as is_current:
                    if is_current:
                        await self._handle(reader, handler, event, connects)

    async def _handle(self, reader: EventReader, handler: Handler, event: StoredEvent, connects: int) -> None:
        delivery = Delivery(event, handler)
        await delivery.attempt(self._hooks)
        if self._tries is not None:
            self._tries.note(delivery.as_try())
        await delivery.call_hooks(self._hooks)
        await reader.settle(delivery, connects)


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
