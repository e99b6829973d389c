"""Users, their permissions, and TLS, on a real broker."""

import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from broker.users import UsersFile
from broker.users import main as ask_for_entry
from tests.support.certificates import files_of
from tests.support.processes import BrokerProcess
from tweetwire import BrokerUnreachable, Client, Event, Refusal, SyncClient
from tweetwire.cli import main
from tweetwire.protocol.errors import StartError

pytestmark = pytest.mark.anyio


@cache
def entry(name: str, token: str, rights: str) -> str:
    """Return an entry as ``python -m broker.users`` makes it, with other permissions."""
    made = subprocess.run(
        [sys.executable, "-m", "broker.users", name], input=f"{token}\n", capture_output=True, text=True, check=True
    ).stdout
    assert token not in made
    return "\n".join(made.splitlines()[:3]) + f"\n{rights}\n"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[BrokerProcess]:
    users = tmp_path / "users.toml"
    users.write_text(
        entry("writer", "w-secret", 'publish = ["tweets", "stats.*"]')
        + entry("reader", "r-secret", 'subscribe = ["tweets"]')
        + entry("boss", "b-secret", 'publish = ["*"]\nsubscribe = ["*"]\nadmin = true')
    )
    with BrokerProcess(tmp_path / "broker", "--users", str(users), "--topic", "tweets", "--topic", "other") as process:
        yield process


def test_users_may_do_what_their_patterns_allow_and_no_token_is_logged(guarded: BrokerProcess) -> None:
    with SyncClient(guarded.address, name="writer", token="w-secret") as writer:
        writer.publish("tweets", Event(id="1", msg=1))
        writer.publish("stats.minutes", Event(id="1", msg=1))
        with pytest.raises(Refusal, match="forbidden"):
            writer.publish("other", Event(id="1", msg=1))
        with pytest.raises(Refusal, match="forbidden"):
            writer.read("tweets", 0)
        assert [topic.topic for topic in writer.topics()] == ["stats.minutes", "tweets"]
    with SyncClient(guarded.address, name="reader", token="r-secret") as reader:
        assert reader.read("tweets", 0).events[0].id == "1"
        with pytest.raises(Refusal, match="forbidden"):
            reader.publish("tweets", Event(id="1", msg=1))
        assert [topic.topic for topic in reader.topics()] == ["tweets"]
    log = guarded.log_path.read_text()
    assert "secret" not in log
    assert "argon2" not in log


def test_without_a_valid_hello_nothing_is_run_and_three_wrong_ones_close(guarded: BrokerProcess) -> None:
    with socket.create_connection(("127.0.0.1", guarded.port), 20) as connection, connection.makefile("rb") as lines:
        connection.sendall(b'pub tweets {"id":"1","msg":1}\nping\n' + b"hello writer token=wrong\n" * 3 + b"ping\n")
        words = [line.split()[:2] for line in lines]
    assert [word[1] if word[0] == b"-ERR" else word[0] for word in words] == [
        b"+OK",
        b"unauthenticated",
        b"+PONG",
        b"unauthenticated",
        b"unauthenticated",
        b"unauthenticated",
    ]


