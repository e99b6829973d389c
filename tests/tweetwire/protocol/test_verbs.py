"""The table of verbs is complete: each verb has commands, usage, help and permissions, and a place in the documentation."""

import re
import sys
from pathlib import Path

import grimp
import pytest

from tests.support.paths import ROOT
from tweetwire.protocol import Command, parse_lines
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.permissions import Permission
from tweetwire.protocol.verbs import VERBS, Verb, find_verb, help_text
from tweetwire.protocol.verbs import table as table_module

PROTOCOL_PAGE = ROOT / "docs" / "reference" / "protocol.md"

each_verb = pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)


@each_verb
def test_a_verb_names_its_commands_each_with_a_permission(verb: Verb) -> None:
    assert verb.commands
    for command in verb.commands:
        assert issubclass(command, Command)
        # The command itself must declare it: an inherited permission may be a mistake.
        assert isinstance(command.__dict__["permission"], Permission)


@each_verb
def test_a_verb_has_usage_and_help(verb: Verb) -> None:
    assert verb.usage.split()[0] == verb.name
    assert verb.summary
    assert help_text(verb.name) == f"help {verb.usage} - {verb.summary}"


@pytest.mark.parametrize(
    "verb", [verb for verb in VERBS if "<" in verb.usage.partition("[")[0]], ids=lambda verb: verb.name
)
def test_a_line_with_too_few_words_is_refused_with_the_usage_and_the_example(verb: Verb) -> None:
    (refusal,) = parse_lines([verb.name.encode()], 1 << 20)
    example = f"; an example: {verb.example}" if verb.example else ""
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.text) == ("bad_arguments", f"usage: {verb.usage}{example}")


@each_verb
def test_a_verb_is_read_by_each_of_its_names_in_any_case(verb: Verb) -> None:
    for name in (verb.name, verb.long_name or verb.name):
        assert name == name.lower()
        assert find_verb(name) is verb
        (lower,), (upper,) = (parse_lines([word.encode()], 1 << 20) for word in (name, name.upper()))
        assert repr(lower) == repr(upper)
        assert type(lower) in verb.commands or (isinstance(lower, Refusal) and lower.text.startswith("usage: "))


def test_no_two_verbs_share_a_name_or_a_command() -> None:
    names = [name for verb in VERBS for name in (verb.name, verb.long_name) if name]
    commands = [command for verb in VERBS for command in verb.commands]
    assert len(set(names)) == len(names)
    assert len(set(commands)) == len(commands)


def test_every_command_belongs_to_a_verb() -> None:
    declared = {command for command in Command.__subclasses__() if command.__module__.startswith("tweetwire.")}
    assert declared == {command for verb in VERBS for command in verb.commands}


def test_the_table_takes_the_verbs_of_every_module_beside_it() -> None:
    folder = Path(str(table_module.__file__)).parent
    families = {path.stem for path in folder.glob("*.py")} - {"__init__", "table", "verb"}
    assert families == {command.__module__.rpartition(".")[2] for verb in VERBS for command in verb.commands}


@each_verb
def test_the_protocol_page_lists_the_verb_among_the_commands(verb: Verb) -> None:
    section = PROTOCOL_PAGE.read_text().partition("\n## Commands\n")[2].partition("\n## ")[0]
    first_cells = [row.split(" | ")[0] for row in section.splitlines() if row.startswith("| `")]
    documented = {words.split()[0] for cell in first_cells for words in re.findall(r"`([^`]+)`", cell)}
    assert verb.name in documented


def test_the_protocol_needs_only_msgspec_and_pure_parts_of_the_standard_library() -> None:
    pure = {"collections", "contextlib", "datetime", "decimal", "enum", "functools", "importlib", "itertools", "json"}
    pure |= {"math", "re"}
    graph = grimp.build_graph("tweetwire", include_external_packages=True)
    modules = {"tweetwire.protocol", *graph.find_descendants("tweetwire.protocol")}
    needed = {name.partition(".")[0] for module in modules for name in graph.find_modules_directly_imported_by(module)}
    assert needed - {"tweetwire"} <= pure | {"msgspec", "pathlib", "typing"}
    assert all(name.startswith("tweetwire.protocol") for module in modules for name in _own(graph, module))
    assert pure <= sys.stdlib_module_names


def _own(graph: grimp.ImportGraph, module: str) -> set[str]:
    return {name for name in graph.find_modules_directly_imported_by(module) if name.startswith("tweetwire")}
