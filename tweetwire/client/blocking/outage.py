"""Decide when a blocking client tries to connect again and when it gives up. Times are arguments, so there is no clock."""

from tweetwire.client.engine.pauses import SETTLED_S, ReconnectPauses

__all__ = ["ConnectionOutage"]


class ConnectionOutage:
    """The time without a usable connection, which is over after `within_s` seconds. None means never, and 0 means at once.

    A connection that is lost soon, before the broker has answered, does not end an outage. Otherwise a broker that fails on
    each repeated command would keep its caller waiting forever.

    After `is_over` has returned True, its next call begins a new outage.
    """

    def __init__(self, within_s: float | None) -> None:
        self.next_attempt_at = 0.0
        self._within_s = within_s
        self._pauses = ReconnectPauses()
        self._connected_at = 0.0
        self._away_since: float | None = None

    def note_connected(self, now: float) -> None:
        """Note that there is a connection."""
        self._connected_at = now

    def end(self) -> None:
        """End the outage: the broker has answered, or the call has failed. The next loss begins another one."""
        self._away_since = None

    def note_lost(self, now: float) -> None:
        """Note that the connection has ended. The first attempt comes after a pause."""
        lasted_s = now - self._connected_at
        if lasted_s > SETTLED_S:
            self.end()
        self._pauses.note_lost(lasted_s)
        self.note_failed(now)

    def note_failed(self, now: float) -> None:
        """Note that an attempt has failed. The next attempt comes after a longer pause."""
        self.next_attempt_at = now + self._pauses.next_s()

    def is_over(self, now: float) -> bool:
        """Return whether the outage has lasted too long. It begins with the first call after a connection was lost."""
        if self._away_since is None:
            self._away_since = now
        if self._within_s is None or now - self._away_since < self._within_s:
            return False
        self._away_since = None
        return True
