"""What a handler's failure is told to the broker as, which keeps it with the event."""

import traceback

import msgspec

__all__ = ["TimedOut", "failure_json"]

_MESSAGE_CHARACTERS = 1000
_TRACE_CHARACTERS = 8000
"""The broker keeps at most 16 KiB of a failure; characters may take up to four bytes, and quotes two."""


class TimedOut(Exception):
    """A handler took longer than its timeout and was cancelled."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__(f"took longer than {timeout_s:g} s")


def failure_json(error: BaseException) -> str:
    """Write a failure as ``nack`` takes it: message, type as the code, and the last part of the traceback."""
    told = {
        "message": (str(error) or type(error).__name__)[:_MESSAGE_CHARACTERS],
        "code": type(error).__name__,
        "trace": "".join(traceback.format_exception(error))[-_TRACE_CHARACTERS:],
    }
    return msgspec.json.encode(told).decode()
