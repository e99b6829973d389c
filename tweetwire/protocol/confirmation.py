"""The marks that the confirmation of an event waits for, and for how long: ``after=kafka,redis within=5s``."""

from functools import lru_cache
from typing import Final

from msgspec import Struct

from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.names import check_name
from tweetwire.protocol.options import Options, take_options
from tweetwire.protocol.units import format_seconds, parse_seconds
from tweetwire.protocol.words import text_of

__all__ = [
    "NO_MARK",
    "REPLICATED",
    "WITHIN_MS_MAX",
    "Confirmation",
    "ConfirmationChange",
    "read_confirmation_change",
    "split_confirmation",
]

NO_MARK: Final = "none"
"""The word that stands for no mark where marks are listed, so no mark has this name."""
REPLICATED: Final = "replicated"
"""The promise in the confirmation of an event that every named mark has passed."""
MARKS_MAX: Final = 8
WITHIN_MS: Final = 5_000
WITHIN_MS_MAX: Final = 20_000

_NAMES: Final = frozenset({b"after", b"within"})


class ConfirmationChange(Struct, frozen=True):
    """The members of a `Confirmation` that a line sets. None leaves a member as it is."""

    after: tuple[str, ...] | None = None
    within_ms: int | None = None


class Confirmation(Struct, frozen=True, omit_defaults=True):
    """The marks, in order of their names, that must pass an event before it is confirmed as `REPLICATED`.

    After `within_ms`, an event is confirmed with the lesser promise of the broker. Without marks, events are confirmed when
    they are stored.
    """

    after: tuple[str, ...] = ()
    within_ms: int = WITHIN_MS

    def changed(self, change: ConfirmationChange) -> "Confirmation":
        """Return a copy with the given members of `change`."""
        return Confirmation(
            self.after if change.after is None else change.after,
            self.within_ms if change.within_ms is None else change.within_ms,
        )

    def __str__(self) -> str:
        """Return the options of the ``confirm`` line that sets it."""
        return f"after={','.join(self.after) or NO_MARK} within={format_seconds(self.within_ms / 1000)}"


def read_confirmation_change(options: Options) -> ConfirmationChange | None:
    """Take the options ``after`` and ``within`` of a line. Return None if it has neither."""
    after, within = options.text("after"), options.text("within")
    if after is None and within is None:
        return None
    return ConfirmationChange(
        None if after is None else _marks(after),
        None if within is None else _within_ms(within),
    )


def split_confirmation(raw: bytes) -> tuple[ConfirmationChange | None, bytes]:
    """Take the options ``after`` and ``within`` out of those before an event. Return them, and the rest of the line."""
    words, rest = take_options(raw, _NAMES)
    return (_cached_change(words), rest) if words else (None, raw)


@lru_cache(maxsize=1024)
def _cached_change(words: bytes) -> ConfirmationChange | None:
    """Read the options of a line; results are cached, since a publisher repeats its options in each line."""
    return read_confirmation_change(Options(text_of(words).split()))


def _marks(text: str) -> tuple[str, ...]:
    if text.lower() == NO_MARK:
        return ()
    names = {check_name(name) for name in text.split(",")}
    if NO_MARK in {name.lower() for name in names}:
        raise Refusal("bad_arguments", f"after={NO_MARK} cannot be combined with other marks; no mark has this name")
    if len(names) > MARKS_MAX:
        raise Refusal("bad_arguments", f"after names at most {MARKS_MAX} marks")
    return tuple(sorted(names))


def _within_ms(text: str) -> int:
    try:
        within_ms = round(parse_seconds(text) * 1000)
    except ValueError as error:
        raise Refusal("bad_arguments", f"within: {error}") from None
    if not 0 < within_ms <= WITHIN_MS_MAX:
        raise Refusal("bad_arguments", f"within must be more than 0s and at most {WITHIN_MS_MAX // 1000}s")
    return within_ms
