"""Patterns of topics: names whose words may be wildcards, for one subscription to many topics.

Dots separate the words of a pattern. ``*`` stands for one word, and ``>`` at the end for one or more: ``orders.*``,
``tenant.*.orders``, ``tenant.>``.
"""

import re
from functools import lru_cache
from typing import Final

from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.names import check_name

__all__ = ["check_topic_or_pattern", "do_overlap", "is_pattern", "literal_start", "matches"]

_WORD: Final = r"(?:[A-Za-z0-9_\-]+|\*)"
_PATTERN: Final = re.compile(rf"{_WORD}(?:\.{_WORD})*(?:\.>)?|>")
_LENGTH_MAX: Final = 128


def is_pattern(text: str) -> bool:
    """Whether a word of a line is meant as a pattern, which may be wrong, and not as the name of a topic."""
    return "*" in text or ">" in text


def check_topic_or_pattern(text: str) -> str:
    """Return `text`. Raises Refusal ``bad_name`` if it can be neither the name of a topic nor a pattern."""
    if not is_pattern(text):
        return check_name(text)
    if len(text) > _LENGTH_MAX or _PATTERN.fullmatch(text) is None:
        raise Refusal(
            "bad_name",
            f"{text[:40]!a}: a pattern has 1-{_LENGTH_MAX} characters, and * in it is a whole word between dots,"
            " > the last word; as in orders.* and tenant.>",
        )
    return text


def matches(pattern: str, topic: str) -> bool:
    """Whether a valid pattern matches the name of a topic."""
    wanted, words = _words(pattern), topic.split(".")
    if wanted[-1] == ">":
        wanted = wanted[:-1]
        if len(words) <= len(wanted):
            return False
    elif len(words) != len(wanted):
        return False
    return all(one in {"*", word} for one, word in zip(wanted, words, strict=False))


def do_overlap(one: str, other: str) -> bool:
    """Whether two patterns or names can match the same topic."""
    for mine, theirs in zip(words := _words(one), others := _words(other), strict=False):
        if ">" in {mine, theirs}:
            return True
        if mine != theirs and "*" not in {mine, theirs}:
            return False
    return len(words) == len(others)


def literal_start(pattern: str) -> str:
    """Return the beginning of a pattern up to its first wildcard. Every topic that matches begins with it."""
    return re.split(r"[*>?\[]", pattern, maxsplit=1)[0]


@lru_cache(maxsize=1024)
def _words(pattern: str) -> tuple[str, ...]:
    return tuple(pattern.split("."))
