"""End an operation before it is done: an async one at its n-th await, a blocking one at its n-th line of the client's code."""

import sys
import types
from collections.abc import Callable, Coroutine, Generator
from types import FrameType
from typing import Any

import anyio

__all__ = ["Interrupted", "cancelled_at", "interrupted_at"]

PLACES = ("tweetwire/client/blocking/", "tweetwire/client/engine/", "tweetwire/client/exactly_once/")


async def cancelled_at(number: int, function: Callable[[], Coroutine[Any, Any, Any]]) -> tuple[bool, Any]:
    """Cancel the coroutine when it waits for the `number`-th time. Return whether it ended before that, and its result."""
    with anyio.CancelScope() as scope:
        return True, await _stepped(function(), number, scope)
    return False, None


@types.coroutine
def _stepped(coroutine: Coroutine[Any, Any, Any], number: int, scope: anyio.CancelScope) -> Generator[Any, Any, Any]:
    send, value = coroutine.send, None
    while True:
        try:
            waited_for = send(value)
        except StopIteration as stop:
            return stop.value
        number -= 1
        if number == 0:
            scope.cancel()
        try:
            send, value = coroutine.send, (yield waited_for)
        except BaseException as error:  # noqa: BLE001 — the coroutine receives it
            send, value = coroutine.throw, error


class Interrupted(BaseException):
    """An exception that a signal handler may raise anywhere, like KeyboardInterrupt."""


def interrupted_at(number: int, function: Callable[[], Any]) -> tuple[bool, Any]:
    """Raise Interrupted before the `number`-th line of the blocking client. Return whether it ended before, and its result."""
    left = number

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if not any(place in frame.f_code.co_filename for place in PLACES):
            return None
        if event == "line":
            left -= 1
            if left == 0:
                raise Interrupted
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return True, function()
    except Interrupted:
        return False, None
    finally:
        sys.settrace(before)
