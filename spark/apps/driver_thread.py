"""The only thread that calls Spark.

Spark keeps its active session in thread-local state, and Py4J gives each Python thread a separate Java thread. So a query
that is started on another thread does not find ``format("tweetwire")``.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self, TypeVar

from anyio import to_thread

__all__ = ["DriverThread"]

T = TypeVar("T")


class DriverThread:
    """Runs one call at a time on a separate thread, without blocking the event loop."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="spark-driver")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._executor.shutdown(wait=False)

    async def run(self, call: Callable[[], T]) -> T:
        """Run `call` on the thread, and return its result or raise its exception."""
        return await to_thread.run_sync(self._executor.submit(call).result, abandon_on_cancel=True)
