"""Allow a blocking client to be used by one thread at a time, and only in the process that made it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from tweetwire.client.owner import ProcessOwner
from tweetwire.protocol.errors import BrokerLost

__all__ = ["Turns"]


class Turns:
    """Allows one use at a time.

    `is_in_iterator` is true while the client runs an iterator of the application, which must not use the client.
    """

    def __init__(self, what: str) -> None:
        self.owner = ProcessOwner(what)
        self.is_in_iterator = False
        self._in_use = threading.Lock()
        self._user = 0

    @contextmanager
    def taken(self, address: str) -> Iterator[None]:
        """Use the client in the block.

        Raises RuntimeError during another use, and BrokerLost if an earlier use was interrupted by an exception and has not
        ended.
        """
        is_mine = False
        try:
            is_mine = self._in_use.acquire(blocking=False)
            if not is_mine:
                self._refuse(address)
            self._user = threading.get_ident()
            yield
        finally:
            if is_mine:
                self._in_use.release()

    def _refuse(self, address: str) -> NoReturn:
        if self._user == threading.get_ident() and not self.is_in_iterator:
            # An exception such as KeyboardInterrupt came before the earlier use could release the lock.
            raise BrokerLost(address)
        raise RuntimeError(
            f"{self.owner.what} is already in use by another thread, or by the call of publish_many that runs this "
            "iterator; make another client for each thread"
        )
