"""What the Spark part can fail with, in sentences for the person who runs it."""

import re
from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JError

__all__ = ["DataLossError", "FileOptionError", "OptionError", "RowError", "TooManyRowsError", "sentence_of"]

_RAISED = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)")
"""What follows the indented lines of a traceback of Python's."""


class OptionError(ValueError):
    """An option of ``format("tweetwire")`` is missing or makes no sense."""


class FileOptionError(OptionError):
    """A file that an option names cannot be used, maybe only until it has been written anew."""


class DataLossError(Exception):
    """Events that a query still has to read are no longer in the topic, or the topic is not the one it knew."""

    def __init__(self, topic: str, wanted: int, earliest: int, head: int) -> None:
        gone = "retention has removed them" if wanted < earliest else "the topic was made anew"
        super().__init__(
            f"topic {topic} holds the offsets {earliest} to {head}, and the query goes on at {wanted}: {gone}; "
            "set failOnDataLoss=false (the jobs' --no-fail-on-data-loss) to go on with what is there, or start with a new "
            "checkpoint"
        )
        self.topic = topic


class RowError(ValueError):
    """A row cannot be an event."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        super().__init__(f"a row without an id or without a msg is no event: {row}")


class TooManyRowsError(Exception):
    """A batch has more rows than a batch's share of sequence numbers."""

    def __init__(self, rows: int, rows_max: int) -> None:
        super().__init__(f"a batch of {rows} rows cannot be published once and for all; the most is {rows_max}")


def sentence_of(error: BaseException | None) -> str:
    """Find the line that tells the cause among Java's and Python's stack traces."""
    text = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    raised = [line for line in lines if line.startswith(("spark.errors.", "broker.errors."))] or _RAISED.findall(text)
    if raised:
        return str(raised[-1])
    # Py4J's first line names the call that failed, the second the Java exception.
    return " ".join(lines[: 2 if isinstance(error, Py4JError) else 1]) or "unknown"
