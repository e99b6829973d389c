"""Read the prose of a file: docstrings, comments, string literals, names of tests, Markdown.

A passage is one paragraph, list item or message. Code inside it is replaced by one word, so that rules see prose only.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

__all__ = ["ALLOW", "Kind", "Passage", "passages_of"]

ALLOW = "plain-english: allow"
"""A passage with this mark on one of its lines is not checked."""

Kind = Literal["summary", "docstring", "comment", "message", "name", "heading", "page"]

_WORDS_OF_A_MESSAGE = 3
_CODE = re.compile(r"``[^`]+``|`[^`]+`|https?://[^\s)>\]]*[^\s)>\].,;:]")
_ITEM = re.compile(r"\s*(?:[-*+]|\d+\.)\s+")
_FENCE = re.compile(r"\s*(?:```|~~~)")
_TABLE_RULE = re.compile(r"\s*\|?[\s:|-]+\|?\s*")
_FOR_A_TOOL = re.compile(r"#\s*(?:noqa|type: ignore|fmt:|ruff:|pragma|!)[^—]*(?:—|$)")


class Passage(NamedTuple):
    """A paragraph of prose, with its first line's number and the code in it replaced by the word `CODE`."""

    line: int
    kind: Kind
    text: str


def passages_of(path: Path) -> list[Passage]:
    """Return the passages of a Python file, a Markdown page, or a file whose comments begin with `#`.

    String literals of tests are left out: they are data, or repeat the message of a program.
    """
    source = path.read_text()
    if path.suffix == ".py":
        found = [passage for passage in _python(source) if path.parts[0] != "tests" or passage.kind != "message"]
    elif path.suffix == ".md":
        found = list(_markdown(source.splitlines()))
    else:
        found = [passage for block in _comment_lines(source) for passage in _paragraphs(block, "comment")]
    allowed = {number for number, line in enumerate(source.splitlines(), 1) if ALLOW in line}
    return sorted(passage for passage in found if passage.line not in allowed and ALLOW not in passage.text)


def _python(source: str) -> Iterator[Passage]:
    tree = ast.parse(source)
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inside_joined: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield Passage(node.lineno, "name", node.name.removeprefix("test_").replace("_", " "))
        elif isinstance(node, ast.JoinedStr):
            inside_joined |= {id(part) for part in ast.walk(node)}
            yield from _message(node.lineno, _joined(node))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) in statements:
                yield from _docstring(node.lineno, node.value)
            elif id(node) not in inside_joined:
                yield from _message(node.lineno, node.value)
    for block in _python_comments(source):
        yield from _paragraphs(block, "comment")


def _joined(node: ast.JoinedStr) -> str:
    return "".join(
        part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else "CODE" for part in node.values
    )


def _message(line: int, text: str) -> Iterator[Passage]:
    if len(text.split()) >= _WORDS_OF_A_MESSAGE:
        yield Passage(line, "message", _without_code(text))


def _docstring(first: int, text: str) -> Iterator[Passage]:
    lines = _cleaned(text)
    yield Passage(first, "summary", _without_code(" ".join(lines[:1])))
    yield from _paragraphs(enumerate(lines, first), "docstring")


def _cleaned(text: str) -> list[str]:
    lines = text.expandtabs().splitlines() or [""]
    margin = min((len(line) - len(line.lstrip()) for line in lines[1:] if line.strip()), default=0)
    return [lines[0].strip(), *(line[margin:].rstrip() for line in lines[1:])]


def _python_comments(source: str) -> Iterator[list[tuple[int, str]]]:
    block: list[tuple[int, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        line = token.start[0]
        stands_alone = not token.line[: token.start[1]].strip()
        if block and not (stands_alone and line == block[-1][0] + 1):
            yield block
            block = []
        block.append((line, _comment(token.string)))
        if not stands_alone:
            yield block
            block = []
    if block:
        yield block


def _comment_lines(source: str) -> Iterator[list[tuple[int, str]]]:
    block: list[tuple[int, str]] = []
    for number, line in enumerate(source.splitlines(), 1):
        if line.lstrip().startswith("#"):
            block.append((number, _comment(line.strip())))
        elif block:
            yield block
            block = []
    if block:
        yield block


def _comment(text: str) -> str:
    return _FOR_A_TOOL.sub("", text).lstrip("#").removeprefix(" ")


def _paragraphs(lines: Iterable[tuple[int, str]], kind: Kind) -> Iterator[Passage]:
    """Cut at blank lines, list items and entries of a Google section. Skip code: the lines indented after a blank line."""
    first, words, after_blank, is_code = 0, list[str](), False, False
    for number, line in lines:
        indent = len(line) - len(line.lstrip())
        is_code = bool(line.strip()) and indent >= 4 and (after_blank or is_code)
        is_new = not line.strip() or is_code or _ITEM.match(line) is not None or indent == 4
        if is_new and words:
            yield Passage(first, kind, _without_code(" ".join(words)))
            words = []
        if line.strip() and not is_code:
            first = first if words else number
            words.append(_ITEM.sub("", line, count=1).strip() if is_new else line.strip())
        after_blank = not line.strip()
    if words:
        yield Passage(first, kind, _without_code(" ".join(words)))


def _markdown(lines: list[str]) -> Iterator[Passage]:
    """Return paragraphs, headings, list items and cells; fenced and indented code and tags are left out."""
    is_fenced = False
    block: list[tuple[int, str]] = []
    for number, line in enumerate([*lines, ""], 1):
        if _FENCE.match(line):
            is_fenced = not is_fenced
            prose = ""
        else:
            prose = "" if is_fenced or line.lstrip().startswith("<") else line
        if prose.lstrip().startswith("|"):
            if not _TABLE_RULE.fullmatch(prose):
                yield from (
                    Passage(number, "page", _without_code(cell.strip())) for cell in prose.split("|") if cell.strip()
                )
            prose = ""
        if prose.startswith("#"):
            yield Passage(number, "heading", _without_code(prose.strip("# ")))
            prose = ""
        block.append((number, prose))
    yield from _paragraphs(block, "page")


def _without_code(text: str) -> str:
    return " ".join(_CODE.sub("CODE", text).split())
