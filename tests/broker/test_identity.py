"""The identity of a data folder, with real brokers and the commands for people."""

import json
import re
import shutil
import socket
from pathlib import Path

import pytest

from tests.support.processes import BrokerProcess
from tweetwire import Event, SyncClient
from tweetwire.cli import main

OLDER = Path(__file__).parent / "older/folder"


def identity_of(broker: BrokerProcess) -> str:
    """Return the identity that the greeting, the statistics and the client agree on."""
    with socket.create_connection(("127.0.0.1", broker.port), 20) as connection, connection.makefile("r") as incoming:
        greeting = incoming.readline()
    found = re.fullmatch(r"\+OK tweetwire broker \S+, type help, identity=([A-Za-z0-9]{22})\n", greeting)
    assert found is not None, greeting
    with SyncClient(broker.address) as client:
        assert client.broker_identity == client.stats()["identity"] == found[1]
    return found[1]


def fsck(capsys: pytest.CaptureFixture[str], *words: object, status: int = 0) -> str:
    capsys.readouterr()
    assert main(["fsck", *map(str, words)]) == status
    return capsys.readouterr().out


def test_a_folder_keeps_its_identity_and_a_copy_of_it_gets_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "broker"
    with BrokerProcess(folder) as broker:
        first = identity_of(broker)
        with SyncClient(broker.address) as client:
            client.publish("t", Event(id="1", msg=1))
            client.mark("t", "m", 1, checkpoint="c")
        broker.kill()
        broker.start()
        assert identity_of(broker) == first
        assert main(["backup", str(tmp_path / "backup"), "--broker", broker.address]) == 0
        broker.stop()
    shutil.copytree(folder, tmp_path / "copied")
    assert f"; identity {first}\n" in fsck(capsys, folder)
    assert first in json.dumps(json.loads(fsck(capsys, folder, "--json")))
    assert f"; identity {first}\n" not in fsck(capsys, tmp_path / "copied", "--new-identity")
    assert main(["restore", str(tmp_path / "backup"), "--data-dir", str(tmp_path / "restored")]) == 0
    found = {first}
    for name in ("copied", "restored"):
        with BrokerProcess(tmp_path / name) as broker:
            found.add(identity_of(broker))
            with SyncClient(broker.address) as client:
                (mark,) = client.marks("t")
                assert (mark.offset, mark.checkpoint) == (1, "c")
    assert len(found) == 3


def test_a_folder_of_an_older_broker_gets_an_identity_at_its_first_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(OLDER, tmp_path / "broker")
    assert "identity" not in fsck(capsys, tmp_path / "broker")
    with BrokerProcess(tmp_path / "broker") as broker:
        first = identity_of(broker)
        broker.kill()
        broker.start()
        assert identity_of(broker) == first


def test_events_in_memory_have_a_new_identity_at_each_start(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker", "--durability", "memory") as broker:
        first = identity_of(broker)
        broker.stop()
        broker.start()
        assert identity_of(broker) != first


def test_a_damaged_identity_is_never_replaced_without_being_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "broker"
    with BrokerProcess(folder) as broker:
        broker.stop()
        path = folder / "IDENTITY"
        path.write_bytes(path.read_bytes().replace(b"identity", b"identitx"))
        broker.launch()
        assert broker.wait() == 2
        assert "--new-identity" in broker.log()
        assert "it is damaged" in fsck(capsys, folder, status=1)
        fsck(capsys, folder, "--new-identity")
        broker.start()
        identity_of(broker)
