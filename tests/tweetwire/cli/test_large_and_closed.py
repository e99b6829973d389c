"""Commands that transfer data, with large events, closed terminals, and topics that are dropped or purged meanwhile."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import parquet

from tests.support.commands import PATIENCE_S, Tweetwire
from tests.support.processes import BrokerProcess
from tests.support.waiting import until
from tweetwire import Event, SyncClient

LARGE = 50_000_000


@pytest.fixture(scope="module")
def large_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that takes events of 50 MB, with three of them in the topic ``large``."""
    folder = tmp_path_factory.mktemp("large")
    with BrokerProcess(folder / "broker", "--line-bytes-max", "64MiB") as broker:
        line = b'"%b"\n' % (b"x" * LARGE)
        done = Tweetwire(broker)("pub", "large", "-", stdin=line * 3 + b"1\n")
        assert "published 4 events to large in " in done.errors
        yield broker


def test_large_events_are_shown_and_exported(large_broker: BrokerProcess, tmp_path: Path) -> None:
    tweetwire = Tweetwire(large_broker)
    shown = tweetwire("tail", "large", "--no-follow", "--where", "msg ~ 'xx' or msg == 1", "-n", 2, "--json").out
    assert [json.loads(line)["offset"] for line in shown.splitlines()] == [2, 3]
    tweetwire("export", "large", "--format", "parquet", "--out", tmp_path / "large.parquet")
    rows = parquet.read_table(tmp_path / "large.parquet", columns=["offset", "msg"]).to_pylist()
    assert [(row["offset"], len(row["msg"])) for row in rows] == [*((n, LARGE + 2) for n in range(3)), (3, 1)]


def test_large_events_are_backed_up_and_restored(large_broker: BrokerProcess, tmp_path: Path) -> None:
    Tweetwire(large_broker)("backup", tmp_path / "copy")
    words = ["restore", str(tmp_path / "copy"), "--data-dir", str(tmp_path / "second")]
    subprocess.run([sys.executable, "-m", "tweetwire", *words], check=True, timeout=PATIENCE_S, capture_output=True)
    with BrokerProcess(tmp_path / "second") as broker, SyncClient(broker.address) as client:
        assert [client.read_lines("large", n, limit=1) for n in range(4)] == [_read(large_broker, n) for n in range(4)]


def _read(broker: BrokerProcess, offset: int) -> tuple[list[bytes], int]:
    with SyncClient(broker.address) as client:
        return client.read_lines("large", offset, limit=1)


@pytest.mark.parametrize("command", ["sub", "tail"])
def test_a_closed_terminal_ends_a_command_with_one_sentence(
    shared_broker: BrokerProcess, shared_client: SyncClient, command: str
) -> None:
    topic = f"closed-{command}"
    shared_client.publish(topic, Event(id="first", msg=1))
    flags = ("--as", "s", "--from", "earliest") if command == "sub" else ()
    screen, terminal = pty.openpty()
    argv = Tweetwire(shared_broker).argv(command, topic, *flags)
    with subprocess.Popen(
        argv, stdout=terminal, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    ) as process:
        os.close(terminal)
        seen = b""
        while b"first" not in seen:
            seen += os.read(screen, 1 << 16)
        if command == "sub":
            until(lambda: _settled(shared_client, topic) == 1)
        os.close(screen)
        shared_client.publish(topic, Event(id="second", msg=2))
        _, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, errors) == (2, f"tweetwire {command}: cannot write the output: Input/output error\n")
    if command == "sub":
        assert _settled(shared_client, topic) == 1


def _settled(client: SyncClient, topic: str) -> int:
    count: int = client.stats(topic)["topics"][topic]["subscriptions"]["s"]["settled"]
    return count


def test_a_full_disk_for_the_output_is_reported_in_one_sentence(
    shared_broker: BrokerProcess, shared_client: SyncClient
) -> None:
    shared_client.publish("full", Event(id="a", msg=1))
    for words in (("tail", "full", "--no-follow", "--json"), ("export", "full"), ("sub", "full", "--from", "earliest")):
        with open("/dev/full", "w") as full:
            argv = Tweetwire(shared_broker).argv(*words)
            done = subprocess.run(argv, check=False, stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S)
        assert done.returncode == 2
        assert done.stderr == f"tweetwire {words[0]}: cannot write the output: No space left on device\n"
