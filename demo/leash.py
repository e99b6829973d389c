"""Start a program that the kernel ends when its parent dies, whatever the cause (Linux).

Run as ``python -I -S leash.py <parent pid> <program> <argument>…``; it becomes the program. The request to the kernel
(PR_SET_PDEATHSIG) survives exec but not fork, so it must be made in the child. A separate program makes it instead of
`preexec_fn`, which is unsafe in a parent with threads. On other systems, the program starts without the request.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(parent: int, argv: list[str]) -> None:
    """Become `argv`, and end when the process `parent` ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # the parent died before the request was made, so no signal will arrive
            sys.exit(1)
    os.execv(argv[0], argv)  # noqa: S606 — no shell is wanted


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
