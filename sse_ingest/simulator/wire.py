"""The rtp-server's bytes: its framing, its kill message, its bursts.

The event's name is in quotes and a blank line parts it from its data, which is the server's mistake and everybody's
habit; see the SSE standard for what becomes of it.
"""

import math

__all__ = ["BATCH", "PANIC", "PIECE_BYTES", "chunks", "message", "pause_s"]

BATCH = 100
"""Messages that go out together before a pause."""

PIECE_BYTES = 4096
"""A message longer than this arrives in several HTTP chunks."""

PANIC = b'event: "message"\n\ndata: {"message": panic}\n\n'


def message(tweet: bytes, now_s: float) -> bytes:
    """Return the message that carries `tweet` (compact JSON), sent at `now_s` (Unix time)."""
    return b'event: "message"\n\ndata: {"message": {"tweet": %b, "unix_timestamp_100us": %d}}\n\n' % (
        tweet,
        now_s * 10_000,
    )


def pause_s(draw: float) -> float:
    """Return the pause after a batch, in seconds, for a draw from 0 … 1: the server's own formula."""
    return round(11 * math.exp(-11 * draw) * 5) / 1000


def chunks(body: bytes) -> bytes:
    """Return a message in HTTP's chunked transfer coding."""
    pieces = [body[start : start + PIECE_BYTES] for start in range(0, len(body), PIECE_BYTES)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
