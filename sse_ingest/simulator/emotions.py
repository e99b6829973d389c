"""The word list of ``/emotion_values``: vaderSentiment's lexicon in the server's format and range (−5 … 5)."""

import re
from functools import cache
from importlib.resources import files

__all__ = ["emotion_values"]

_WORD = re.compile(r"[a-z][a-z'-]+")
_PHRASES = {
    "can't stand": -3,
    "cool stuff": 3,
    "does not work": -3,
    "fed up": -3,
    "no fun": -3,
    "not good": -2,
    "right direction": 3,
}


@cache
def emotion_values() -> bytes:
    """Return lines of ``word TAB score`` ended by CRLF, in alphabetical order; some entries have several words."""
    values = dict(_PHRASES)
    lexicon = files("vaderSentiment").joinpath("vader_lexicon.txt").read_text("utf-8")
    for line in lexicon.splitlines():
        word, mean, *_ = line.split("\t")
        score = round(float(mean) * 5 / 4)
        if _WORD.fullmatch(word) and score:
            values[word] = max(-5, min(5, score))
    return "".join(f"{word}\t{score}\r\n" for word, score in sorted(values.items())).encode()
