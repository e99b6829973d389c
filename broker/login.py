"""The login of one connection. Before its login, a connection is a *stranger*, which gets less memory and limited time.

In a broker without users, a connection is a stranger only until its first command.
"""

import time
from collections.abc import Callable
from typing import Final

from broker.core import Broker, Session
from broker.logins import Logins
from broker.strangers_log import strangers_log
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.verbs.session import Hello
from tweetwire.runtime.admission import AdmissionPlace

__all__ = ["ConnectionLogin"]

READ_BYTES: Final = 256 << 10
STRANGER_BYTES: Final = 4096
"""The most bytes that one read takes from a stranger, and that an unfinished line of a stranger may have.

It is small, since thousands of strangers may connect.
"""
FAILED_HELLOS_MAX: Final = 3


class ConnectionLogin:
    """Checks the ``hello`` of a connection. A connection that has logged in no longer counts as a stranger."""

    __slots__ = ("_broker", "_failed_hellos", "_logins", "_now_ms", "_place", "_session", "is_known", "read_bytes")

    def __init__(
        self, broker: Broker, logins: Logins, now_ms: Callable[[], int], session: Session, place: AdmissionPlace
    ) -> None:
        self.is_known = False
        # The most bytes of one read.
        self.read_bytes = READ_BYTES if logins.users is None else STRANGER_BYTES
        self._broker = broker
        self._logins = logins
        self._now_ms = now_ms
        self._session = session
        self._place = place
        self._failed_hellos = 0

    def note_command(self) -> None:
        """After the first command, no longer treat the connection as a stranger, if the broker has no users."""
        if self._logins.users is None:
            self.note_known()

    def check_beginning(self, held_bytes: int, now_ms: int) -> None:
        """End the connection of a stranger that has begun a line longer than `STRANGER_BYTES`, if the broker has users."""
        if held_bytes > STRANGER_BYTES and self._logins.users is not None:
            self._broker.refuse(self._session, Refusal("too_long", f"max={STRANGER_BYTES} before a login"), now_ms)
            self._session.is_leaving = True

    async def log_in(self, hello: Hello, held_bytes: int) -> Refusal | None:
        """Check a name and token, if the broker has users. Returns a refusal if they are wrong.

        The third refusal ends the connection.

        The connection holds `held_bytes` in memory until the check is done.
        """
        if self._logins.users is None:
            return None
        self._place.renew(time.monotonic())
        try:
            access = await self._logins.identify(hello.name, hello.token or "", self._place.address, held_bytes)
        except Refusal as refusal:
            return refusal
        if access is not None:
            self._failed_hellos = 0
            self._broker.grant(self._session, access, self._now_ms())
            self.note_known()
            return None
        self._failed_hellos += 1
        peer = self._session.peer
        strangers_log.warning("refused a hello", name=hello.name, peer=peer, failed=self._failed_hellos)
        if self._failed_hellos >= FAILED_HELLOS_MAX:
            self._session.is_leaving = True
        if not hello.token:
            return Refusal("unauthenticated", f"the token is missing; say hello {hello.name} token=<token>")
        return Refusal("unauthenticated", "no such name and token")

    def note_known(self) -> None:
        """Note that the user is known, so that the connection is no longer a stranger."""
        self.is_known = True
        self.read_bytes = READ_BYTES
        self._place.keep()
