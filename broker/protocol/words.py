"""What a line behind its verb is made of: text, words, references to events."""

from broker.errors import Refusal

__all__ = ["ref_of", "text_of", "words_of"]


def text_of(raw: bytes) -> str:
    """Return what `raw` says. Raises Refusal ``bad_utf8``."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise Refusal("bad_utf8", "the line is not UTF-8") from None


def words_of(rest: bytes, usage: str, least: int, most: int | None = None) -> list[str]:
    """Return the words of a line, from `least` to `most` of them. Raises Refusal with the usage."""
    words = text_of(rest).split()
    if len(words) < least or (most is not None and len(words) > most):
        raise Refusal("bad_arguments", f"usage: {usage}")
    return words


def ref_of(word: str) -> int | str:
    """Read ``@1042`` as an offset, anything else as an event's id."""
    return int(word[1:20]) if word[0] == "@" and word[1:].isdecimal() and word.isascii() else word
