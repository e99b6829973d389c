"""The permissions of stored files, and the folders that a broker refuses to open."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import BrokerProcess
from tweetwire import Event, Refusal, SyncClient
from tweetwire.client.exactly_once.spool import Spool


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture
def _no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_no_umask")
def test_only_the_owner_may_read_a_brokers_files(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "broker"
    folder.parent.mkdir()
    with BrokerProcess(folder, "--segment-bytes", "2KiB", "--reserve-bytes", "64KiB") as broker:
        with SyncClient(broker.address) as client:
            client.publish_many("t", (Event(id=str(n), msg="x" * 50) for n in range(100)))
            client.command("comment t hello")
        assert broker.terminate() == 0
    made = [folder, *folder.rglob("*")]
    assert len(made) > 8
    assert {str(path): oct(mode(path)) for path in made if path.is_dir() and mode(path) != 0o700} == {}
    assert {str(path): oct(mode(path)) for path in made if path.is_file() and mode(path) != 0o600} == {}


@pytest.mark.usefixtures("_no_umask")
def test_only_the_owner_may_read_a_clients_spool(tmp_path: Path) -> None:
    Spool(tmp_path / "spool", "c").close()
    assert mode(tmp_path / "spool") == 0o700
    assert {mode(path) for path in (tmp_path / "spool").iterdir()} == {0o600}


@pytest.mark.parametrize("kind", ["a topic", "a segment", "an index", "a pipe"])
def test_a_broker_does_not_start_with_a_link_or_a_pipe_among_its_files(tmp_path: Path, kind: str) -> None:
    folder, outside = tmp_path / "broker", tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"mine\n")
    broker = BrokerProcess(folder)
    with broker:
        with SyncClient(broker.address) as client:
            client.publish("t", Event(id="0", msg=0))
        broker.kill()
        path = folder / "topics" / "t" / f"{0:020d}.jsonl"
        if kind == "a topic":
            path = folder / "topics" / "u"
            path.symlink_to(outside)
        elif kind == "a pipe":
            path.unlink()
            os.mkfifo(path)
        else:
            path = path if kind == "a segment" else path.with_suffix(".index")
            path.unlink()
            path.symlink_to(outside / "file")
        broker.launch()
        assert broker.wait() == 2
    kind = "no regular file" if kind == "a pipe" else "a symbolic link"
    assert broker.log().splitlines()[-1] == (
        f"python -m broker: cannot use the data directory {folder}: {path} is {kind}; move it away"
    )
    assert {one.name: one.read_bytes() for one in outside.iterdir()} == {"file": b"mine\n"}


def test_a_topic_is_not_made_where_a_link_leads_elsewhere(tmp_path: Path) -> None:
    folder, outside = tmp_path / "broker", tmp_path / "outside"
    outside.mkdir()
    with BrokerProcess(folder) as broker, SyncClient(broker.address) as client:
        (folder / "topics" / "t").symlink_to(outside)
        with pytest.raises(Refusal, match=f"disk cannot make topic t: {folder / 'topics' / 't'} is a symbolic link"):
            client.publish("t", Event(id="1", msg=1))
    assert list(outside.iterdir()) == []
