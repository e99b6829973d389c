"""The central engines that `make engines` has installed, in a folder outside the tree."""

import os
import shutil
from pathlib import Path
from typing import Final

__all__ = ["find_engine_folder", "find_engine_program"]

_ENGINES: Final = Path(os.environ.get("TWEETWIRE_ENGINES") or Path.home() / ".cache" / "tweetwire" / "engines")


def find_engine_program(name: str) -> str | None:
    """Return the path of a program, None if it is not installed."""
    return shutil.which(name, path=str(_ENGINES / "bin"))


def find_engine_folder(name: str) -> Path | None:
    """Return a folder of files, None if it is not installed."""
    folder = _ENGINES / name
    return folder if folder.is_dir() else None
