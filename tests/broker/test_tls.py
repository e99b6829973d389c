"""Clients and brokers that do not agree on TLS: both sides report it at once in one sentence."""

import pickle
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from broker.settings import BrokerSettings
from dashboard.link import DashboardLink
from dashboard.settings import DashboardSettings
from tests.support.certificates import files_of
from tests.support.processes import BrokerProcess
from tweetwire import BrokerUnreachable, Client, Event, TlsFailed
from tweetwire.cli import main
from tweetwire.client.engine import pauses
from tweetwire.protocol.errors import StartError, TlsFileUnusable
from tweetwire.runtime.flags import read_flags
from tweetwire.runtime.login import Login
from tweetwire.runtime.program import ClientSettings, settings_config
from tweetwire.runtime.tls import TlsFiles

pytestmark = pytest.mark.anyio


class Settings(ClientSettings):
    """A client of the broker."""

    model_config = settings_config("python -m example")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("plain") / "broker") as broker:
        yield broker


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, certificates: Path) -> Iterator[BrokerProcess]:
    flags = files_of(certificates, "server")[:2]
    with BrokerProcess(tmp_path_factory.mktemp("secure") / "broker", *flags) as broker:
        yield broker


@pytest.fixture(scope="module")
def demanding(tmp_path_factory: pytest.TempPathFactory, certificates: Path) -> Iterator[BrokerProcess]:
    """A broker that requires certificates from its clients."""
    with BrokerProcess(tmp_path_factory.mktemp("demanding") / "broker", *files_of(certificates, "server")) as broker:
        yield broker


async def sentences_of(login: Login) -> list[str]:
    """Return the error messages of both clients for a broker that they cannot use."""
    said = []
    with pytest.raises(TlsFailed) as error, login.sync_client("test"):
        pass
    said.append(login.reason(error.value))
    with pytest.raises(TlsFailed) as error, anyio.fail_after(30):
        async with login.client("test", connect_timeout_s=60):
            pass
    return [*said, login.reason(error.value)]


def test_a_client_that_begins_no_handshake_does_not_hold_up_the_shutdown(tmp_path: Path, certificates: Path) -> None:
    with (
        BrokerProcess(tmp_path / "broker", *files_of(certificates, "server")[:2]) as broker,
        socket.create_connection(("127.0.0.1", broker.port)),
    ):
        # A broker that waited for this handshake would need half a minute to end.
        assert broker.terminate(20.0) == 0


async def test_a_client_without_tls_gets_a_reason_from_a_broker_with_tls(secure: BrokerProcess) -> None:
    for sentence in await sentences_of(Login(secure.address)):
        assert sentence == (
            f"the broker at {secure.address} speaks TLS only, and this client does not; see --broker-tls"
        )
    with socket.create_connection(("127.0.0.1", secure.port), 30) as person:
        person.sendall(b"topics\r\n")
        assert person.recv(100) == b"-ERR forbidden this port speaks TLS\n"
    assert "TLS handshake failed" in secure.log()
    assert "Traceback" not in secure.log()


async def test_a_client_with_tls_reports_a_broker_without_tls(plain: BrokerProcess, certificates: Path) -> None:
    for sentence in await sentences_of(Login(plain.address, tls=TlsFiles(certificates / "ca.pem"))):
        assert sentence.startswith(f"the broker at {plain.address} does not speak TLS, and this client does")
        assert sentence.endswith("; see --broker-tls")


async def test_a_certificate_of_a_foreign_authority_or_another_host_is_not_trusted(
    secure: BrokerProcess, certificates: Path
) -> None:
    foreign = Login(secure.address, tls=TlsFiles(certificates / "other.pem"))
    elsewhere = Login(f"localhost:{secure.port}", tls=TlsFiles(certificates / "ca.pem"))
    for sentence in [*await sentences_of(foreign), *await sentences_of(elsewhere)]:
        assert "has a certificate that is not trusted (" in sentence
        assert sentence.endswith("); see --broker-tls-ca")
    assert "not valid for 'localhost'" in sentence


async def test_a_client_without_a_certificate_reports_that_one_may_be_needed(
    demanding: BrokerProcess, certificates: Path
) -> None:
    login = Login(demanding.address, tls=TlsFiles(certificates / "ca.pem"))
    with pytest.raises((BrokerUnreachable, TlsFailed), match="certificate"), login.sync_client("test"):
        pass
    with pytest.raises((BrokerUnreachable, TlsFailed), match="certificate"):
        async with login.client("test", connect_timeout_s=0.5):
            pass
    files = TlsFiles(*(certificates / name for name in ("ca.pem", "client.pem", "client.key")))
    for known in (Login(demanding.address, tls=files), pickle.loads(pickle.dumps(Login(demanding.address, tls=files)))):
        with known.sync_client("test") as client:
            client.ping()


