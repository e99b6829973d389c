"""Small files with one JSON object in a line that has a checksum, so that a damaged file is recognised."""

from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from tweetwire.checked_lines import checked_line, line_body
from tweetwire.files import read_file

__all__ = ["DamagedFile", "encode_checked", "read_checked"]

S = TypeVar("S", bound=Struct)


class DamagedFile(Exception):
    """The content of a file is not what was written."""


def encode_checked(content: Struct) -> bytes:
    """Return the bytes of a file for `content`."""
    return checked_line(msgspec.json.encode(content))


def read_checked(path: Path, kind: type[S]) -> S | None:
    """Return the content of a file, None if there is no file. Raises DamagedFile, OSError."""
    try:
        body = line_body(read_file(path).removesuffix(b"\n"))
    except FileNotFoundError:
        return None
    if body is None:
        raise DamagedFile
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise DamagedFile from error
