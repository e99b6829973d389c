"""Parse the HTTP header ``Retry-After``."""

from email.utils import parsedate_to_datetime

__all__ = ["retry_after_s"]


def retry_after_s(header: str | None, now_s: float) -> float | None:
    """Parse an HTTP ``Retry-After``, seconds or a date, as seconds from `now_s` (Unix time); None if it is not valid."""
    if not header:
        return None
    if header.strip().isdecimal():
        return float(header)
    try:
        return max(parsedate_to_datetime(header).timestamp() - now_s, 0.0)
    except (ValueError, TypeError, OverflowError):
        return None
