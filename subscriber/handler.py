"""A function that handles events, made one shape: awaited with an event, whatever it was written to take."""

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, get_type_hints

import anyio
from anyio import CapacityLimiter, to_thread
from msgspec import Struct

from broker import StoredEvent
from subscriber.failures import TimedOut

__all__ = ["Handler", "Options"]

Handle = Callable[[Any], Any]


class Options(Struct, frozen=True, kw_only=True):
    """How a handler reads its topic. Times in seconds.

    `as_` names the durable subscription; all processes with one name share it. At most `prefetch` events are on their
    way here, `concurrency` of them in the function at once. One that takes longer than `timeout_s` is cancelled and
    counts as failed; after `tries` failures an event becomes a dead letter, with `backoff_s` × 2^(try − 1) in between.
    `start` is where a new subscription begins: latest, earliest, an offset or a time.
    """

    topic: str
    as_: str
    prefetch: int = 100
    concurrency: int = 10
    timeout_s: float = 30.0
    tries: int = 5
    backoff_s: float = 0.0
    start: int | str = "latest"

    @property
    def patience_s(self) -> float:
        """How long the broker waits for a word: an event may wait here behind all that came with it, round by round."""
        rounds = -(-self.prefetch // self.concurrency)
        return self.timeout_s * (rounds + 1) + 5.0


class Handler:
    """One registered function with its options. Raises TypeError for one that does not take exactly one argument."""

    def __init__(self, function: Handle, options: Options) -> None:
        self.function = function
        self.options = options
        self._argument_of = _argument_of(function)
        self._is_async = inspect.iscoroutinefunction(function)
        self._threads: CapacityLimiter | None = None

    @property
    def name(self) -> str:
        return getattr(self.function, "__qualname__", repr(self.function))

    async def handle(self, event: StoredEvent) -> None:
        """Run the function on `event`. Raises what it raises, TimedOut, or msgspec.ValidationError if `msg` does not fit.

        A plain function runs in a thread; one that is cancelled there runs on, but nobody waits for it.
        """
        argument = self._argument_of(event)
        with anyio.move_on_after(self.options.timeout_s) as patience:
            await self._call(argument)
        if patience.cancelled_caught:
            raise TimedOut(self.options.timeout_s)

    def _call(self, argument: Any) -> Awaitable[Any]:
        if self._is_async:
            awaitable: Awaitable[Any] = self.function(argument)
            return awaitable
        if self._threads is None:
            self._threads = CapacityLimiter(self.options.concurrency)
        call = partial(self.function, argument)
        return to_thread.run_sync(call, abandon_on_cancel=True, limiter=self._threads)


def _argument_of(function: Handle) -> Callable[[StoredEvent], Any]:
    """Choose by annotation what the function is given: the event, or its `msg` decoded as the type that is asked for."""
    parameters = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
    ]
    if len(parameters) != 1 or parameters[0].kind is parameters[0].KEYWORD_ONLY:
        raise TypeError(f"{function!r} has to take one argument: an event, or its msg by type")
    wanted = get_type_hints(function).get(parameters[0].name, StoredEvent)
    if wanted is StoredEvent:
        return lambda event: event
    return lambda event: event.decode(wanted)
