"""Saved brokers: the commands, the settings that override a context, the modes of the files, and unusable files."""

import io
import json
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.processes import BrokerProcess
from tweetwire.cli import main
from tweetwire.cli.contexts import Contexts, context_texts


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with the files of this user."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "tweetwire"


class Command:
    """Runs commands in this process."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture

    def __call__(self, *words: str, status: int = 0) -> str:
        """Return the output, or with a `status` above 0 the error output."""
        self._capture.readouterr()
        assert main(words) == status, self._capture.readouterr()
        out, errors = self._capture.readouterr()
        return errors if status else out


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with the user ann, whose token is a-secret."""
    folder = tmp_path_factory.mktemp("guarded")
    command = [sys.executable, "-m", "broker.users", "ann"]
    made = subprocess.run(command, input="a-secret\n", capture_output=True, text=True, check=True).stdout
    users = folder / "users.toml"
    users.write_text("\n".join(made.splitlines()[:3]) + '\npublish = ["*"]\nsubscribe = ["*"]\n')
    with BrokerProcess(folder / "broker", "--users", str(users), "--topic", "orders") as broker:
        yield broker


def test_a_saved_broker_is_used_with_its_user_and_token(
    run: Command, guarded: BrokerProcess, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("a-secret\n"))
    saved = run("context", "add", "prod", "--broker", guarded.address, "--name", "ann", "--token-stdin")
    assert saved == f"saved prod ({guarded.address}); use it with: tweetwire context use prod\n"
    assert '"orders"' in run("topics", "--json", "--context", "prod")
    run("context", "use", "prod")
    assert '"orders"' in run("topics", "--json")
    assert json.loads(run("context", "list", "--json")) == [
        {
            "context": "prod",
            "is_current": True,
            "broker": guarded.address,
            "name": "ann",
            "tls": "",
            "tls_ca": "",
            "tls_cert": "",
            "tls_key": "",
            "kept_in": "file",
        }
    ]
    row = run("context", "list").splitlines()[-1].split()
    assert row == ["prod", "yes", guarded.address, "ann", "no", "file"]
    assert "a-secret" not in (home / "contexts.json").read_text()
    monkeypatch.setenv("TWEETWIRE_TOKEN", "wrong")
    assert "unauthenticated" in run("topics", status=2)
    monkeypatch.delenv("TWEETWIRE_TOKEN")
    run("context", "remove", "prod")
    assert run("context", "list") == "there are no contexts; save one with: tweetwire context add\n"
    assert list((home / "tokens").iterdir()) == []


def test_only_the_user_can_read_the_files(run: Command, home: Path) -> None:
    run("context", "add", "prod", "--token", "a-secret")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (home, *home.rglob("*"))}
    assert modes == {"tweetwire": 0o700, "contexts.json": 0o600, "tokens": 0o700, "prod": 0o600}


def test_the_token_of_a_context_is_not_sent_to_another_broker(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    run("context", "add", "prod", "--broker", "prod:1", "--token", "a-secret", "--name", "ann")
    run("context", "add", "test", "--broker", "test:1")
    run("context", "use", "prod")
    assert context_texts({}) == {"broker": "prod:1", "name": "ann", "token": "a-secret"}
    assert context_texts({"context": "test"}) == {"broker": "test:1"}
    assert context_texts({"broker": "other:1"}) == {}
    assert context_texts({"broker": "other:1", "context": "prod"})["token"] == "a-secret"
    monkeypatch.setenv("TWEETWIRE_CONTEXT", "test")
    assert "no broker answers at test:1" in run("topics", status=2)
    assert "no broker answers at prod:1" in run("topics", "--context", "prod", status=2)
    monkeypatch.setenv("TWEETWIRE_BROKER", "127.0.0.1:1")
    assert "no broker answers at 127.0.0.1:1" in run("topics", status=2)


def test_the_files_of_tls_are_saved_as_whole_paths(
    run: Command, certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(certificates)
    run("context", "add", "safe", "--tls-ca", "ca.pem")
    assert context_texts({"context": "safe"})["tls_ca"] == str(certificates / "ca.pem")
    assert "--tls-ca: cannot read none.pem" in run("context", "add", "x", "--tls-ca", "none.pem", status=2)


def test_names_that_no_context_has_are_refused_with_those_that_exist(run: Command) -> None:
    assert "there is no context 'prod'; save one with: tweetwire context add" in run("context", "use", "prod", status=2)
    run("context", "add", "test")
    assert "there is no context 'prod'; there are: test" in run("topics", "--context", "prod", status=2)
    assert "CONTEXT: '../x' is not a name; use 1-128 of" in run("context", "add", "../x", status=2)
    assert "--token-stdin: a token is a word" in _with_stdin(run, "a b\n")


def _with_stdin(run: Command, text: str) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", io.StringIO(text))
        return run("context", "add", "test", "--token-stdin", status=2)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"contexts":{"a":{}}}', '{"contexts":{},"other":1}', "\xff"])
def test_a_broken_file_is_reported_in_one_sentence(run: Command, home: Path, content: str) -> None:
    home.mkdir(parents=True)
    path = home / "contexts.json"
    path.touch(mode=0o600)
    path.write_bytes(content.encode("latin-1"))
    errors = run("topics", status=2)
    assert errors.startswith(f"tweetwire topics: {path} is not a file of saved brokers (")
    assert errors.endswith("; correct or remove it\n")
    assert errors.count("\n") == 1


@pytest.mark.parametrize("name", ["contexts.json", "tokens/prod"])
def test_a_file_that_others_can_read_is_refused(run: Command, home: Path, name: str) -> None:
    run("context", "add", "prod", "--token", "a-secret")
    (home / name).chmod(0o640)
    errors = run("topics", "--context", "prod", status=2)
    assert (
        errors
        == f"tweetwire topics: other users of this machine can read {home / name}; run: chmod 600 {home / name}\n"
    )


class _Keyring(ModuleType):
    """A replacement for the package keyring, which is an extra. It uses a dictionary instead of the system's keyring."""

    def __init__(self) -> None:
        super().__init__("keyring")
        self.kept: dict[tuple[str, str], str] = {}

    def set_password(self, service: str, name: str, token: str) -> None:
        self.kept[service, name] = token

    def get_password(self, service: str, name: str) -> str | None:
        return self.kept.get((service, name))

    def delete_password(self, service: str, name: str) -> None:
        del self.kept[service, name]


def test_a_token_can_be_kept_in_the_keyring(run: Command, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keyring: Any = _Keyring()
    monkeypatch.setitem(sys.modules, "keyring", keyring)
    run("context", "add", "prod", "--token", "a-secret", "--keyring")
    assert not (home / "tokens").exists()
    assert Contexts().token("prod") == "a-secret"
    keyring.kept.clear()
    assert "the keyring has no token of the context prod" in run("topics", "--context", "prod", status=2)
    keyring.kept["tweetwire", "prod"] = "b-secret"
    run("context", "remove", "prod")
    assert keyring.kept == {}


def test_without_the_package_the_keyring_is_refused_in_one_sentence(
    run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    errors = run("context", "add", "prod", "--token", "a-secret", "--keyring", status=2)
    assert errors == "tweetwire context add: the keyring needs an extra: pip install 'tweetwire[keyring]'\n"
