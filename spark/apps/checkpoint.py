"""Reserve the checkpoint folders of the jobs for one program.

Spark itself notices another writer only if both write the same batch: it checks that the batch's file is missing before it
renames its own file to it. Between the check and the renaming, the other writer can pass the same check.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from spark.apps.locks import locked
from tweetwire.protocol.errors import StartError

__all__ = ["claimed"]


@contextmanager
def claimed(folders: Iterable[Path]) -> Iterator[None]:
    """Lock these folders against other programs. Raises StartError if one is locked or cannot be written."""
    with ExitStack() as locks:
        for folder in folders:
            _claim(folder, locks)
        yield


def _claim(folder: Path, locks: ExitStack) -> None:
    taken = f"another python -m spark uses {folder}; stop it or choose another folder: --checkpoint"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        locks.enter_context(locked(folder.with_name(f"{folder.name}.lock"), taken))
    except OSError as error:
        raise StartError(
            f"cannot use {folder.parent} as checkpoint: {error.strerror}; choose another: --checkpoint"
        ) from error
