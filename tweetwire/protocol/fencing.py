"""The epoch of a claimed producer in a line: ``pub <topic> epoch=3 <event>``, and ``<producer>@3`` in other commands."""

from functools import lru_cache
from typing import Final

from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.names import check_name
from tweetwire.protocol.options import Options, take_options
from tweetwire.protocol.words import OFFSET_MAX, text_of, whole_number

__all__ = ["NO_EPOCH", "ProducerAt", "epoch_of", "producer_at", "split_epoch"]

NO_EPOCH: Final = 0
"""The epoch of lines without one, and of producers that no client has claimed."""

_NAMES: Final = frozenset({b"epoch"})

ProducerAt = tuple[str, int]
"""The name of a producer, and the epoch that the line has."""


def split_epoch(raw: bytes) -> tuple[int, bytes]:
    """Take the option ``epoch`` out of those before an event. Return it, and the rest of the line. Raises Refusal."""
    words, rest = take_options(raw, _NAMES)
    return (_cached_epoch(words), rest) if words else (NO_EPOCH, raw)


def producer_at(word: str) -> ProducerAt:
    """Read ``<producer>`` or ``<producer>@<epoch>``. Raises Refusal."""
    name, at, epoch = word.partition("@")
    return check_name(name), epoch_of(epoch) if at else NO_EPOCH


def epoch_of(text: str) -> int:
    """Read an epoch. Raises Refusal ``bad_arguments``."""
    epoch = whole_number(text, OFFSET_MAX)
    if not epoch:
        raise Refusal("bad_arguments", f"epoch is a whole number from 1 to {OFFSET_MAX}")
    return epoch


@lru_cache(maxsize=1024)
def _cached_epoch(words: bytes) -> int:
    """Read the option; results are cached, since a publisher repeats its epoch in each line."""
    options = Options(text_of(words).split())
    epoch = epoch_of(options.text("epoch") or "")
    options.end()
    return epoch
