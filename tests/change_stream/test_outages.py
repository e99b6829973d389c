"""MongoDB steps down, ends or refuses the password: the publisher waits, continues, and does not accumulate sockets."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from demo.mongod import ReplicaSet
from tests.change_stream.programs import Publisher, now_token, tokens_of, tokens_since, wait_for
from tests.support.processes import BrokerProcess
from tests.support.waiting import until

pytestmark = [pytest.mark.stack, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaSet]:
    with ReplicaSet(tmp_path_factory.mktemp("three"), members=3) as running:
        yield running


def sockets(pid: int) -> int:
    return sum(1 for entry in Path(f"/proc/{pid}/fd").iterdir() if _is_socket(entry))


def _is_socket(entry: Path) -> bool:
    try:
        return str(entry.readlink()).startswith("socket:")
    except OSError:
        return False


def test_every_change_comes_once_through_elections(tmp_path: Path, three: ReplicaSet, broker: BrokerProcess) -> None:
    with MongoClient[dict[str, Any]](three.url, w="majority") as mongo:
        tweets = mongo.elections.tweets
        tweets.insert_one({"_id": "first"})
        start = now_token(tweets)
        with Publisher(tmp_path / "log", three.url, broker.address, "elections", "--map", "tweets=tweets") as publisher:
            for election in range(2):
                tweets.insert_many([{"_id": f"{election}-{n}"} for n in range(50)])
                if election == 1:
                    # Kill the primary at once, whatever part of its oplog the other members have copied.
                    primary = three.wait_for_primary()
                    primary.kill()
                    three.wait_for_primary()
                    primary.start()
                else:
                    three.step_down(5)
                    three.wait_for_primary()
                tweets.insert_many([{"_id": f"{election}+{n}"} for n in range(50)])
            expected = tokens_since(tweets, start)
            assert len(expected) == 200
            assert tokens_of(wait_for(broker.address, "tweets", 200, 60)) == expected
            assert publisher.terminate() == 0


def test_without_any_member_it_waits_and_holds_few_sockets(
    tmp_path: Path, three: ReplicaSet, broker: BrokerProcess
) -> None:
    with MongoClient[dict[str, Any]](three.url) as mongo:
        flags = ("--map", "tweets=tweets")
        with Publisher(tmp_path / "log", three.url, broker.address, "away", *flags) as publisher:
            mongo.away.tweets.insert_one({"_id": 1})
            wait_for(broker.address, "tweets", 1)
            before = sockets(publisher.pid)
            for _ in range(2):
                three.kill()
                until(lambda: publisher.said("MongoDB unreachable"))
                three.start()
            mongo.away.tweets.insert_one({"_id": 2})
            assert [event.id for event in wait_for(broker.address, "tweets", 2, 60)] == ["1", "2"]
            assert sockets(publisher.pid) <= before + 6
            assert publisher.said("MongoDB answers again")


def test_a_wrong_password_is_waited_out(tmp_path: Path, broker: BrokerProcess) -> None:
    key = tmp_path / "key"
    key.write_text("c2VjcmV0a2V5c2VjcmV0a2V5")
    key.chmod(0o600)
    with ReplicaSet(tmp_path / "mongo", arguments=("--keyFile", str(key))) as guarded:
        with MongoClient[dict[str, Any]](guarded.url) as mongo:
            mongo.admin.command("createUser", "admin", pwd="right", roles=["root"])
        admin_url = guarded.url.replace("//", "//admin:right@")
        with MongoClient[dict[str, Any]](admin_url) as mongo:
            mongo.admin.command("createUser", "publisher", pwd="right", roles=["readAnyDatabase", "clusterMonitor"])
            url = guarded.url.replace("//", "//publisher:right@")
            flags = ("--map", "tweets=tweets", "--connect-timeout", "2m")
            with Publisher(tmp_path / "log", url, broker.address, "guarded", *flags) as publisher:
                mongo.admin.command("updateUser", "publisher", pwd="other")
                guarded.members[0].kill()
                guarded.members[0].start()
                guarded.wait_for_primary()
                until(lambda: publisher.said("Authentication failed"))
                mongo.guarded.tweets.insert_one({"_id": 1})
                mongo.admin.command("updateUser", "publisher", pwd="right")
                assert [event.id for event in wait_for(broker.address, "tweets", 1, 40)] == ["1"]
                assert publisher.terminate() == 0
