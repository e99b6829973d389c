"""The one thread that talks to Spark.

Spark keeps its active session in a thread's local state, and Py4J gives each Python thread a Java thread of its own: a
query that starts on another thread does not find ``format("tweetwire")``.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self, TypeVar

from anyio import to_thread

__all__ = ["DriverThread"]

T = TypeVar("T")


class DriverThread:
    """Runs one call at a time on a thread of its own, while the event loop goes on."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="spark-driver")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._executor.shutdown(wait=False)

    async def run(self, call: Callable[[], T]) -> T:
        """Run `call` there and wait for what it returns or raises."""
        return await to_thread.run_sync(self._executor.submit(call).result, abandon_on_cancel=True)
