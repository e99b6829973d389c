"""The file ``tiers/CHAIN`` of a data folder: which chain of manifests the folder continues, and how far it has come.

Always true:

- `writers` has the writer of each manifest that a process of this folder may have written last;
- `number` is at least the number before the last manifest that a process of this folder has tried to write, in any place;
- `is_fenced` is set once another folder has continued the chain, until this one owns it again.

So a manifest of another writer, or one with a number above `number` + 1, shows that another folder has continued the chain.
"""

from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from tweetwire.checked_files import DamagedFile, encode_checked, read_checked
from tweetwire.files import FILE_MODE, make_folder, replace_file, sync_directory
from tweetwire.protocol.errors import StartError

__all__ = ["TIERS_FOLDER", "ChainFile", "forget_chain", "note_fence", "read_chain_file", "write_chain_file"]

TIERS_FOLDER: Final = "tiers"
_NAME: Final = "CHAIN"


class ChainFile(Struct, frozen=True):
    """The content of the file."""

    chain: str
    writers: list[str]
    number: int
    is_fenced: bool = False


def read_chain_file(data_dir: Path) -> ChainFile | None:
    """Return the content, None if there is no file. Raises StartError if it is damaged, OSError."""
    path = data_dir / TIERS_FOLDER / _NAME
    try:
        return read_checked(path, ChainFile)
    except DamagedFile:
        raise StartError(f"{path} is damaged; restore the folder from the bucket: tweetwire restore URL DIR") from None


def forget_chain(data_dir: Path) -> None:
    """Let a folder begin a chain with its identity, since it is a copy of the folder that continues the old one.

    Raises OSError.
    """
    if (path := data_dir / TIERS_FOLDER / _NAME).exists():
        path.unlink()
        sync_directory(path.parent)


def write_chain_file(data_dir: Path, content: ChainFile) -> None:
    """Replace the content, durably. Raises OSError."""
    make_folder(data_dir / TIERS_FOLDER)
    replace_file(data_dir / TIERS_FOLDER / _NAME, encode_checked(content), mode=FILE_MODE)


def note_fence(data_dir: Path) -> None:
    """Remember that another folder has continued the chain, for a start while the store is away. Raises OSError, StartError."""
    record = read_chain_file(data_dir)
    if record is not None and not record.is_fenced:
        write_chain_file(data_dir, msgspec.structs.replace(record, is_fenced=True))
