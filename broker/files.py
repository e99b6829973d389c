"""What a file needs to be there after a power cut."""

import os
from pathlib import Path

__all__ = ["sync_directory"]


def sync_directory(directory: Path) -> None:
    """Wait until the names in a folder are on the disk; a file that was made or renamed is not there before. Raises OSError."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
