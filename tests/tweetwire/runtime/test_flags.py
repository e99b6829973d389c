"""The flags of all programs: the text of ``--help``, and the one message for a wrong flag."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, CliPositionalArg

from bench.settings import BenchSettings, CompareSettings
from bench.soak import SoakSettings
from bridge.settings import BridgeSettings
from bridge.verify import VerifySettings
from broker.settings import BrokerSettings
from change_stream.settings import ChangeStreamSettings
from change_stream.status import StatusSettings
from dashboard.settings import DashboardSettings
from demo.replica_set import ReplicaSetSettings
from demo.settings import DemoSettings
from spark.apps.backfill.settings import BackfillSettings
from spark.apps.console import ConsoleSettings
from spark.apps.plot.settings import PlotSettings
from spark.apps.settings import SparkSettings
from sse_ingest.report.settings import ReportSettings
from sse_ingest.settings import IngestSettings
from sse_ingest.simulator.settings import SimulatorSettings
from subscriber.handlers.history import HistorySettings
from subscriber.stress.publishing import PublishSettings
from subscriber.stress.settings import SubscriberSettings
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.flags import read_flags
from tweetwire.runtime.kinds import Address, Bytes, Folder, Metavar, Seconds
from tweetwire.runtime.login import Login
from tweetwire.runtime.program import ProgramSettings, settings_config

PROGRAMS: list[type[BaseSettings]] = [
    *(BridgeSettings, VerifySettings),
    *(BrokerSettings, DashboardSettings, ChangeStreamSettings, StatusSettings, DemoSettings, ReplicaSetSettings),
    *(
        SparkSettings,
        BackfillSettings,
        ConsoleSettings,
        PlotSettings,
        IngestSettings,
        ReportSettings,
        SimulatorSettings,
    ),
    *(SubscriberSettings, PublishSettings, HistorySettings, BenchSettings, CompareSettings, SoakSettings),
]


class Example(ProgramSettings):
    """Shows one of each kind.

    A second paragraph.
    """

    model_config = settings_config("python -m example")

    file: CliPositionalArg[Path] = Field(description="file to read")
    broker: Address = Field("127.0.0.1:8000", description="address of the broker")
    wait: Seconds = Field("60s", validate_default=True, description="how long")
    pause: Seconds | None = Field(None, description="how long in between (default: no pause)")
    size: list[Bytes] = Field(["200", "1KiB"], validate_default=True, description="how long a message is")
    count: int = Field(10, ge=1, description="how many")
    share: float = Field(0.0, description="how much of it")
    out: Path | None = Field(None, description="where to")
    data_dir: Folder = Field(Path("data"), description="where from")
    as_: str = Field(alias="as", description="which one")
    rename: list[Annotated[str, Metavar("OLD=NEW")]] = Field([], description="how it is called, 100 % of it")
    mode: Literal["a", "b"] = Field("a", description="which way")
    loop: bool = Field(False, description="repeatedly")
    token: SecretStr = Field(SecretStr("hidden"), description="who asks")


def help_of(settings_type: type[BaseSettings], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as end:
        read_flags(settings_type, ["--help"])
    assert end.value.code == 0
    return capsys.readouterr().out


def test_help_shows_each_setting_by_its_kind_with_its_default(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    text = help_of(Example, capsys)
    told = " ".join(text.split())
    for line in (
        "FILE file to read",
        "--broker HOST:PORT address of the broker (default: 127.0.0.1:8000)",
        "--wait DURATION how long (default: 60s)",
        "--pause DURATION how long in between (default: no pause)",
        "--size BYTES how long a message is (repeatable; default: 200, 1KiB)",
        "--count N how many (default: 10)",
        "--share NUMBER how much of it (default: 0)",
        "--out FILE where to (default: none)",
        "--data-dir FOLDER where from (default: data)",
        "--as NAME which one (required)",
        "--rename OLD=NEW how it is called, 100 % of it (repeatable; default: none)",
        "--mode {a,b} which way (default: a)",
        "--loop, --no-loop repeatedly (default: no)",
        "--token TOKEN who asks (default: a secret)",
        "--metrics-port PORT port of Prometheus metrics",
        "Shows one of each kind. A second paragraph.",
        "BYTES is written like 4096, 64KiB, 64MiB or 1GiB.",
        "DURATION is written like 500ms, 5s, 2m or 1h.",
        "--log-level is TWEETWIRE_EXAMPLE_LOG_LEVEL",
    ):
        assert line in told, f"{line}\n{text}"
    assert "hidden" not in told


@pytest.mark.parametrize("settings_type", PROGRAMS, ids=lambda one: f"{one.__module__}.{one.__name__}")
def test_no_program_shows_a_person_the_types_of_python(
    settings_type: type[BaseSettings], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    text = help_of(settings_type, capsys)
    assert "None" not in text
    flags = re.findall(r"^  --.*", text, re.MULTILINE)
    for line in flags:
        assert re.match(r"  --[a-z0-9-]+(, --[a-z0-9-]+)*( [A-Z:=]+| \{[A-Za-z0-9_,-]+\}|$|  )", line), line
    told = " ".join(text.split())
    assert len(re.findall(r"\((?:repeatable; )?(?:default: |required)", told)) >= len(flags)
    assert not flags or re.search(r" is TWEETWIRE_[A-Z_]+ \(", told)


def test_values_are_read_as_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWEETWIRE_EXAMPLE_WAIT", "2m")
    settings = read_flags(
        Example, ["in.json", "--as", "me", "--size", "1MiB", "--size", "7", "--pause", "500ms", "--loop"]
    )
    assert (settings.file, settings.as_, settings.size, settings.wait, settings.pause, settings.loop) == (
        Path("in.json"),
        "me",
        [1 << 20, 7],
        120.0,
        0.5,
        True,
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["f", "--as", "me", "--wait", "5"], "--wait: '5' is not a duration; write it like 500ms, 5s, 2m or 1h"),
        (["f", "--as", "me", "--size", "5 apples"], "--size: '5 apples' is not a size"),
        (["f", "--as", "me", "--broker", "nowhere:x"], "--broker: 'nowhere:x' is not an address"),
        (["f", "--as", "me", "--count", "0"], "--count: '0' is less than 1"),
        (["f", "--as", "me", "--count", "many"], "--count: 'many' is not a whole number"),
        (["f", "--as", "me", "--share", "half"], "--share: 'half' is not a number"),
        (["f", "--as", "me", "--mode", "c"], "--mode: 'c' is not one of 'a' or 'b'"),
        (["f", "--as", "me", "--cuont", "1"], "unrecognized arguments: --cuont 1; see --help"),
        (["--as", "me"], "the following arguments are required: FILE; see --help"),
        (["f"], "--as: is needed"),
        (["f", "--as"], "argument --as: expected one argument; see --help"),
    ],
)
def test_a_wrong_flag_is_reported_in_one_sentence(words: list[str], sentence: str) -> None:
    with pytest.raises(StartError) as error:
        read_flags(Example, words)
    assert str(error.value).startswith(sentence)
    assert "\n" not in str(error.value)


def test_a_program_takes_its_user_and_token_from_the_environment_and_shows_the_token_nowhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TWEETWIRE_SPARK_BROKER_USER", "spark")
    monkeypatch.setenv("TWEETWIRE_SPARK_BROKER_TOKEN", "s-secret")
    settings = read_flags(SparkSettings, ["all", "--broker", "b:1"])
    assert settings.login() == Login("b:1", "spark", "s-secret")
    assert settings.login().name("spark-sink") == "spark"
    assert "s-secret" not in f"{settings!r} {settings.login()!r} {help_of(SparkSettings, capsys)}"


def test_an_empty_user_and_token_mean_no_login_as_compose_writes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWEETWIRE_SPARK_BROKER_USER", "")
    monkeypatch.setenv("TWEETWIRE_SPARK_BROKER_TOKEN", "")
    login = read_flags(SparkSettings, ["all"]).login()
    assert (login, login.name("spark-sink")) == (Login("127.0.0.1:8000"), "spark-sink")


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--broker-user", "spark"], "^--broker-user, --broker-token: .* go together"),
        (["--broker-token", "s-secret"], "go together"),
        (
            ["--broker-user", "spark", "--broker-token", "s-secret two"],
            "^--broker-user, --broker-token: a token is a word without spaces",
        ),
        (["--broker-user", "spark\nsub x", "--broker-token", "s-secret"], "^--broker-user: .* 1-128 of"),
    ],
)
def test_an_incomplete_login_is_reported_in_one_sentence_without_the_token(flags: list[str], sentence: str) -> None:
    with pytest.raises(StartError, match=sentence) as refused:
        read_flags(SparkSettings, ["all", *flags])
    assert "s-secret" not in str(refused.value)


def test_a_traceback_of_wrong_settings_shows_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWEETWIRE_SPARK_BROKER_TOKEN", "s-secret")
    with pytest.raises(ValidationError, match="go together") as refused:
        SparkSettings(_cli_parse_args=["all"])
    assert "s-secret" not in f"{refused.value} {refused.value!r}"


def test_a_traceback_in_the_log_of_a_terminal_shows_only_the_code(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        """
from tweetwire.runtime.login import Login
from tweetwire.runtime.logs import configure_logging
from tweetwire.runtime.program import logger

def log_in(login):
    token = login.token
    raise OSError("no way")

configure_logging("info", is_json=False)
try:
    log_in(Login("b:1", "spark", "-".join(["s", "secret"])))
except OSError:
    logger().exception("failed")
"""
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60, check=True)
    assert "no way" in done.stderr
    assert "token = login.token" in done.stderr
    assert "s-secret" not in done.stderr
