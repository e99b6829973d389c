"""Refuse the use of an async client on another event loop.

An event loop wakes only its own tasks, so a caller on another event loop would wait forever.
"""

import threading

from anyio import lowlevel

from tweetwire.client.owner import CurrentProcess, ProcessOwner
from tweetwire.protocol.errors import ClientClosed

__all__ = ["LoopOwner"]


class LoopOwner(ProcessOwner):
    """The event loop and the thread in which an async client was entered."""

    def __init__(self, what: str, address: str) -> None:
        super().__init__(what)
        self._address = address
        self._token: lowlevel.EventLoopToken | None = None
        self._thread = 0
        self._has_left = False

    def check_new(self) -> None:
        """Raise RuntimeError if the client was entered before."""
        self.check_process()
        if self._token is not None:
            raise RuntimeError(f"{self.what} was entered before; make another one for each `async with`")

    def enter(self) -> None:
        """Note that the client now belongs to the running event loop."""
        self._token, self._thread = lowlevel.current_token(), threading.get_ident()

    def leave(self) -> None:
        """Note that the client was left and cannot be used again."""
        self._has_left = True

    def check_thread(self) -> None:
        """Check the process and the thread of a call.

        Raises RuntimeError in another process or thread or before the client was entered, ClientClosed after it was left.
        """
        if self._process != CurrentProcess.id or self._thread != threading.get_ident() or self._has_left:
            self._refuse()

    def check(self) -> None:
        """Check the process, the thread and the event loop of a call. Raises the errors of `check_thread`."""
        self.check_thread()
        if lowlevel.current_token() != self._token:
            self._refuse()

    def _refuse(self) -> None:
        self.check_process()
        if self._token is None:
            raise RuntimeError(
                f"{self.what} is used before it was entered; use it inside `async with Client(…) as client:`"
            )
        if self._has_left:
            raise ClientClosed(self._address)
        raise RuntimeError(
            f"{self.what} belongs to another event loop or thread; enter another one here, or call it there with "
            "anyio.from_thread.run"
        )
