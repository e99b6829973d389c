"""Find the messages of all StartErrors in the code: the sentences with which our programs refuse to start or to continue."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["Sentence", "find_sentences"]

PROGRAMS: Final = (
    "tweetwire",
    "broker",
    "bridge",
    "dashboard",
    "change_stream",
    "sse_ingest",
    "subscriber",
    "spark",
    "demo",
)
_ERRORS: Final = frozenset({"StartError", "TlsFileUnusable"})


class Sentence(NamedTuple):
    """One message, with … for each value in it, and the folder of its code."""

    folder: str
    text: str


def find_sentences(root: Path) -> list[Sentence]:
    """Return the message of every StartError in the code, sorted by folder and text."""
    found = {
        Sentence(folder, text)
        for folder in PROGRAMS
        for file in (root / folder).rglob("*.py")
        for text in _texts(ast.parse(file.read_text()))
    }
    return sorted(found)


def _texts(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _ERRORS and node.args:
            text = _written(node.args[-1])
            if text.strip("… :;()"):
                yield " ".join(text.split())


def _written(node: ast.expr) -> str:
    """Return the text of an expression, with … for each value that is known only at run time."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_written(part) for part in parts)
        case ast.BinOp(left=left, right=right):
            return _written(left) + _written(right)
        case _:
            return "…"
