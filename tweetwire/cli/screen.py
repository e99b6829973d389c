"""The terminal of an interactive session: the user types at the bottom, and lines from the broker appear above."""

import os
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from prompt_toolkit import PromptSession
from prompt_toolkit.application.current import get_app_or_none
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import History
from prompt_toolkit.renderer import CPR_Support
from prompt_toolkit.shortcuts import CompleteStyle
from rich.console import Console

from tweetwire.cli.completion import Candidates
from tweetwire.cli.display import event_text, reply_text

__all__ = ["LineFile", "Screen"]

PROMPT: Final = "> "
HISTORY_LINES: Final = 1000


class Screen:
    """Edits a line and shows received lines meanwhile, both in one event loop so that their output is never mixed."""

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
        # prompt_toolkit asks the terminal for the cursor's position to place menus, which this screen does not have. The
        # terminal's answer might come after other output, and then be wrong.
        self._session.app.renderer.cpr_support = CPR_Support.NOT_SUPPORTED

    async def typed(self) -> AsyncIterator[str]:
        """Yield each typed line until Ctrl-D, Ctrl-C or `end`. Pasted text may contain several lines."""
        while not self._has_ended:
            try:
                text = await self._session.prompt_async()
            except EOFError:
                return
            except KeyboardInterrupt:
                self.was_interrupted = True
                return
            # str.splitlines also splits at characters that do not end a line in the protocol, such as a form feed. The text
            # after such a character would be sent as a separate command.
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
            # prompt_toolkit's run_in_terminal would also hide the line for a moment, but keys pressed during it would reach
            # the terminal without the editor.
            app.renderer.erase()
        sys.stdout.write(captured.get())
        sys.stdout.flush()
        app.invalidate()

    def end(self) -> None:
        """End the editing of lines."""
        self._has_ended = True
        # On a terminal without cursor control (TERM=dumb), each prompt runs in an application that the session does not know.
        app = get_app_or_none() or self._session.app
        if app.is_running and not app.is_done:
            app.exit(exception=EOFError())


class LineFile(History):
    """The history of typed lines in a file that only its owner can read. Lines with a token are left out."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def load_history_strings(self) -> Iterable[str]:
        """Return the newest lines, the last one first, or no lines if the file cannot be read."""
        try:
            lines = self._path.read_text(errors="surrogateescape").split("\n")
        except OSError:
            return ()
        return islice(filter(None, reversed(lines)), HISTORY_LINES)

    def append_string(self, string: str) -> None:
        """Add a typed line to the history of this session and of later ones, unless it contains a token."""
        if "token=" not in string.lower():
            super().append_string(string)

    def store_string(self, string: str) -> None:
        """Append a typed line to the file. Errors are ignored."""
        with suppress(OSError), open(self._path, "ab", opener=_for_its_owner) as file:
            file.write(f"{string}\n".encode(errors="surrogateescape"))


def _for_its_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class _Tab(Completer):
    """Completes the word before the cursor."""

    def __init__(self, candidates: Candidates) -> None:
        self._candidates = candidates

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        before, _, begun = document.text_before_cursor.rpartition(" ")
        for candidate in self._candidates(before.split(), begun):
            yield Completion(candidate, start_position=-len(begun))
