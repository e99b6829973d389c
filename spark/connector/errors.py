"""The errors of the Spark connector and the jobs, as sentences for the person who runs them."""

import re
from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JError

__all__ = ["DataLossError", "FileOptionError", "OptionError", "RowError", "TooManyRowsError", "sentence_of"]

_RAISED = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)")
"""Matches the first line after the indented lines of a Python traceback: the line with the error."""


class OptionError(ValueError):
    """An option of ``format("tweetwire")`` is missing or not valid."""


class FileOptionError(OptionError):
    """A file that an option names cannot be used; a restart may succeed once the file has been replaced."""


class DataLossError(Exception):
    """Events that a query has not read are no longer in the topic, or the topic was deleted and created again."""

    def __init__(self, topic: str, wanted: int, earliest: int, head: int) -> None:
        gone = "retention has removed them" if wanted < earliest else "the topic was created again"
        super().__init__(
            f"topic {topic} holds the offsets {earliest} to {head}, but the query continues at {wanted}: {gone}; "
            "set failOnDataLoss=false (the jobs' --no-fail-on-data-loss) to continue with the existing events, or start "
            "with a new checkpoint"
        )
        self.topic = topic


class RowError(ValueError):
    """A row cannot become an event."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        super().__init__(f"a row needs an id and a msg to become an event: {row}")


class TooManyRowsError(Exception):
    """A micro-batch has more rows than its share of sequence numbers."""

    def __init__(self, rows: int, rows_max: int) -> None:
        super().__init__(f"a batch has {rows} rows, but at most {rows_max} can be published exactly once")


def sentence_of(error: BaseException | None) -> str:
    """Return the line with the cause among the stack traces of Java and Python."""
    text = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    raised = [
        line for line in lines if line.startswith(("spark.connector.errors.", "tweetwire.protocol.errors."))
    ] or _RAISED.findall(text)
    if raised:
        return str(raised[-1])
    # Py4J's first line names the call that failed, the second the Java exception.
    return " ".join(lines[: 2 if isinstance(error, Py4JError) else 1]) or "unknown"
