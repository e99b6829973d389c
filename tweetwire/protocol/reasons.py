"""The reason of a ``nack``, as JSON that is cut to the bytes that the broker keeps."""

from collections.abc import Callable
from typing import Final

import msgspec

__all__ = ["REASON_BYTES_MAX", "reason_json"]

REASON_BYTES_MAX: Final = 16 << 10
"""The size of the longest reason of a ``nack``, as JSON in UTF-8."""

_CODE_BYTES: Final = 1 << 10
_FRAME_BYTES: Final = len('{"message":,"code":,"trace":}')
_encode = msgspec.json.Encoder().encode


def reason_json(message: str | None, code: str | int | None, trace: str | None) -> bytes:
    """Return a JSON object of the arguments that are not None, in at most `REASON_BYTES_MAX` bytes.

    A message or code that is too long keeps its beginning, a trace keeps its end. A character that UTF-8 cannot express
    is written as its escape sequence.
    """
    room = REASON_BYTES_MAX - _FRAME_BYTES
    if isinstance(code, str):
        code = _head(code, _CODE_BYTES)
    if code is not None:
        room -= len(_encode(code))
    if message is not None:
        # The trace gets the room that the message leaves, and at least three quarters of the whole room.
        message = _head(message, room if trace is None else max(room // 4, room - _size(trace)))
        room -= len(_encode(message))
    words = {"message": message, "code": code, "trace": None if trace is None else _tail(trace, room)}
    return _encode({name: word for name, word in words.items() if word is not None})


def _size(text: str) -> int:
    return len(_encode(_expressible(text)))


def _head(text: str, bytes_max: int) -> str:
    """Return the beginning of `text` that JSON writes in at most `bytes_max` bytes. It may be slightly too short."""
    return _cut(text, bytes_max, lambda data, size: data[:size])


def _tail(text: str, bytes_max: int) -> str:
    """Return the end of `text` that JSON writes in at most `bytes_max` bytes. It may be slightly too short."""
    return _cut(text, bytes_max, lambda data, size: data[len(data) - size :])


def _cut(text: str, bytes_max: int, part: Callable[[bytes, int], bytes]) -> str:
    text = _expressible(text)
    data, size = text.encode(), bytes_max
    # JSON writes one byte with up to six, so the first cut may be too long.
    while len(_encode(text)) > bytes_max:
        text = part(data, size).decode(errors="ignore")
        size = size * 15 // 16
    return text


def _expressible(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()
