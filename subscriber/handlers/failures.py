"""Describe a handler's failure for the broker. No function here raises, whatever the handler raised."""

import traceback
from collections.abc import Callable
from typing import Final, NamedTuple

__all__ = ["Reason", "TimedOut", "error_text", "reason_of"]

_CHARACTERS_MAX: Final = 16 << 10
"""The broker keeps at most this many bytes. A longer text is cut before it is encoded, since it may be very long."""

_LINE_CHARACTERS_MAX: Final = 2000


class TimedOut(Exception):
    """A handler took longer than its timeout and was cancelled."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__(f"took longer than {timeout_s:g} s")


class Reason(NamedTuple):
    """A failure as the broker stores it: the error's text, type and traceback. All three can be encoded as UTF-8."""

    message: str
    code: str
    trace: str


def reason_of(error: BaseException) -> Reason:
    """Describe an exception of a handler."""
    code = _text(lambda: type(error).__name__, "an error without a name")
    message = _text(lambda: str(error), f"{code}, whose text cannot be read")
    return Reason(message or code, code, _text(lambda: _trace_of(error), "its traceback cannot be written"))


def error_text(error: BaseException) -> str:
    """Return type and text of an error, for a log."""
    reason = reason_of(error)
    return reason.code if reason.message == reason.code else f"{reason.code}: {reason.message}"


def _trace_of(error: BaseException) -> str:
    # Each line is cut separately: otherwise a text of a megabyte at the end would displace the frames before it.
    lines = (
        line if len(line) <= _LINE_CHARACTERS_MAX else f"{line[:_LINE_CHARACTERS_MAX]}…\n"
        for line in traceback.format_exception(error)
    )
    return "".join(lines)[-_CHARACTERS_MAX:]


def _text(read: Callable[[], str], otherwise: str) -> str:
    """Return a text with characters that UTF-8 cannot express as escape sequences; `otherwise` if reading it raises."""
    try:
        # `str.__str__` makes a plain str of a subclass, whose own methods may raise.
        text = str.__str__(read())[:_CHARACTERS_MAX]
        return text.encode(errors="backslashreplace").decode()
    except BaseException:  # noqa: BLE001 — an error's own methods may raise anything, SystemExit included
        return otherwise
