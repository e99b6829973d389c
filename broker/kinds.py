"""Kinds of settings: how a value is written, and the word that stands for it in ``--help``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

from broker.addresses import split_address

__all__ = ["Address", "Folder", "Metavar", "OptionalFile", "Switch"]


@dataclass(frozen=True)
class Metavar:
    """The word that stands for a value in ``--help``, with examples where the word does not tell how it is written."""

    word: str
    examples: str = ""


def _address(text: str) -> str:
    split_address(text)
    return text


Address = Annotated[str, AfterValidator(_address), Metavar("HOST:PORT")]
"""The address of a broker, refused before anything is started where it is none."""

Folder = Annotated[Path, Metavar("FOLDER")]
"""A folder; a plain Path is a file."""

OptionalFile = Annotated[Path | None, BeforeValidator(lambda given: None if given == "" else given)]
"""A file that may be named or not; empty, as Compose writes a variable that is not set, it is not."""

Switch = Annotated[bool, BeforeValidator(lambda given: False if given == "" else given)]
"""Yes or no; no where it is empty, as Compose writes a variable that is not set."""
