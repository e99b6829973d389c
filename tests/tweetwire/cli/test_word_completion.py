"""Tab in bash, zsh and fish: commands, flags, topics and subscriptions, with the printed scripts in real shells."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.processes import BrokerProcess
from tweetwire import Event, SyncClient
from tweetwire.cli.word_completion import candidates

PATIENCE_S = 60.0
# The commands of each shell that complete a line as Tab does; `script` is the file with the printed script.
_BASH = r"""
source {script}
COMP_LINE={line!r}
read -ra COMP_WORDS <<< "$COMP_LINE"
[[ $COMP_LINE == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
COMP_POINT=${{#COMP_LINE}}
_tweetwire
printf '%s\n' "${{COMPREPLY[@]}}"
"""
_FISH = "source {script}; complete -C {line!r}"
# compadd works inside of a widget only, so a function in its place prints the words.
_ZSH = r"""
compdef() {{ }}
compadd() {{ shift; print -rl -- "$@" }}
_files() {{ print files }}
source {script}
words=({words}); CURRENT=$#words
_tweetwire
"""


@pytest.fixture(scope="module")
def topics(shared_broker: BrokerProcess) -> Iterator[BrokerProcess]:
    """A broker with the topics orders and refunds; orders has the subscription billing, and refunds has returns."""
    with SyncClient(shared_broker.address) as client:
        for name in ("orders", "refunds"):
            client.publish(name, Event(id="1", msg=1))
        client.subscribe("orders", as_="billing")
        client.unsubscribe(client.subscribe("refunds", as_="returns"))
        yield shared_broker


@pytest.fixture
def _here(topics: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands without --broker use this broker."""
    monkeypatch.setenv("TWEETWIRE_BROKER", topics.address)


@pytest.mark.usefixtures("_here")
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("tai", ["tail"]),
        ("com", ["comment", "completion"]),
        ("context ", ["add", "list", "remove", "use"]),
        ("bro", ["broker"]),
        ("broker --por", []),
        ("tail ", ["dead_letters", "orders", "refunds"]),
        ("tail or", ["orders"]),
        ("tail orders --fol", ["--follow"]),
        ("tail orders --no-f", ["--no-follow"]),
        ("tail --json orders --js", []),
        ("tail orders --from ea", ["earliest"]),
        ("tail orders --from=ea", ["--from=earliest"]),
        ("tail orders --from = ea", ["earliest"]),
        ("tail orders --from =", ["earliest", "latest", "today", "yesterday"]),
        ("explain orders @1 --as ", ["billing"]),
        ("explain --as bi", ["billing"]),
        ("backlog refunds --as ", ["returns"]),
        ("dead --topic or", ["orders"]),
        ("dead --topic refunds --as ", ["returns"]),
        ("dead --as ", ["billing", "returns"]),
        ("redrive orders @1 ", []),
        ("completion ", ["bash", "fish", "zsh"]),
        ("schema orders --set ", []),
        ("retain orders --settled ", ["no", "yes"]),
        ("nonsense ", []),
    ],
)
def test_the_last_word_is_completed(line: str, found: list[str]) -> None:
    assert candidates(line.split(" ")) == found


@pytest.mark.usefixtures("_here")
def test_the_flags_in_the_line_choose_the_broker(topics: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWEETWIRE_BROKER", "127.0.0.1:1")
    assert candidates(["tail", "--broker", topics.address, "ord"]) == ["orders"]
    assert candidates(["tail", f"--broker={topics.address}", "ord"]) == ["orders"]
    assert main_output(["__complete", "tail", "ord"]) == (0, "", "")


def test_contexts_complete(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    main_output(["context", "add", "prod"])
    assert candidates(["context", "use", ""]) == ["prod"]
    assert candidates(["tail", "--context", "p"]) == ["prod"]
    (tmp_path / "tweetwire" / "contexts.json").write_text("{")
    assert main_output(["__complete", "context", "use", ""]) == (0, "", ""), "errors are not shown to a typing person"


def main_output(words: list[str]) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "tweetwire", *words], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def shell_environment(topics: BrokerProcess, tmp_path: Path) -> Mapping[str, str]:
    """The environment of a shell that finds a program ``tweetwire``, which uses the broker."""
    program = tmp_path / "bin" / "tweetwire"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m tweetwire "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    return os.environ | {"PATH": path, "TWEETWIRE_BROKER": topics.address, "HOME": str(tmp_path)}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("tweetwire tai", ["tail"]),
        ("tweetwire tail or", ["orders"]),
        ("tweetwire context ", ["add", "list", "remove", "use"]),
        ("tweetwire explain orders @1 --as ", ["billing"]),
    ],
)
def test_a_shell_completes_words_with_the_printed_script(
    shell: str, line: str, found: list[str], shell_environment: Mapping[str, str], tmp_path: Path
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = tmp_path / "script"
    script.write_text(main_output(["completion", shell])[1])
    template = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}[shell]
    words = " ".join(repr(word) for word in line.split(" "))
    code = template.format(script=script, line=line, words=words)
    done = subprocess.run(
        [shell, "-c", code], env=shell_environment, capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    assert (sorted(done.stdout.split()), done.stderr) == (found, "")


def test_an_unknown_shell_is_refused() -> None:
    status, _, errors = main_output(["completion", "tcsh"])
    assert (status, errors) == (2, "tweetwire completion: SHELL: 'tcsh' is not one of bash, zsh, fish\n")
