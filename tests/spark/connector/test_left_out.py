"""A row that the broker refuses fails its batch until it is accepted, although the rows after it are stored."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark.connector.options import WriteOptions
from spark.connector.sink import StagedRow, publish
from tests.support.processes import BrokerProcess
from tests.support.waiting import until
from tweetwire import Event, Refusal, SyncClient
from tweetwire.runtime.login import Login

pytestmark = pytest.mark.stack

TOPIC = "numbers"
SEQUENCE = 1 << 20


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[SyncClient]:
    with SyncClient(broker.address) as client:
        client.publish(TOPIC, Event(id="before", msg={"n": 0}))
        yield client


def commit(broker: BrokerProcess, numbers: list[int], sequence: int = SEQUENCE) -> None:
    """Publish a batch with a row for each of `numbers`, as a sink's commit does."""
    options = WriteOptions(broker=Login(broker.address), topic=TOPIC, producer="sink", retry_s=10)
    publish(options, [StagedRow(str(n), json.dumps({"n": n})) for n in numbers], "sink", sequence)


def set_most(client: SyncClient, most: int) -> None:
    client.command(f"schema {TOPIC} " + json.dumps({"properties": {"n": {"maximum": most}}}))


def ids(client: SyncClient) -> list[str]:
    return [event.id for event in client.read(TOPIC, 0).events]


@pytest.mark.parametrize("numbers", [[1, 2, 9, 3, 8, 4], [9, 1, 2], [1, 9], [9, 8]])
def test_a_refused_row_is_refused_again_and_stored_once_when_it_is_taken(
    broker: BrokerProcess, client: SyncClient, numbers: list[int]
) -> None:
    set_most(client, 5)
    for _ in range(3):
        with pytest.raises(Refusal, match="9 is greater"):
            commit(broker, numbers)
    # No row after a refused row is stored before that row is stored.
    taken = ["before", *(str(n) for n in numbers[: numbers.index(9)])]
    assert ids(client) == taken
    set_most(client, 8)
    with pytest.raises(Refusal, match="9 is greater"):
        commit(broker, numbers)
    assert "9" not in ids(client)
    set_most(client, 9)
    for _ in range(2):
        commit(broker, numbers)
        assert sorted(ids(client)) == sorted(["before", *map(str, numbers)])
    commit(broker, [6], 2 * SEQUENCE)
    assert ids(client)[-1] == "6"


def test_rows_that_retention_has_removed_are_not_published_again(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker", "--segment-bytes", "64KiB") as broker, SyncClient(broker.address) as client:
        for first in range(0, 4_000, 500):
            commit(broker, [*range(first, first + 500)], SEQUENCE + first)
        client.command(f"retain {TOPIC} bytes=64KiB")
        until(lambda: client.topics()[-1].earliest > 2_000)
        client.publish(TOPIC, Event(id="of another", msg=None))
        commit(broker, [*range(4_000)])
        assert client.topics()[-1].next == 4_001