async def test_a_client_whose_broker_comes_back_with_tls_logs_that_once_and_continues_when_it_can(
    tmp_path: Path, certificates: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pauses, "MAX_S", 0.05)
    with BrokerProcess(tmp_path / "broker") as broker, anyio.fail_after(120):
        words = list(broker.words)
        async with Client(broker.address) as client:
            await client.publish("t", Event(id="1", msg=1))
            words[2] = broker.words[2]
            broker.kill()
            broker.words += files_of(certificates, "server")[:2]
            await anyio.to_thread.run_sync(broker.start)
            while len(refused_by(broker)) < 3:
                await anyio.sleep(0.02)
            broker.kill()
            broker.words = words
            await anyio.to_thread.run_sync(broker.start)
            assert (await client.publish("t", Event(id="2", msg=1))).first == 1
    (told,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert "speaks TLS only, and this client does not" in told


def refused_by(broker: BrokerProcess) -> list[dict[str, Any]]:
    return broker.logged("TLS handshake failed")


async def test_the_dashboard_logs_once_which_flag_to_check(secure: BrokerProcess) -> None:
    looking = DashboardLink(secure.address, user="dashboard", token=None, tls=None)
    with capture_logs() as logs, anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(looking.run)
            before = len(refused_by(secure))
            while len(refused_by(secure)) < before + 2:
                await anyio.sleep(0.02)
            looking.close()
    (told,) = [one["reason"] for one in logs if one["log_level"] == "error"]
    assert told.endswith("speaks TLS only, and this client does not; see --tls")


def test_a_program_takes_tls_from_its_flags_and_from_the_environment(
    certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = TlsFiles(*(certificates / name for name in ("ca.pem", "client.pem", "client.key")))
    assert read_flags(Settings, files_of(certificates, "client", "--broker-")).login().tls == files
    assert read_flags(Settings, ["--broker-tls"]).login().tls == TlsFiles()
    assert read_flags(Settings, []).login().tls is None
    for name in ("TLS", "TLS_CA", "TLS_CERT", "TLS_KEY"):
        monkeypatch.setenv(f"TWEETWIRE_EXAMPLE_BROKER_{name}", "")
    assert read_flags(Settings, []).login().tls is None, "empty, as Compose writes what is not set"
    given = read_flags(Settings, files_of(certificates, "client", "--broker-"))
    for name, value in given.login_variables(Settings.model_config).items():
        monkeypatch.setenv(name, value)
    assert read_flags(Settings, []).login() == given.login()


def test_the_broker_and_its_dashboard_take_empty_variables_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BROKER_USERS", "BROKER_TLS_CERT", "BROKER_TLS_KEY", "BROKER_TLS_CA"):
        monkeypatch.setenv(f"TWEETWIRE_{name}", "")
    for name in ("TLS", "TLS_CA", "TLS_CERT", "TLS_KEY"):
        monkeypatch.setenv(f"TWEETWIRE_DASHBOARD_{name}", "")
    settings = read_flags(BrokerSettings, [])
    assert (settings.users, settings.tls_cert, settings.tls_key, settings.tls_ca) == (None, None, None, None)
    assert read_flags(DashboardSettings, []).tls_context() is None


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--broker-tls-ca", "none.pem"], "--broker-tls-ca: cannot read none.pem: No such file or directory"),
        (["--broker-tls-ca", "ca.key"], "--broker-tls-ca: ca.key holds no PEM certificate"),
        (["--broker-tls-cert", "none.pem"], "--broker-tls-cert: cannot read none.pem: No such file or directory"),
        (
            ["--broker-tls-cert", "client.pem"],
            "--broker-tls-cert: client.pem and client.pem are not a PEM certificate and its key",
        ),
        (
            ["--broker-tls-cert", "client.pem", "--broker-tls-key", "server.key"],
            "--broker-tls-cert: client.pem and server.key are not a PEM certificate and its key",
        ),
        (
            ["--broker-tls-cert", "client.pem", "--broker-tls-key", "none.key"],
            "--broker-tls-key: cannot read none.key: No such file or directory",
        ),
        (["--broker-tls-key", "client.key"], "--broker-tls-key: needs the certificate that it is the key to"),
    ],
)
def test_an_unusable_file_is_reported_in_one_sentence_with_its_flag(
    flags: list[str], sentence: str, certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(certificates)
    with pytest.raises(StartError) as error:
        read_flags(Settings, flags)
    assert str(error.value) == sentence


def test_a_key_with_a_pass_phrase_is_refused_without_a_prompt(certificates: Path, tmp_path: Path) -> None:
    locked = tmp_path / "locked.key"
    subprocess.run(
        ["openssl", "ec", "-in", certificates / "client.key", "-aes128", "-passout", "pass:phrase", "-out", locked],
        check=True,
        capture_output=True,
    )
    with pytest.raises(TlsFileUnusable, match=r"--tls-key: .* has a pass phrase"):
        TlsFiles(cert=certificates / "client.pem", key=locked).context()


def test_the_command_line_names_the_flag_to_check(
    secure: BrokerProcess, plain: BrokerProcess, certificates: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, end in (
        ([secure.address], "; see --tls\n"),
        ([plain.address, "--tls"], "; see --tls\n"),
        ([secure.address, "--tls-ca", f"{certificates}/other.pem"], "; see --tls-ca\n"),
        (
            [secure.address, "--tls-ca", "none.pem"],
            "topics: --tls-ca: cannot read none.pem: No such file or directory\n",
        ),
    ):
        assert main(["topics", "--broker", *words]) == 2
        said = capsys.readouterr().err
        assert (said.endswith(end), said.count("\n")) == (True, 1), said
