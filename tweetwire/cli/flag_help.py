"""The text of ``tweetwire COMMAND --help``: the flags in groups, then how values are written, then examples."""

import inspect
import shutil
import textwrap
from collections.abc import Iterator
from typing import Final, get_args

from tweetwire.cli.flags import COMMAND, CONNECTION, TLS, Command, Group, Setting, settings_of

__all__ = ["flag_help", "usage_of"]

_COLUMN: Final = 26
"""The column at which the descriptions of flags begin."""


def flag_help(name: str, command: type[Command], *, is_all: bool) -> str:
    """Return the help of a command. Without `is_all`, the rarely used flags are left out."""
    width = shutil.get_terminal_size().columns - 2
    settings = settings_of(command)
    shown = [setting for setting in settings if is_all or not setting.flag.is_rare]
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    parts = [
        f"usage: {usage_of(name, command)} [FLAG …]",
        *(textwrap.fill(" ".join(one.split()), width) for one in paragraphs),
    ]
    rows = {
        group: [row for setting in shown if setting.flag.group == group for row in _rows(setting, width)]
        for group in get_args(Group)
    }
    parts += ["\n".join([f"{group}:", *lines]) for group, lines in rows.items() if lines]
    parts.append(textwrap.fill(" ".join(_notes(settings, has_more=len(shown) < len(settings))), width))
    if command.examples:
        parts.append("\n".join(["examples:", *(f"  {line}" for line in command.examples)]))
    return "\n\n".join(filter(None, parts)) + "\n"


def usage_of(name: str, command: type[Command]) -> str:
    """Return how a command is typed: its name, its arguments, and the flags that it needs."""
    settings = settings_of(command)
    words = [_place(setting) for setting in settings if setting.flag.is_argument]
    words += [_named(setting) for setting in settings if setting.is_required and not setting.flag.is_argument]
    return " ".join([f"tweetwire {name}", *words])


def _place(setting: Setting) -> str:
    word = f"{setting.shown} …" if setting.is_list else setting.shown
    return word if setting.is_required else f"[{word}]"


def _named(setting: Setting) -> str:
    if setting.flag.is_argument:
        return setting.shown
    short = f"{setting.flag.short}, " if setting.flag.short else ""
    if setting.is_switch:
        return f"{short}--{setting.name}" + (f", --no-{setting.name}" if setting.default else "")
    return f"{short}--{setting.name} {setting.flag.kind.word}"


def _rows(setting: Setting, width: int) -> Iterator[str]:
    """Yield the lines of a setting: its flag, and beside or below it the description."""
    head = f"  {_named(setting)}"
    lines = textwrap.wrap(_meaning(setting), max(20, width - _COLUMN))
    if len(head) > _COLUMN - 2:
        yield head
    else:
        yield f"{head:<{_COLUMN}}{lines.pop(0)}"
    for line in lines:
        yield " " * _COLUMN + line


def _meaning(setting: Setting) -> str:
    flag = setting.flag
    notes = ["repeatable"] if setting.is_list and not flag.is_argument else []
    if not setting.is_required:
        notes.append(f"default: {setting.default_text}")
    elif not flag.is_argument:
        notes.append("required")
    return f"{flag.help} ({'; '.join(notes)})" if notes else flag.help


def _notes(settings: list[Setting], *, has_more: bool) -> Iterator[str]:
    kinds = {setting.flag.kind.word: setting.flag.kind.examples for setting in settings}
    for word, examples in sorted(kinds.items()):
        if examples:
            yield f"{word} is written like {examples}."
    if example := next(
        (one for one in settings if one.variable and one.flag.group in {COMMAND, CONNECTION, TLS}), None
    ):
        several = " (several values: a JSON list)" if any(one.is_list and one.variable for one in settings) else ""
        yield f"Each flag is also an environment variable: {example.shown} is {example.variable}{several}."
    if has_more:
        yield "--help-all also shows the rarely used flags."
