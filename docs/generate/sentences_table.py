"""Make the table of the start-up errors, with the cause and the remedy of each."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from docs.generate.sentences import PROGRAMS, Sentence, find_sentences

__all__ = ["read_remedies", "sentences_markdown", "without_remedy"]

_REMEDIES: Final = Path(__file__).parent / "remedies.toml"
_HEAD: Final = "| sentence | cause | remedy |\n| --- | --- | --- |"
_TITLES: Final = {
    "tweetwire": "Any program, and the commands of tweetwire",
    "bridge": "The bridge",
    "sse_ingest": "The ingester",
    "spark": "Spark",
}


def sentences_markdown(root: Path) -> str:
    """Return a section with a table for each folder of the code that has start-up errors."""
    return "\n\n".join(_sections(find_sentences(root)))


def read_remedies() -> dict[str, dict[str, list[str]]]:
    """Return the cause and the remedy of each start-up error, by folder and message."""
    return tomllib.loads(_REMEDIES.read_text())


def without_remedy(root: Path) -> list[Sentence]:
    """Return the start-up errors of the code that have no cause and remedy yet."""
    remedies = read_remedies()
    return [one for one in find_sentences(root) if one.text not in remedies.get(one.folder, {})]


def _sections(found: list[Sentence]) -> Iterator[str]:
    remedies = read_remedies()
    for folder in PROGRAMS:
        rows = [
            f"| {_code(text)} | {' | '.join(remedies.get(folder, {}).get(text, ['', 'The sentence says it.']))} |"
            for program, text in found
            if program == folder
        ]
        if rows:
            title = _TITLES.get(folder, f"The {folder.replace('_', ' ')}")
            yield "\n".join([f"### {title}\n", _HEAD, *rows])


def _code(text: str) -> str:
    return f"`{text.replace('|', '¦')}`"
