"""How long to wait before trying again."""

from collections.abc import Callable
from email.utils import parsedate_to_datetime

__all__ = ["pause_s", "retry_after_s"]


ASKED_SPREAD = 0.2
"""How much more than the server asked for a client may wait, as a share of it."""


def pause_s(failures: int, base_s: float, most_s: float, draw: Callable[[], float], asked_s: float = 0.0) -> float:
    """Return the pause after the nth failure in a row: doubled each time, up to `most_s`, and drawn from its upper half.

    `draw` gives 0 … 1. The spread keeps the clients of a server that restarts from coming back all at once; the lower
    bound keeps one client from hammering it, also where the server asks for less. Where it asks for more, `asked_s`, it
    is never less than that.
    """
    whole = min(base_s * 2.0 ** min(failures - 1, 30), most_s)
    return max(whole * (0.5 + 0.5 * draw()), asked_s * (1 + ASKED_SPREAD * draw()))


def retry_after_s(header: str | None, now_s: float) -> float | None:
    """Read an HTTP ``Retry-After``, seconds or a date, as seconds from `now_s` (Unix time); None where it says nothing."""
    if not header:
        return None
    if header.strip().isdecimal():
        return float(header)
    try:
        return max(parsedate_to_datetime(header).timestamp() - now_s, 0.0)
    except (ValueError, TypeError, OverflowError):
        return None
