"""How far a query is behind its topics: told now and then while it catches up."""

import json
import time
from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryProgress

from broker.program import logger
from spark.progress import Position

__all__ = ["Lag"]

_EVERY_S = 10.0
_WORTH_TELLING_S = 10.0


class Lag:
    """Tells of the query `name` as long as what it has not read would take it ten seconds and more."""

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._clock = clock
        self._due = clock()
        self._is_behind = False

    @property
    def is_due(self) -> bool:
        """Whether it is time to tell again."""
        return self._clock() >= self._due

    def tell(self, progress: StreamingQueryProgress | None) -> None:
        """Log how much the newest micro-batch has left, and once that all is read; None before the first batch's end."""
        self._due = self._clock() + _EVERY_S
        if progress is None or not progress.numInputRows:
            return
        per_second = progress.processedRowsPerSecond
        to_go = sum(_unread(source.endOffset, source.latestOffset) for source in progress.sources)
        was_behind, self._is_behind = self._is_behind, to_go > per_second * _WORTH_TELLING_S
        if self._is_behind:
            logger().info("catches up", query=self._name, to_go=to_go, per_second=round(per_second))
        elif was_behind:
            logger().info("has caught up", query=self._name)


def _unread(end: str, latest: str) -> int:
    at, heads = _position(end), _position(latest)
    return sum(max(0, head.next - at.topics[topic].next) for topic, head in heads.topics.items())


def _position(text: str) -> Position:
    found: dict[str, Any] | None = json.loads(text)
    return Position({}) if found is None else Position.from_json(found)
