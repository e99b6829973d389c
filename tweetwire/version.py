"""The version of the package. It is a constant, because reading the package's metadata takes as long as all other imports."""

from typing import Final

__all__ = ["VERSION"]

VERSION: Final = "0.1.0"
