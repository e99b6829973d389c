"""The addresses that a demo writes for other programs and for commands."""

import subprocess
from pathlib import Path

import pytest

from change_stream.status import StatusSettings
from demo.addresses import FILE_NAME, publish_addresses
from demo.settings import DemoSettings
from demo.stack import Addresses
from spark.apps.backfill.settings import BackfillSettings
from sse_ingest.report.settings import ReportSettings
from tweetwire.cli.contexts import context_texts
from tweetwire.runtime.flags import read_flags

AT = Addresses(
    mongo_url="mongodb://127.0.0.1:5/?replicaSet=rs0",
    broker=7,
    broker_metrics=1,
    ingest=2,
    ingest_metrics=3,
    simulator=4,
    change_stream_metrics=5,
    subscriber_metrics=6,
    spark=8,
    dashboard=9,
)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DemoSettings:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return DemoSettings(_cli_parse_args=False, data_dir=tmp_path, database="other")


def test_programs_find_the_demo_by_the_file_in_its_data_folder(
    settings: DemoSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_addresses(settings, AT)
    # A shell reads the file, as a user does.
    code = f"set -a; . {tmp_path / FILE_NAME}; env -0"
    done = subprocess.run(["sh", "-c", code], capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin"})
    for line in done.stdout.split("\0"):
        name, _, value = line.partition("=")
        if name.startswith("TWEETWIRE_"):
            monkeypatch.setenv(name, value)
    status = read_flags(StatusSettings, [])
    assert (status.broker, status.mongo_url, status.database) == ("127.0.0.1:7", AT.mongo_url, "other")
    backfill = read_flags(BackfillSettings, [])
    assert (backfill.broker, backfill.mongo_url, backfill.database) == ("127.0.0.1:7", AT.mongo_url, "other")
    report = read_flags(ReportSettings, [])
    assert (report.mongo_url, report.database) == (AT.mongo_url, "other")
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o077 == 0


def test_commands_find_the_demo_by_its_context(settings: DemoSettings) -> None:
    publish_addresses(settings, AT)
    assert context_texts({"context": "demo"}) == {"broker": "127.0.0.1:7"}
    assert context_texts({}) == {}, "it is used once the user chooses it"


def test_contexts_that_cannot_be_saved_do_not_stop_the_demo(
    settings: DemoSettings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "config" / "tweetwire"
    folder.mkdir(parents=True)
    (folder / "contexts.json").write_text("{")
    publish_addresses(settings, AT)
    assert (tmp_path / FILE_NAME).exists()
    assert "cannot save the context of the demo" in capsys.readouterr().out
