"""The marked code blocks of a page of the documentation.

A mark is a comment on the line before a block, so that neither the site nor GitHub shows it. ``needs=PROGRAM`` in a mark means
that the page is only tested on machines with this program:

- ``<!-- run -->``: type the commands into a terminal. ``terminal=NAME`` chooses another terminal, ``until="TEXT"`` waits for an
  output instead of the end of the commands. ``timeout=SECONDS`` limits the wait. ``fails`` expects an exit status above 0.
- ``<!-- shows -->``: the terminal of the block before has shown this text. ``…`` stands for any text within a line; a line that
  only has ``…`` stands for any lines.
- ``<!-- waits terminal=NAME -->``: wait until the program in this terminal shows this text.
- ``<!-- edit NAME -->``: replace the line of this file that begins with the block's first word by the block.
- ``<!-- file NAME -->``: write the block into this file of the page's folder.
- ``<!-- telnet -->``: a dialogue with the broker. Lines that begin with ``+``, ``-``, ``!`` or ``{`` are its output; every
  other line is typed. ``as=NAME`` continues on another connection.
- ``<!-- shell terminal=NAME -->``: the same in a terminal in which ``tweetwire shell`` runs, where events begin with ``@``.
- ``<!-- press Ctrl-C terminal=NAME -->`` stands alone and presses these keys.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["Block", "is_runnable", "read_blocks"]

_MARK = re.compile(
    r"^( *)<!-- (run|shows|waits|file|edit|telnet|shell|press)\b *(.*?) *-->\n(?:\1```[^\n]*\n(.*?)\1```)?",
    re.DOTALL | re.M,
)


class Block(NamedTuple):
    """A marked block: its action, the words of its mark, its text, and its line number in the page."""

    action: str
    words: dict[str, str]
    text: str
    line: int


def read_blocks(page: Path) -> Iterator[Block]:
    """Yield the marked blocks of a page in their order."""
    text = page.read_text()
    for found in _MARK.finditer(text):
        indent, action, words, code = found.groups()
        line = text.count("\n", 0, found.start()) + 1
        assert action == "press" or code is not None, f"{page}:{line}: no code block follows the mark"
        plain = "\n".join(row.removeprefix(indent) for row in (code or "").splitlines())
        yield Block(action, dict(_options(words)), plain, line)


def is_runnable(page: Path) -> bool:
    """Whether a page has marked blocks."""
    return _MARK.search(page.read_text()) is not None


def _options(words: str) -> Iterator[tuple[str, str]]:
    for word in shlex.split(words):
        name, _, value = word.partition("=")
        yield (name, value) if value else ("", name)
