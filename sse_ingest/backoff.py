"""How long to wait before trying again."""

from collections.abc import Callable
from email.utils import parsedate_to_datetime

__all__ = ["pause_s", "retry_after_s"]


def pause_s(failures: int, base_s: float, most_s: float, draw: Callable[[], float]) -> float:
    """Return the pause after the nth failure in a row: doubled each time, up to `most_s`, and drawn from its upper half.

    `draw` gives 0 … 1. The spread keeps the clients of a server that restarts from coming back all at once; the lower
    bound keeps one client from hammering it.
    """
    whole = min(base_s * 2.0 ** min(failures - 1, 30), most_s)
    return whole * (0.5 + 0.5 * draw())


def retry_after_s(header: str | None, now_s: float) -> float | None:
    """Read an HTTP ``Retry-After``, seconds or a date, as seconds from `now_s` (Unix time); None where it says nothing."""
    if not header:
        return None
    if header.strip().isdigit():
        return float(header.strip())
    try:
        return max(parsedate_to_datetime(header).timestamp() - now_s, 0.0)
    except (ValueError, TypeError):
        return None
