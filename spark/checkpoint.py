"""The folders of what the jobs have counted, and whose they are.

Spark sees that somebody else writes into a checkpoint only when both write down the same batch, by looking whether its
file is there before renaming its own to it. Between the two there is room for both.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from broker.errors import StartError
from spark.locks import locked

__all__ = ["claimed"]


@contextmanager
def claimed(folders: Iterable[Path]) -> Iterator[None]:
    """Keep other programs from these folders. Raises StartError where one has them, or they cannot be written."""
    with ExitStack() as locks:
        for folder in folders:
            _claim(folder, locks)
        yield


def _claim(folder: Path, locks: ExitStack) -> None:
    taken = f"another python -m spark goes on from {folder}; stop it or choose another: --checkpoint"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        locks.enter_context(locked(folder.with_name(f"{folder.name}.lock"), taken))
    except OSError as error:
        raise StartError(
            f"cannot use {folder.parent} as checkpoint: {error.strerror}; choose another: --checkpoint"
        ) from error
