"""Open files: a broker uses a bounded number of descriptors for any number of topics, and survives having none left."""

import errno
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from broker.core import Broker
from broker.data_directory import DataDirectory, Sizes
from broker.log import CommitLog, OpenFiles
from tests.broker.log.test_log import batch, read_all
from tests.support.processes import BrokerProcess
from tweetwire import Event, SyncClient
from tweetwire.protocol.errors import Refusal

LIMIT = 64
TOPICS = 150
_LIMITED = (
    "import resource, runpy, sys;"
    f" resource.setrlimit(resource.RLIMIT_NOFILE, ({LIMIT}, {LIMIT}));"
    " runpy.run_module('broker', run_name='__main__', alter_sys=True)"
)


class LimitedBroker(BrokerProcess):
    """A broker that may have `LIMIT` files open."""

    def command(self) -> list[str]:
        return [sys.executable, "-c", _LIMITED, *self.words[1:]]


def descriptors(pid: int | str = "self") -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def test_a_log_of_many_segments_keeps_few_files_open_and_all_of_it_can_be_read(tmp_path: Path) -> None:
    before = descriptors()
    files = OpenFiles(3)
    log = CommitLog(tmp_path / "t", segment_bytes=300, files=files)
    for first in range(0, 400, 4):
        log.append(batch(first, 4))
    assert len(list((tmp_path / "t").glob("*.jsonl"))) > 50
    assert (len(files), descriptors() - before) == (3, 6)
    assert read_all(log) == batch(0, 400).lines
    assert log.pick(list(range(0, 400, 7))) == {n: batch(n, 1).lines[0] for n in range(0, 400, 7)}
    assert descriptors() - before == 6
    again = CommitLog(tmp_path / "t", files=OpenFiles(1))
    assert read_all(again) == batch(0, 400).lines
    log.close()
    again.close()
    assert descriptors() == before


def test_files_in_use_are_closed_only_after_their_last_user(tmp_path: Path) -> None:
    files = OpenFiles(1)
    paths = [(str(tmp_path / f"{n}.jsonl"), str(tmp_path / f"{n}.index")) for n in range(3)]
    with files.take(*paths[0], is_made=True) as first, files.take(*paths[0]) as same:
        assert first is same
        with files.take(*paths[1], is_made=True):
            assert os.fstat(first.file).st_size == 0
        assert len(files) == 1
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(first.file)
    with pytest.raises(FileNotFoundError):
        files.take(*paths[2])
    assert len(files) == 1


def test_a_removed_file_is_closed(tmp_path: Path) -> None:
    before = descriptors()
    log = CommitLog(tmp_path / "t", segment_bytes=300)
    for first in range(0, 40, 4):
        log.append(batch(first, 4))
    log.forget_below(36)
    assert descriptors() - before == 2 * len(list((tmp_path / "t").glob("*.jsonl")))
    log.close()


def without_descriptors(monkeypatch: pytest.MonkeyPatch, wanted: str) -> None:
    """Refuse to open files whose paths contain `wanted`."""
    real = os.open

    def refuse(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if wanted in os.fspath(path):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", refuse)


@pytest.mark.parametrize("wanted", [".jsonl", ".index", "topics/t"])
def test_without_a_free_descriptor_a_new_topic_is_refused_with_a_reason_and_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: str
) -> None:
    data = DataDirectory(tmp_path / "broker", "synced", Sizes(reserve=0))
    data.acquire()
    broker = Broker(data, version="test", promise="synced")
    with monkeypatch.context() as patch:
        without_descriptors(patch, wanted)
        with pytest.raises(Refusal, match="disk cannot make topic t: no file descriptors are left; raise the limit"):
            broker.topic("t")
        assert list((tmp_path / "broker" / "topics").iterdir()) == []
    broker.topic("t").log.close()
    assert data.topics() == ["t"]
    data.release()


def test_idle_files_are_closed_when_no_descriptor_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = OpenFiles(50)
    log = CommitLog(tmp_path / "t", segment_bytes=300, files=files)
    for first in range(0, 40, 4):
        log.append(batch(first, 4))
    files.drop(str(tmp_path / "t" / f"{0:020d}.jsonl"))
    held = len(files)
    real, left = os.open, [1]

    def refuse_once(*words: Any) -> int:
        if left:
            left.pop()
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(*words)

    monkeypatch.setattr(os, "open", refuse_once)
    assert log.read(0, 1, 100)[0] == batch(0, 1).lines
    assert (held > 5, len(files)) == (True, 1)
    log.close()


def test_a_broker_with_few_descriptors_serves_many_topics_and_segments_and_starts_again(tmp_path: Path) -> None:
    with LimitedBroker(tmp_path / "broker", "--segment-bytes", "2KiB", "--reserve-bytes", "64KiB") as broker:
        with SyncClient(broker.address) as client:
            for n in range(TOPICS):
                client.publish(f"t{n}", Event(id="0", msg=n))
            client.publish_many("long", (Event(id=str(n), msg="x" * 100) for n in range(2000)))
            assert descriptors(broker.pid) <= LIMIT
        segments = list((tmp_path / "broker" / "topics" / "long").glob("*.jsonl"))
        assert len(segments) + TOPICS > 2 * LIMIT
        broker.kill()
        broker.start()
        with SyncClient(broker.address) as client:
            assert {len(client.read(f"t{n}", 0).events) for n in range(TOPICS)} == {1}
            assert [event.id for event in client.read("long", 0, limit=2000).events] == [str(n) for n in range(2000)]
        assert broker.logged(
            "allowing fewer connections than --connections-max: each needs a file descriptor; raise the limit (ulimit -n)"
        )
