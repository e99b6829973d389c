"""Complete a half-typed line of a shell: ``tweetwire __complete WORDS`` completes the last word."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Final

from msgspec import structs

from tweetwire.cli.catalogue import COMMANDS, PROGRAMS, load_command
from tweetwire.cli.connection import CommandConnection
from tweetwire.cli.contexts import Contexts, context_texts
from tweetwire.cli.flags import Setting, given_texts, make_command, settings_of

__all__ = ["candidates", "print_candidates"]

_ANSWER_S: Final = 2.0
"""The longest wait for the broker, in seconds."""


def print_candidates(words: Sequence[str]) -> int:
    """Print the completions of the last word, one a line. Errors are ignored, because a person is typing. Returns 0."""
    with suppress(Exception):
        sys.stdout.write("".join(f"{one}\n" for one in candidates(words)))
    return 0


def candidates(words: Sequence[str]) -> list[str]:
    """Return the completions of the last word, in order. An empty list means that the shell may complete a file.

    Raises the errors of a connection.
    """
    *before, begun = words or [""]
    if len(before) >= 2 and before[-1] == "=":
        # bash splits --flag=value into three words.
        before.pop()
    elif begun == "=" and before:
        begun = ""
    command, rest = _command(before)
    if command:
        found = _of_command(command, rest, begun)
    elif before and before[0] in PROGRAMS:
        return []
    else:
        found = _next_words(before)
    return sorted({word for word in found if word.startswith(begun)})


def _command(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the command that the words begin with, and the words after it; "" if they begin with none."""
    for length in (2, 1):
        if (name := " ".join(words[:length])) in COMMANDS:
            return name, words[length:]
    return "", words


def _next_words(before: Sequence[str]) -> Iterator[str]:
    """Yield the words that may follow `before` in the name of a command or program."""
    for name in (*COMMANDS, *PROGRAMS, "help", "--help", "--version"):
        parts = name.split()
        if parts[: len(before)] == [*before] and len(parts) > len(before):
            yield parts[len(before)]


def _of_command(name: str, words: Sequence[str], begun: str) -> Iterable[str]:
    settings = settings_of(load_command(name))
    flags = {text: one for one in settings if not one.flag.is_argument for text in _names(one)}
    last = flags.get(words[-1]) if words else None
    if last is not None and not last.is_switch:
        return _values(last, settings, words)
    flag, equals, _ = begun.partition("=")
    if equals and flag in flags:
        return [f"{flag}={value}" for value in _values(flags[flag], settings, words)]
    place = len(list(_arguments(words, flags)))
    arguments = [one for one in settings if one.flag.is_argument]
    if begun.startswith("-") or (place >= len(arguments) and not (arguments and arguments[-1].is_list)):
        given = {flags[word].field for word in words if word in flags and not flags[word].is_list}
        return [text for text, one in flags.items() if one.field not in given and text.startswith("--")]
    return _values(arguments[min(place, len(arguments) - 1)], settings, words)


def _names(setting: Setting) -> list[str]:
    names = [*filter(None, [setting.flag.short]), f"--{setting.name}"]
    return [*names, f"--no-{setting.name}"] if setting.is_switch and setting.default else names


def _arguments(words: Sequence[str], flags: dict[str, Setting]) -> Iterator[str]:
    """Yield the words that are neither flags nor their values."""
    is_value = False
    for word in words:
        if not is_value and not word.startswith("-"):
            yield word
        is_value = word in flags and not flags[word].is_switch


def _values(setting: Setting, settings: Sequence[Setting], words: Sequence[str]) -> Iterable[str]:
    kind = setting.flag.kind
    if kind.completes == "topic":
        return _topics(words)
    if kind.completes == "subscription":
        return _topics(words).get(_topic(settings, words), ()) or {
            name for names in _topics(words).values() for name in names
        }
    if kind.completes == "context":
        return Contexts().names
    return kind.words


def _topic(settings: Sequence[Setting], words: Sequence[str]) -> str:
    """Return the topic that the words name, as an argument or with a flag, or ""."""
    flags = {text: one for one in settings if not one.flag.is_argument for text in _names(one)}
    named = next((after for word, after in pairwise(words) if word == "--topic"), None)
    return named or next(_arguments(words, flags), "")


def _topics(words: Sequence[str]) -> dict[str, list[str]]:
    """Ask the broker for its topics and the durable subscriptions of each. Raises BrokerError, StartError."""
    given = given_texts(CommandConnection, list(_connection_words(words)))
    command = make_command(CommandConnection, {**context_texts(given), **given})
    with structs.replace(command, timeout=min(command.timeout, _ANSWER_S)).connect() as client:
        topics = client.stats()["topics"]
    return {
        topic: [name for name, one in report["subscriptions"].items() if one["durable"]]
        for topic, report in topics.items()
    }


def _connection_words(words: Sequence[str]) -> Iterator[str]:
    """Yield the flags of the connection among the words, with their values."""
    flags = {text: one for one in settings_of(CommandConnection) for text in _names(one)}
    for place, word in enumerate(words):
        setting = flags.get(word.partition("=")[0])
        if setting is not None:
            yield word
            if "=" not in word and not setting.is_switch:
                yield from words[place + 1 : place + 2]
