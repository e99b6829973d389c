"""The hook of MkDocs: it replaces the marks in a page by generated parts while the site is built."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from docs.generate.commands_table import commands_markdown
from docs.generate.sentences_table import sentences_markdown
from docs.generate.settings_index import settings_markdown
from docs.generate.statistics_topics import statistics_markdown

__all__ = ["on_page_markdown"]

_ROOT: Final = Path(__file__).parents[2]
_PARTS: Final[dict[str, Callable[[], str]]] = {
    "commands": commands_markdown,
    "settings": settings_markdown,
    "statistics": statistics_markdown,
    "sentences": lambda: sentences_markdown(_ROOT),
}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page with its generated parts, each in the place of a line ``<!-- generate NAME -->``."""
    for name, make in _PARTS.items():
        mark = f"<!-- generate {name} -->"
        if mark in markdown:
            markdown = markdown.replace(mark, make())
    return markdown
