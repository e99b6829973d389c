"""Give all handler functions one form: a coroutine function that takes an event."""

import inspect
import math
from collections.abc import Callable
from functools import partial
from typing import Any, get_type_hints

import anyio
from anyio import CapacityLimiter, to_thread
from msgspec import Struct

from subscriber.handlers.failures import TimedOut
from tweetwire import StoredEvent

__all__ = ["Handler", "HandlerOptions", "is_cancellation", "name_of"]

Handle = Callable[[Any], Any]

_GRACE_S = 5.0


class HandlerOptions(Struct, frozen=True, kw_only=True):
    """How a handler reads its topic.

    Args:
        topic: the topic to subscribe to.
        as_: the name of the durable subscription, which all processes that use it share.
        prefetch: the most events in flight to this process.
        concurrency: the most events in the function at once.
        timeout_s: seconds after which a running function is cancelled and the try fails.
        tries: the number of failed tries after which an event becomes a dead letter.
        backoff_s: seconds until the second try; the pause before try n + 1 is ``backoff_s`` × 2^(n − 1).
        start: where a new subscription begins: latest, earliest, an offset or a time.
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
        """How long the broker waits for a begun event, in seconds; the function is cancelled earlier."""
        return self.timeout_s + _GRACE_S


class Handler:
    """One registered function with its options. Raises TypeError if the function does not take exactly one argument."""

    def __init__(self, function: Handle, options: HandlerOptions) -> None:
        self.function = function
        self.options = options
        self._argument_of = _argument_of(function)
        self._is_async = inspect.iscoroutinefunction(function)
        self._threads: CapacityLimiter | None = None

    @property
    def name(self) -> str:
        """The function's name in logs."""
        return name_of(self.function)

    async def handle(self, event: StoredEvent) -> None:
        """Run the function on `event`. A plain function runs in a thread, which continues if the call is cancelled.

        Raises:
            TimedOut: the function took longer than its timeout.
            msgspec.ValidationError: `msg` does not have the annotated type.
            BaseException: whatever the function raises.
        """
        argument = self._argument_of(event)
        error: BaseException | None = None
        with anyio.move_on_after(self.options.timeout_s) as patience:
            if self._is_async:
                await self.function(argument)
            else:
                error = await self._call_in_thread(argument)
        if patience.cancelled_caught:
            raise TimedOut(self.options.timeout_s)
        if error is not None:
            raise error

    async def _call_in_thread(self, argument: Any) -> BaseException | None:
        if self._threads is None:
            self._threads = CapacityLimiter(self.options.concurrency)
        call = partial(_error_of, self.function, argument)
        return await to_thread.run_sync(call, abandon_on_cancel=True, limiter=self._threads)


def _error_of(function: Handle, argument: Any) -> BaseException | None:
    """Call a plain function and return its exception. If an `await` raised a GeneratorExit, the calling coroutine would end."""
    try:
        function(argument)
    except BaseException as error:  # noqa: BLE001 — any exception is the event's failure
        return error
    return None


def name_of(function: object) -> str:
    """Return a function's name for a log, or the name of its type. Do not use `str` or `repr`, since they may raise."""
    name = getattr(function, "__qualname__", None)
    return name if isinstance(name, str) else type(function).__name__


def is_cancellation(error: BaseException) -> bool:
    """Whether `error` comes from the cancellation of this task, and was not raised by the handler itself."""
    return isinstance(error, anyio.get_cancelled_exc_class()) and anyio.current_effective_deadline() == -math.inf


def _argument_of(function: Handle) -> Callable[[StoredEvent], Any]:
    """Return how to make the function's argument, by its annotation: the event, or its `msg` decoded as the annotated type."""
    parameters = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
    ]
    if len(parameters) != 1 or parameters[0].kind is parameters[0].KEYWORD_ONLY:
        raise TypeError(f"{function!r} must take exactly one argument: an event, or its msg by type")
    wanted = get_type_hints(function).get(parameters[0].name, StoredEvent)
    if wanted is StoredEvent:
        return lambda event: event
    return lambda event: event.decode(wanted)
