"""The rtp-server's bytes: its framing, its kill message, its bursts.

The event's name is in quotes, and a blank line separates it from its data. That is a mistake of the server: by the SSE
standard, the blank line ends the event, so the name is lost.
"""

import math

__all__ = ["BATCH", "PANIC", "PIECE_BYTES", "chunks", "message", "pause_s"]

BATCH = 100
"""The number of messages that are sent together before a pause."""

PIECE_BYTES = 4096
"""The most bytes of an HTTP chunk. A longer message is sent in several chunks."""

PANIC = b'event: "message"\n\ndata: {"message": panic}\n\n'


def message(tweet: bytes, now_s: float) -> bytes:
    """Return the message that contains `tweet` (compact JSON), sent at `now_s` (Unix time)."""
    return b'event: "message"\n\ndata: {"message": {"tweet": %b, "unix_timestamp_100us": %d}}\n\n' % (
        tweet,
        now_s * 10_000,
    )


def pause_s(draw: float) -> float:
    """Return the pause after a batch in seconds by the server's formula. `draw` is a random number from 0 to 1."""
    return round(11 * math.exp(-11 * draw) * 5) / 1000


def chunks(body: bytes) -> bytes:
    """Encode a message in HTTP's chunked transfer coding."""
    pieces = [body[start : start + PIECE_BYTES] for start in range(0, len(body), PIECE_BYTES)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
