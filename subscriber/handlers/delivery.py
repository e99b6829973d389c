"""One try at handling one event: its hooks, its metrics and log event, its history entry, and its error."""

import inspect
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import cache

from prometheus_client import Histogram

from subscriber.handlers.failures import Reason, error_text, reason_of
from subscriber.handlers.handler import Handler, is_cancellation, name_of
from subscriber.handlers.tracing import span_of
from subscriber.handlers.tries import Try
from tweetwire import StoredEvent
from tweetwire.runtime.program import logger

__all__ = ["Delivery", "Hook", "Hooks", "handled_event"]

_MESSAGE_CHARACTERS_MAX = 200
_SECONDS = Histogram("tweetwire_handler_seconds", "time that handlers took", ["topic", "subscription", "outcome"])

handled_event: ContextVar[StoredEvent | None] = ContextVar("tweetwire_handled", default=None)
"""The event that is being handled in this context, None outside of handlers."""


class Delivery:
    """One try at handling one event, as hooks see it; `error`, `reason` and `seconds` are set when the try is over.

    `error` is the exception of the handler or of a hook before it, SystemExit and KeyboardInterrupt included. `reason` is
    the description of the error that the broker receives.
    """

    def __init__(self, event: StoredEvent, handler: Handler) -> None:
        self.event = event
        self.handler = handler
        self.error: BaseException | None = None
        self.reason: Reason | None = None
        self.seconds = 0.0

    async def attempt(self, hooks: "Hooks") -> None:
        """Run the hooks and the handler. Raises only the exception that cancels the task."""
        handled_event.set(self.event)
        began_at = time.perf_counter()
        try:
            with span_of(self.event, self.handler.options.as_):
                for hook in hooks.before:
                    await _call(hook, self)
                await self.handler.handle(self.event)
        except BaseException as error:
            # Any exception of a handler is the event's failure; only a cancellation of this task ends the service.
            if is_cancellation(error):
                raise
            self.error, self.reason = error, reason_of(error)
        self.seconds = time.perf_counter() - began_at
        self._note()

    async def call_hooks(self, hooks: "Hooks") -> None:
        """Run the hooks after a try. Raises only the exception that cancels the task."""
        for hook in (*(hooks.failure if self.error is not None else ()), *hooks.after):
            try:
                await _call(hook, self)
            except BaseException as error:
                # The event has been handled; only this hook failed.
                if is_cancellation(error):
                    raise
                logger().error("hook failed", hook=name_of(hook), error=error_text(error), trace=reason_of(error).trace)

    def as_try(self) -> Try:
        """Return the try as the history stores it."""
        event, reason = self.event, self.reason
        return Try(
            topic=event.topic,
            subscription=self.handler.options.as_,
            offset=event.offset,
            id=event.id,
            attempt=event.attempt,
            at=time.time_ns() // 1_000_000,
            seconds=round(self.seconds, 6),
            outcome="handled" if reason is None else "failed",
            error=None if reason is None else reason.code,
            message=None if reason is None else reason.message[:_MESSAGE_CHARACTERS_MAX],
        )

    def _note(self) -> None:
        options = self.handler.options
        outcome = "handled" if self.error is None else "failed"
        _seconds_of(options.topic, options.as_, outcome).observe(self.seconds)
        if self.error is not None:
            logger().warning(
                "event was not handled",
                handler=self.handler.name,
                event_id=self.event.id,
                offset=self.event.offset,
                attempt=self.event.attempt,
                error=error_text(self.error)[:_MESSAGE_CHARACTERS_MAX],
            )


Hook = Callable[[Delivery], Awaitable[None] | None]


class Hooks:
    """The functions that run around each try, in the order of their registration."""

    def __init__(self) -> None:
        self.before: list[Hook] = []
        self.failure: list[Hook] = []
        self.after: list[Hook] = []


@cache
def _seconds_of(topic: str, subscription: str, outcome: str) -> Histogram:
    # Looking up a metric's labels takes longer than observing a value.
    return _SECONDS.labels(topic, subscription, outcome)


async def _call(hook: Hook, delivery: Delivery) -> None:
    outcome = hook(delivery)
    if inspect.isawaitable(outcome):
        await outcome
