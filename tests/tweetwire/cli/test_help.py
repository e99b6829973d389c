"""``tweetwire --help``, the help of each command, ``--version``, and words that name no command."""

import re
import shlex
import sys

import pytest

from tweetwire.__main__ import main
from tweetwire.cli.catalogue import COMMANDS, FILES, GROUPS, PROGRAMS, load_command
from tweetwire.cli.connection import CommandConnection
from tweetwire.cli.flag_help import flag_help
from tweetwire.cli.flags import given_texts, make_command
from tweetwire.version import VERSION


class CommandLine:
    """Runs ``tweetwire`` in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]) -> None:
        self._patch = monkeypatch
        self._capture = capture

    def __call__(self, *words: str) -> tuple[int, str, str]:
        """Return the status, the output and the error output."""
        self._patch.setattr(sys, "argv", ["tweetwire", *words])
        status = main()
        return status, *self._capture.readouterr()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


def test_the_version_is_printed(run: CommandLine) -> None:
    assert run("--version") == (0, f"tweetwire {VERSION}\n", "")
    assert re.fullmatch(r"\d+\.\d+\.\d+", VERSION)


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["help"]])
def test_help_lists_each_command_and_program_once_in_its_group(run: CommandLine, words: list[str]) -> None:
    status, text, errors = run(*words)
    assert (status, errors) == (0, "")
    shown = dict(re.findall(r"^  (\S+(?: \w+)?) {1,} (\S.*)$", text, re.MULTILINE))
    expected = {name: entry.summary for name, entry in COMMANDS.items()}
    assert shown == expected | {name: program.summary for name, program in PROGRAMS.items()}
    places = [text.index(f"\n{group}:\n") for group in (*GROUPS, "programs")]
    assert places == sorted(places)
    assert max(map(len, text.splitlines())) <= 80


def test_help_of_a_command_is_spelled_in_two_ways(run: CommandLine) -> None:
    assert run("help", "tail") == run("tail", "--help")
    assert run("tail", "--help")[1].startswith("usage: tweetwire tail TOPIC")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["tial"], "there is no 'tial'; did you mean tail?"),
        (["topic"], "there is no 'topic'; did you mean topics?"),
        (["brokr", "--port", "1"], "there is no 'brokr'; did you mean broker?"),
        (["zzzz"], "there is no 'zzzz'; see"),
    ],
)
def test_an_unknown_word_ends_with_status_2_and_names_the_nearest_one(
    run: CommandLine, words: list[str], sentence: str
) -> None:
    status, out, errors = run(*words)
    assert (status, out, errors.count("\n")) == (2, "", 1)
    assert errors.startswith(f"tweetwire: {sentence}")


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_a_help_with_two_examples_that_can_be_typed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    command = load_command(name)
    text = flag_help(name, command, is_all=True)
    assert "None" not in text
    flags = re.findall(r"^  (?:-\w, )?--.*", text, re.MULTILINE)
    for line in flags:
        assert re.match(r"  (-\w, )?--[a-z-]+(, --no-[a-z-]+)?( [A-Z:=,]+| \{[a-z_,-]+\})?(  |$)", line), line
    said = " ".join(text.split())
    assert len(re.findall(r"\((?:repeatable; )?(?:default: |required)", said)) >= len(flags)
    assert len(command.examples) == 2
    for example in command.examples:
        words = shlex.split(example.partition(" < ")[0].partition(" | ")[0].partition(" > ")[0])
        assert words[: 1 + len(name.split())] == ["tweetwire", *name.split()]
        make_command(command, given_texts(command, words[1 + len(name.split()) :]))


@pytest.mark.parametrize("name", [name for name, entry in COMMANDS.items() if entry.group != FILES])
def test_each_command_that_talks_to_a_broker_takes_its_address(name: str) -> None:
    command = load_command(name)
    if issubclass(command, CommandConnection):
        assert "--broker HOST:PORT" in flag_help(name, command, is_all=False)
        # Only `request` shows it in the short help; for the other commands it is a rarely used flag.
        assert ("--timeout DURATION" in flag_help(name, command, is_all=False)) == (name == "request")
