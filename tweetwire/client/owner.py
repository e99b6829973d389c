"""Refuse the use of a client in a forked process.

A forked child shares the sockets and files of its parent, so each of the two would read replies of the other.
"""

import os
from typing import Final

__all__ = ["CurrentProcess", "ProcessOwner"]


class CurrentProcess:
    """The id of this process, updated after a fork. Asking the system on each call would slow publishing down."""

    id = os.getpid()

    @classmethod
    def note_fork(cls) -> None:
        cls.id = os.getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=CurrentProcess.note_fork)


class ProcessOwner:
    """The process that made an object. `what` names the object in errors."""

    def __init__(self, what: str) -> None:
        self.what: Final = what
        self._process: Final = CurrentProcess.id

    @property
    def is_this_process(self) -> bool:
        """Whether the current process made the object."""
        return self._process == CurrentProcess.id

    def check_process(self) -> None:
        """Raise RuntimeError in a process other than the one that made the object."""
        if self._process != CurrentProcess.id:
            raise RuntimeError(
                f"{self.what} belongs to process {self._process} and is used in its fork {CurrentProcess.id}; "
                "make another one in the forked process"
            )
