"""Write the output files that a user names with a flag. An error names that flag."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tweetwire.files import replace_file, replacing_file, why
from tweetwire.protocol.errors import StartError

__all__ = ["naming_flag", "output_file", "write_output"]


def write_output(path: Path, data: bytes, flag: str) -> None:
    """Replace the file at `path`, the value of `flag`, in one step. Raises StartError."""
    with naming_flag(path, flag):
        replace_file(path, data)


@contextmanager
def output_file(path: Path, flag: str) -> Iterator[int]:
    """Yield an open file that replaces `path`, the value of `flag`, when the block ends. Raises StartError."""
    with naming_flag(path, flag), replacing_file(path) as file:
        yield file


@contextmanager
def naming_flag(path: Path, flag: str) -> Iterator[None]:
    """Convert an OSError of the block to a StartError that names `path` and `flag`."""
    try:
        yield
    except OSError as error:
        raise StartError(f"cannot write {path}: {why(error)}; choose another: {flag}") from error
