"""The identity of a data folder, by which other systems tell brokers apart.

It is made with the folder and stays for the folder's life. A backup does not hold it, so a restored folder is another broker.
A folder that is copied file by file has the identity of the original, until ``tweetwire fsck --new-identity`` changes it.
"""

import secrets
import string
from pathlib import Path
from typing import Final

from msgspec import Struct

from tweetwire.checked_files import DamagedFile, encode_checked, read_checked
from tweetwire.files import FILE_MODE, refuse_other_kinds, replace_file
from tweetwire.protocol.errors import StartError

__all__ = ["IDENTITY_NAME", "find_identity", "make_identity", "new_identity"]

IDENTITY_NAME: Final = "IDENTITY"
LENGTH: Final = 22
"""The number of characters of an identity. With 62 possible characters, 22 have more than 128 bits."""
_CHARACTERS: Final = string.ascii_letters + string.digits


class _Identity(Struct):
    identity: str


def new_identity() -> str:
    """Return a new identity of 22 random letters and digits."""
    return "".join(secrets.choice(_CHARACTERS) for _ in range(LENGTH))


def find_identity(folder: Path) -> str | None:
    """Return the identity of a data folder, or None if it has none yet. Raises StartError if it is damaged, OSError."""
    path = folder / IDENTITY_NAME
    refuse_other_kinds(path)
    try:
        found = read_checked(path, _Identity)
    except DamagedFile:
        raise StartError(
            f"{path} is damaged; give the folder a new identity: tweetwire fsck {folder} --new-identity"
        ) from None
    return None if found is None else found.identity


def make_identity(folder: Path) -> str:
    """Give a data folder a new identity, and return it once it is on the disk. Raises OSError."""
    identity = new_identity()
    replace_file(folder / IDENTITY_NAME, encode_checked(_Identity(identity)), mode=FILE_MODE)
    return identity
