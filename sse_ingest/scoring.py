"""Compute the sentiment and the engagement of a tweet.

There are two scorers of sentiment. One is vaderSentiment's compound score (Hutto & Gilbert, "VADER: A Parsimonious
Rule-based Model for Sentiment Analysis of Social Media Text", 2014). The other is the mean of word scores from a list, such as
that of the rtp-server.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from math import isfinite, nan
from typing import Literal

__all__ = [
    "CHARACTERS_SCORED",
    "Scorer",
    "ScorerName",
    "engagement",
    "lexicon_scorer",
    "parse_emotion_values",
    "vader_scorer",
]

Scorer = Callable[[str], float]
ScorerName = Literal["vader", "lexicon"]

CHARACTERS_SCORED = 5000
"""The most characters of a text that are scored: vaderSentiment's time grows with the square of the number of words."""

_EDGE = re.compile(r"^[^\w'+-]+|[^\w'+-]+$")


@cache
def vader_scorer() -> Scorer:
    """Return the scorer that computes vaderSentiment's compound score, −1 … 1."""
    from sse_ingest.vader import Analyzer  # noqa: PLC0415 — imported here, so that only processes that score load it

    return Analyzer().compound


def lexicon_scorer(values: Mapping[str, float]) -> Scorer:
    """Return the scorer that computes the sum of the words' scores divided by the number of words.

    Words are separated by whitespace, stripped of punctuation and compared in lower case. An entry of several words matches
    consecutive words; the longest match counts. Other words score 0, and so does an empty text.
    """
    words_max = max((key.count(" ") + 1 for key in values), default=1)

    def score(text: str) -> float:
        words = [_EDGE.sub("", word) for word in text.lower().split()]
        total, place = 0.0, 0
        while place < len(words):
            for length in range(min(words_max, len(words) - place), 0, -1):
                value = values.get(" ".join(words[place : place + length]))
                if value is not None:
                    total += value
                    break
            place += length
        return total / len(words) if words else 0.0

    return score


def parse_emotion_values(text: str) -> dict[str, float]:
    """Parse lines of ``word TAB score``. Raises ValueError with the line's number if a line has another form."""
    values: dict[str, float] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        word, tab, score = line.rpartition("\t")
        value = _number(score)
        values[word.strip().lower()] = value
        if not tab or not isfinite(value):
            raise ValueError(f"line {number} of the emotion values is not 'word TAB score': {line[:60]!r}")
    return values


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return nan


def engagement(favorites: int, retweets: int, followers: int) -> float:
    """Return (favourites + retweets) / followers, where an author without followers counts as having one."""
    return (favorites + retweets) / max(followers, 1)