def test_a_hello_without_a_token_is_refused_with_that_reason(guarded: BrokerProcess) -> None:
    with socket.create_connection(("127.0.0.1", guarded.port), 20) as connection, connection.makefile("rb") as lines:
        connection.sendall(b"hello writer\nhello writer token=wrong\nquit\n")
        refusals = [line for line in lines if line.startswith(b"-ERR")]
    assert refusals == [
        b"-ERR unauthenticated the token is missing; say hello writer token=<token>\n",
        b"-ERR unauthenticated no such name and token\n",
    ]


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_a_token_prompt_that_is_left_is_reported_in_one_sentence_with_status_2(
    is_interrupted: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def leave(prompt: str) -> str:
        raise KeyboardInterrupt if is_interrupted else EOFError

    monkeypatch.setattr("sys.argv", ["broker.users", "bob"])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("broker.users.getpass", leave)
    assert ask_for_entry() == 2
    assert capsys.readouterr() == ("", "\npython -m broker.users: no token was given\n")


async def test_a_client_with_a_wrong_token_gets_a_reason(guarded: BrokerProcess) -> None:
    with pytest.raises(Refusal, match="unauthenticated"):
        SyncClient(guarded.address, name="writer", token="wrong")
    async with Client(guarded.address, name="nobody") as client:
        with pytest.raises(Refusal, match="unauthenticated"):
            await client.publish("tweets", Event(id="1", msg=1))


def test_the_help_of_the_users_file_describes_each_key() -> None:
    command = [sys.executable, "-m", "broker.users", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    for key in ("name", "token", "publish", "subscribe", "share", "admin"):
        assert f"\n  {key} = " in done.stdout


@pytest.mark.parametrize("pattern", ["orders", "orders/", "/s", "a/b/c", "", " /s", "*"])
def test_a_pattern_to_share_names_a_topic_and_a_subscription(tmp_path: Path, pattern: str) -> None:
    users = tmp_path / "users.toml"
    users.write_text(entry("ann", "secret", f'share = ["orders/*", "{pattern}"]'))
    with pytest.raises(StartError, match=r"share of ann: .* is not <topic>/<subscription>"):
        UsersFile(users)


@pytest.mark.parametrize(
    "hash_",
    [
        *(f"$argon2id$v=19${cost}$wBSwLWkhJnOnsD2R27bUpg$W+m8/0Wof5Ck" for cost in ("m=1,t=1,p=1", "m=8,t=0,p=1")),
        *(f"$argon2id$v=19${cost}$wBSwLWkhJnOnsD2R27bUpg$W+m8/0Wof5Ck" for cost in ("m=8,t=1,p=0", "m=8,t=1,p=2")),
        *(f"$argon2id$v=19$m=8,t=1,p=1${end}" for end in ("YWJj$W+m8/0Wof5Ck", "wBSwLWkhJnOnsD2R27bUpg$YQ")),
        *(f"$argon2id$v=19$m=8,t=1,p=1${end}" for end in ("$W+m8/0Wof5Ck", "wBSwLWkhJnOnsD2R27bUpg$W+m8/0Wof5C")),
    ],
)
def test_a_hash_that_argon2_cannot_check_is_refused(tmp_path: Path, hash_: str) -> None:
    users = tmp_path / "users.toml"
    users.write_text(f'[[users]]\nname = "ann"\ntoken = "{hash_}"\n')
    with pytest.raises(StartError, match=r"create one with: python -m broker\.users ann"):
        UsersFile(users)


def test_a_file_of_users_that_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    users.write_text("a = " + "[" * 3000)
    with pytest.raises(StartError, match="is not a users file"):
        UsersFile(users)


def test_an_unusable_file_of_users_is_reported_in_one_sentence(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    for text, sentence in [
        ("nonsense", "is not a users file"),
        ('[[users]]\nname = "a"\ntoken = "plain"\n', "is not an argon2 hash"),
        ('[[users]]\nname = "a b"\ntoken = "x"\n', "1-128 of"),
        ('[[users]]\nname = "a"\ntoken = "x"\nadmn = true\n', "admn"),
    ]:
        users.write_text(text)
        ended = subprocess.run(
            [
                sys.executable,
                "-m",
                "broker",
                "--port",
                "0",
                "--metrics-port",
                "0",
                "--data-dir",
                tmp_path / "b",
                "--users",
                users,
            ],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert ended.returncode == 2
        assert sentence in ended.stderr
        assert len(ended.stderr.splitlines()) == 1


async def test_tls_with_client_certificates(tmp_path: Path, certificates: Path) -> None:
    flags = files_of(certificates, "server")
    trusting = ssl.create_default_context(cafile=f"{certificates}/ca.pem")
    known = ssl.create_default_context(cafile=f"{certificates}/ca.pem")
    known.load_cert_chain(f"{certificates}/client.pem", f"{certificates}/client.key")
    with BrokerProcess(tmp_path / "broker", *flags) as broker:
        async with Client(broker.address, tls=known) as client:
            assert (await client.publish("tweets", Event(id="1", msg=1))).first == 0
        with SyncClient(broker.address, tls=known) as sync:
            assert sync.read("tweets", 0).events[0].id == "1"
        with (
            pytest.raises(Exception, match=r"certificate|lost|closed|EOF"),
            SyncClient(broker.address, tls=trusting) as sync,
        ):
            sync.ping()
        with socket.create_connection(("127.0.0.1", broker.port), 10) as plain:
            plain.sendall(b"ping\n")
            assert b"PONG" not in plain.recv(100)
        with SyncClient(broker.address, tls=known) as sync:
            sync.ping()


def test_the_command_line_speaks_tls(
    tmp_path: Path, certificates: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", f"{certificates}/ca.pem")
    with BrokerProcess(tmp_path / "broker", *files_of(certificates, "server"), "--topic", "tweets") as broker:
        assert main(["topics", "--json", "--broker", broker.address, *files_of(certificates, "client")]) == 0
        assert '"tweets"' in capsys.readouterr().out
        assert main(["topics", "--broker", broker.address, "--tls"]) == 2, "without a certificate of its own"
        assert main(["topics", "--broker", broker.address]) == 2, "without TLS"
        assert len(capsys.readouterr().err.splitlines()) == 2
    with BrokerProcess(tmp_path / "open", *files_of(certificates, "server")[:2], "--topic", "users") as broker:
        assert main(["topics", "--json", "--broker", broker.address, "--tls"]) == 0
        assert '"users"' in capsys.readouterr().out


def test_a_plain_client_at_a_tls_port_and_an_absent_broker_are_reported(tmp_path: Path) -> None:
    with pytest.raises(BrokerUnreachable, match=r"no broker answers at 127\.0\.0\.1:1"):
        SyncClient("127.0.0.1:1")
