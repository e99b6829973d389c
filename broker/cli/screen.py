"""The terminal of a person who talks to the broker: lines are typed at the bottom, and what comes is shown above them."""

import os
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import History
from prompt_toolkit.renderer import CPR_Support
from prompt_toolkit.shortcuts import CompleteStyle
from rich.console import Console

from broker.cli.completion import Candidates
from broker.cli.display import event_text, reply_text

__all__ = ["LineFile", "Screen"]

PROMPT: Final = "> "
HISTORY_LINES: Final = 1000


class Screen:
    """Lets a line be edited, and shows what comes meanwhile; all in one event loop, so that neither disturbs the other."""

    def __init__(self, console: Console, candidates: Candidates, history: Path) -> None:
        self.was_interrupted = False
        self._console = console
        self._has_ended = False
        self._session: PromptSession[str] = PromptSession(
            PROMPT,
            completer=_Tab(candidates),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
            history=LineFile(history),
            enable_suspend=True,
        )
        # Where the prompt is, is for menus below it, and here the answer may come when something has been written since.
        self._session.app.renderer.cpr_support = CPR_Support.NOT_SUPPORTED

    async def typed(self) -> AsyncIterator[str]:
        """Yield what is typed, until Ctrl-D, Ctrl-C or `end`; what is pasted may be more than one line."""
        while not self._has_ended:
            try:
                text = await self._session.prompt_async()
            except EOFError:
                return
            except KeyboardInterrupt:
                self.was_interrupted = True
                return
            # Not splitlines, which knows more ends of lines than the protocol: what lies behind one would be a command.
            for line in text.split("\n"):
                if line.strip():
                    yield line

    def show(self, lines: Iterable[bytes]) -> None:
        """Show events and replies in colour, above the line that is being typed."""
        with self._console.capture() as captured:
            for line in lines:
                text = event_text(line) if line.startswith(b"{") else reply_text(line.decode(errors="replace"))
                self._console.print(text, soft_wrap=True)
        app = self._session.app
        if app.is_running:
            # Not the library's own way to step aside for a moment: keys that come in it are read as if nobody edited them.
            app.renderer.erase()
        sys.stdout.write(captured.get())
        sys.stdout.flush()
        app.invalidate()

    def end(self) -> None:
        """Wait for no more keys."""
        self._has_ended = True
        app = self._session.app
        if app.is_running and not app.is_done:
            app.exit(exception=EOFError())


class LineFile(History):
    """The lines typed before, each a line of a file that is its owner's alone; those with a token are left out."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def load_history_strings(self) -> Iterable[str]:
        """Give the newest lines, the last one first; none where the file cannot be read."""
        try:
            lines = self._path.read_text(errors="surrogateescape").split("\n")
        except OSError:
            return ()
        return islice(filter(None, reversed(lines)), HISTORY_LINES)

    def append_string(self, string: str) -> None:
        """Remember what was typed, for this conversation and the next ones."""
        if "token=" not in string.lower():
            super().append_string(string)

    def store_string(self, string: str) -> None:
        """Write down what was typed, if that is possible."""
        with suppress(OSError), open(self._path, "ab", opener=_for_its_owner) as file:
            file.write(f"{string}\n".encode(errors="surrogateescape"))


def _for_its_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class _Tab(Completer):
    """What the word before the cursor may become."""

    def __init__(self, candidates: Candidates) -> None:
        self._candidates = candidates

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        before, _, begun = document.text_before_cursor.rpartition(" ")
        for candidate in self._candidates(before.split(), begun):
            yield Completion(candidate, start_position=-len(begun))
