"""End a program with status 2 and one sentence if an extra of the package is not installed."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["needs_extra"]


@contextmanager
def needs_extra(program: str, extra: str) -> Iterator[None]:
    """End the process with status 2 if an import in the block fails, and name the extra that brings the module.

    Args:
        program: The name of the program in the sentence, such as ``the broker``.
        extra: The name of the extra of the package ``tweetwire``.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        print(f"{program} needs {name}: pip install 'tweetwire[{extra}]'", file=sys.stderr, flush=True)
        sys.exit(2)
