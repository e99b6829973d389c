"""The uploader continues after a bug or a failed write, and keeps no more in memory than it needs."""

from pathlib import Path

import pytest

from broker.log import Batch, CommitLog
from broker.server import Server
from broker.tiers import uploader
from broker.tiers.figures import TierFigures
from broker.tiers.location import open_store
from broker.tiers.metrics import TierCollector
from broker.tiers.options import TierOptions
from broker.tiers.service import Tier
from broker.tiers.state_copy import end_open_segments
from broker.tiers.store import Store
from tests.broker.tiers.test_steps import LIMITS, publish
from tests.support.waiting import until_async


class BuggyStore(Store):
    """A store whose first requests of one kind raise an error that nothing expects."""

    def __init__(self, inner: Store, kind: str) -> None:
        self.__dict__.update(inner.__dict__)
        self._kind = kind
        self.left = 2

    def _fail(self, kind: str) -> None:
        if kind == self._kind and self.left:
            self.left -= 1
            raise LookupError("a bug")

    def put(self, name: str, data: bytes) -> None:
        self._fail("put")
        super().put(name, data)

    def create(self, name: str, data: bytes) -> bool:
        if "/manifest/" in name:
            self._fail("create")
        return super().create(name, data)


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["put", "create"])
async def test_a_bug_in_the_tier_does_not_end_the_broker(tmp_path: Path, kind: str) -> None:
    store = BuggyStore(open_store(f"file://{tmp_path}/bucket"), kind)
    server = Server(tmp_path / "b", "synced", limits=LIMITS)
    tier = Tier(server, TierOptions(""), store)
    async with server.open(["t"]), tier.open():
        await publish(server, 0, 5)
        await until_async(lambda: tier.figures.covered_ms > 0, 20)
        assert store.left == 0


@pytest.mark.anyio
async def test_a_state_that_a_manifest_names_is_not_kept_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploader, "POLL_S", 0.02)
    server = Server(tmp_path / "b", "synced", limits=LIMITS)
    tier = Tier(server, TierOptions(""), open_store(f"file://{tmp_path}/bucket"))
    async with server.open(["t"]), tier.open():
        await until_async(lambda: tier.figures.covered_ms > 0, 20)
        assert tier._uploader is not None
        assert tier._uploader._named is not None
        assert tier._uploader._named.copy.records == []


def test_a_topic_whose_last_write_failed_does_not_keep_the_state_from_the_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = CommitLog(tmp_path / "t")
    lines = [b'{"offset":0}\n']
    log.append(Batch(0, lines, [1], [0]))

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("broker.log.segment.sync_data", fail)
        with pytest.raises(OSError, match="No space"):
            log.append(Batch(1, [b'{"offset":1}\n'], [2], [0]))
    # No further event may ever come.
    end_open_segments([(log, log.next)])
    assert [segment.first for segment in log.segments] == [0, 1]
    assert log.read(0, 10, 1000)[0] == lines
    log.append(Batch(1, [b'{"offset":1}\n'], [3], [0]))
    log.close()
    again = CommitLog(tmp_path / "t")
    assert again.next == 2
    again.close()


def test_the_lag_grows_also_if_nothing_was_ever_uploaded(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = TierFigures(started_ms=1_000_000)
    collector = TierCollector(figures)

    def lag() -> float:
        metric = next(one for one in collector.collect() if one.name == "tweetwire_broker_tier_lag_seconds")
        return metric.samples[0].value

    monkeypatch.setattr("time.time", lambda: 1060.0)
    assert lag() == 60
    figures.covered_ms = 1_050_000
    assert lag() == 10
