"""Starts a program that the kernel ends when its parent dies, however that happened (Linux).

Run as ``python -I -S leash.py <parent pid> <program> <argument>…``; it becomes the program. The request to the kernel
(PR_SET_PDEATHSIG) outlives exec but not fork, so it has to be made in the child; making it in a program of its own and
not in `preexec_fn` keeps the parent’s threads out of it. Elsewhere than on Linux the program simply starts.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(parent: int, argv: list[str]) -> None:
    """Become `argv`, tied to the life of `parent`."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died before the request was made, and no signal will come
            sys.exit(1)
    os.execv(argv[0], argv)  # noqa: S606 — no shell is wanted


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
