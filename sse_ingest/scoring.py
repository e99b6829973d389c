"""Sentiment and engagement of a tweet.

Two scorers: vaderSentiment's compound score (Hutto & Gilbert, "VADER: A Parsimonious Rule-based Model for Sentiment
Analysis of Social Media Text", 2014), and the plain mean of word scores over a list such as the rtp-server's.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from math import isfinite, nan
from typing import Literal

__all__ = ["Scorer", "ScorerName", "engagement", "lexicon_scorer", "parse_emotion_values", "vader_scorer"]

Scorer = Callable[[str], float]
ScorerName = Literal["vader", "lexicon"]

_EDGE = re.compile(r"^[^\w'+-]+|[^\w'+-]+$")


@cache
def vader_scorer() -> Scorer:
    """Return the scorer that gives vaderSentiment's compound score, −1 … 1."""
    from sse_ingest.vader import Analyzer  # noqa: PLC0415 — only a process that scores loads it

    return Analyzer().compound


def lexicon_scorer(values: Mapping[str, float]) -> Scorer:
    """Return the scorer that gives the sum of the words' scores divided by the number of words.

    Words are what blanks separate, without punctuation around them and in small letters. An entry of several words
    counts where its words follow each other, the longest first; words of no entry count 0. An empty text scores 0.
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
    """Read lines of ``word TAB score``. Raises ValueError, naming the line, for anything else."""
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
