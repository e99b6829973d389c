"""Wait until a condition holds: in a thread, or on the event loop."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

import anyio

__all__ = ["until", "until_async"]

T = TypeVar("T")


def until(
    condition: Callable[[], T], timeout_s: float = 30.0, describe: Callable[[], object] = str, pause_s: float = 0.02
) -> T:
    """Poll until `condition` returns a true value, and return it. Fails with the text of `describe`."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {describe()}"
        time.sleep(pause_s)
    return found


async def until_async(condition: Callable[[], Any], timeout_s: float = 100.0) -> None:
    """Poll until `condition` returns a true value. Raises TimeoutError after `timeout_s`."""
    with anyio.fail_after(timeout_s):
        while not condition():
            await anyio.sleep(0.005)
