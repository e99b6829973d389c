"""The numbers that an event may hold: those that every reader of a stored line can represent.

JSON allows any number of digits, but readers have limits:

- msgspec, which our clients use, raises for a number above the range of a double.
- msgspec also raises for an integer of more than 4,300 digits.
- Spark's parser rejects a whole line for a number of more than 1,000 characters.
"""

import json
import re
from contextlib import suppress
from math import isinf
from typing import Final

import msgspec

from tweetwire.protocol.errors import Refusal

__all__ = ["check_numbers", "may_hold_large_number"]

CHARACTERS_MAX: Final = 1000
_MANY_DIGITS: Final = b"0" * 300
_KEPT: Final = b'0123456789eE-,\n"'
_SHAPES: Final = bytes(
    ord("0") if character in b"0123456789" else ord("e") if character in b"eE" else character
    for character in range(256)
)
# Removing the other characters makes the text shorter, which is faster. The characters that stay keep numbers apart.
_LEFT_OUT: Final = bytes(set(range(256)) - set(_KEPT))
# The largest double has 309 digits, or an exponent of three digits. A hexadecimal id may look the same, but a quote follows it.
_LARGE_EXPONENT: Final = re.compile(rb"0e000++(?:[,\n]|\Z)")


def may_hold_large_number(data: bytes) -> bool:
    """Whether `data` may hold a number that `check_numbers` refuses. The check is cheap and rarely wrong.

    `data` is one JSON text, or one in each line.
    """
    shape = data.translate(_SHAPES, _LEFT_OUT)
    return _LARGE_EXPONENT.search(shape) is not None or _MANY_DIGITS in shape


def check_numbers(raw: bytes) -> None:
    """Raise Refusal ``bad_event`` if a JSON text holds a number that is too large for a double or has too many digits."""
    try:
        if _MANY_DIGITS not in raw.translate(_SHAPES, _LEFT_OUT):
            with suppress(msgspec.ValidationError):
                # The text has no long number, so only the decoder can find a fault.
                msgspec.json.decode(raw)
                return
        json.loads(raw, parse_int=_check_number, parse_float=_check_number)
    except RecursionError:
        raise Refusal("bad_json", "nested too deeply") from None


def _check_number(literal: str) -> None:
    if len(literal) > CHARACTERS_MAX:
        raise Refusal(
            "bad_event",
            f"a number has {len(literal)} characters, more than {CHARACTERS_MAX}; send it as a string",
        )
    if isinf(float(literal)):
        shown = literal if len(literal) <= 40 else f"{literal[:40]}…"
        raise Refusal("bad_event", f"the number {shown} is beyond a double (1.8e308); send it as a string")
