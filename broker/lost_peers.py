"""Let the operating system notice a client whose machine or network is gone without the end of its connections.

Such a client would hold its producers and its events in flight forever, since a broker may wait for its next command as long as
it likes.
"""

from typing import Final

from anyio.abc import SocketAttribute, SocketStream

from tweetwire.keepalive import Keepalive, set_keepalive

__all__ = ["watch_client"]

LOST_AFTER_S: Final = 60.0
_MS_MAX: Final = (1 << 31) - 1


def watch_client(stream: SocketStream, stalled_s: float) -> None:
    """Have the connection ended a minute after the last sign of life from the client's machine.

    A client may stop reading for `stalled_s` seconds, so it gets at least that time.
    """
    timeout_ms = min(int(max(LOST_AFTER_S, stalled_s) * 1000), _MS_MAX)
    keepalive = Keepalive(idle_s=20, interval_s=10, probes=4, timeout_ms=timeout_ms)
    set_keepalive(stream.extra(SocketAttribute.raw_socket), keepalive)
