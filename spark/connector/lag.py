"""Log how far a query lags behind its topics, at intervals while it catches up."""

import json
import time
from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryProgress

from spark.connector.progress import ReadPosition
from tweetwire.runtime.program import logger

__all__ = ["Lag"]

_EVERY_S = 10.0
_WORTH_TELLING_S = 10.0


class Lag:
    """Logs the lag of the query `name` while it would need at least ten seconds to read the unread events."""

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._clock = clock
        self._due = clock()
        self._is_behind = False

    @property
    def is_due(self) -> bool:
        """Whether the next log event is due."""
        return self._clock() >= self._due

    def log_progress(self, progress: StreamingQueryProgress | None) -> None:
        """Log how many events are unread after the newest micro-batch.

        If no event is unread, this is logged once. `progress` is None before the end of the first batch.
        """
        self._due = self._clock() + _EVERY_S
        if progress is None or not progress.numInputRows:
            return
        per_second = progress.processedRowsPerSecond
        to_go = sum(_unread(source.endOffset, source.latestOffset) for source in progress.sources)
        was_behind, self._is_behind = self._is_behind, to_go > per_second * _WORTH_TELLING_S
        if self._is_behind:
            logger().info("query is catching up", query=self._name, to_go=to_go, per_second=round(per_second))
        elif was_behind:
            logger().info("query has caught up", query=self._name)


def _unread(end: str, latest: str) -> int:
    at, heads = _position(end), _position(latest)
    return sum(max(0, head.next - at.topics[topic].next) for topic, head in heads.topics.items())


def _position(text: str) -> ReadPosition:
    found: dict[str, Any] | None = json.loads(text)
    return ReadPosition({}) if found is None else ReadPosition.from_json(found)
