"""The parts of a line after its verb: text, words, numbers and refs (ids or offsets of events)."""

from typing import Final

from tweetwire.protocol.errors import Refusal

__all__ = ["OFFSET_MAX", "WrongUsage", "ref_of", "split_first_word", "text_of", "whole_number", "words_of"]

OFFSET_MAX: Final = (1 << 63) - 1
_DIGITS_MAX: Final = 19
"""The number of digits of `OFFSET_MAX`."""


class WrongUsage(Exception):
    """The words of a line do not match the usage of its verb. The parser refuses the line with that usage."""


def text_of(raw: bytes) -> str:
    """Decode UTF-8. Raises Refusal ``bad_utf8``."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise Refusal("bad_utf8", "the line is not UTF-8") from None


def words_of(rest: bytes, least: int, most: int | None = None) -> list[str]:
    """Return the words of a line. Raises WrongUsage if there are fewer than `least` or more than `most`."""
    words = text_of(rest).split()
    if len(words) < least or (most is not None and len(words) > most):
        raise WrongUsage
    return words


def split_first_word(line: bytes) -> tuple[bytes, bytes]:
    """Return the first word of a line and the rest; each is empty if it is missing."""
    first, *more = line.split(None, 1) or (b"",)
    return first, more[0] if more else b""


def whole_number(text: str, most: int) -> int | None:
    """Read decimal digits as a number. Return None for any other text and for a number greater than `most`.

    A number with too many digits is never shortened to another number.
    """
    if not (text.isascii() and text.isdecimal()):
        return None
    digits = text.lstrip("0") or "0"
    return number if len(digits) <= _DIGITS_MAX and (number := int(digits)) <= most else None


def ref_of(word: str) -> int | str:
    """Read ``@1042`` as an offset and any other word as an event's id. Raises Refusal for an offset that is too large."""
    if word[0] != "@" or not (word[1:].isdecimal() and word.isascii()):
        return word
    offset = whole_number(word[1:], OFFSET_MAX)
    if offset is None:
        raise Refusal("bad_arguments", f"{word[:40]} is not an offset; the largest is @{OFFSET_MAX}")
    return offset
