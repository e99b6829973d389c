"""A user who tries to use another user's subscriptions, on a real broker: two users and three connections."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.processes import BrokerProcess
from tests.support.users import entry
from tweetwire import Event, Refusal, SyncClient

WITHIN_S = 20.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    users = tmp_path / "users.toml"
    users.write_text(entry("alice", "a-secret", subscribe='["*", "dead_letters"]') + entry("mallory", "m-secret"))
    with BrokerProcess(tmp_path / "broker", "--users", str(users), "--topic", "orders") as process:
        yield process


def test_a_hostile_user_gets_nothing_of_anothers_subscriptions_and_takes_nothing(broker: BrokerProcess) -> None:
    with ExitStack() as stack:
        alice, watcher = (
            stack.enter_context(SyncClient(broker.address, name="alice", token="a-secret")) for _ in range(2)
        )
        mallory = stack.enter_context(SyncClient(broker.address, name="mallory", token="m-secret"))
        billing = alice.subscribe("orders", as_="billing", tries=1)
        anonymous = watcher.subscribe("orders")
        (hidden,) = set(alice.stats()["topics"]["orders"]["subscriptions"]) - {"billing"}
        alice.publish("orders", Event(id="o-1", msg="a payload"))
        (event,) = billing.take(WITHIN_S)
        billing.nack(event, "a secret reason", trace="a secret trace")
        alice.publish("orders", Event(id="o-2", msg="a payload"))
        assert [one.id for one in billing.take(WITHIN_S)] == ["o-2"]

        for name in ("billing", hidden):
            for line in (
                *(f"redrive orders as={name} all", "clients", f"backlog orders as={name}", "retain orders age=1s"),
                *('pub dead_letters {"id":"x","msg":1}', "read dead_letters 0", "read rejected_lines 0"),
                *(f"explain orders @0 as={name}", f"dead as={name}", "dead", "stats", "topics", "chain orders @0"),
            ):
                told = _ask(mallory, line)
                assert "a secret" not in told, line
                assert "alice" not in told, line
                assert "127.0.0.1" not in told, line
            for line in (
                *(f"seek orders as={name} to=latest", f"pause orders as={name}", f"resume orders as={name}"),
                *(f"discard orders as={name} all", "purge orders", "drop orders", "create mine", "purge dead_letters"),
            ):
                assert _ask(mallory, line).startswith(("forbidden", "not_subscribed")), line
            for line in (f"sub orders as={name}", f"unsub orders as={name}", f"unsub orders as={name} end"):
                # The client has methods for these commands. A hostile client writes the lines itself.
                with pytest.raises(Refusal, match=r"forbidden|not_subscribed|bad_name"):
                    mallory._link.ask(f"{line}\n".encode())
        with pytest.raises(Refusal, match="forbidden"):
            mallory.subscribe("dead_letters", from_="earliest")

        assert _ask(mallory, "hello alice token=m-secret").startswith("unauthenticated")
        mine = mallory.subscribe("orders", as_="mallory")
        alice.publish("orders", Event(id="o-3", msg="a payload"))
        assert [one.id for one in mine.take(WITHIN_S)] == ["o-3"]
        assert [one.id for one in billing.take(WITHIN_S)] == ["o-3"]
        seen: list[str] = []
        while len(seen) < 3 and (some := anonymous.take(WITHIN_S)):
            seen += [one.id for one in some]
        assert seen == ["o-1", "o-2", "o-3"]
        (dead,) = json.loads(alice.command("dead").removeprefix("+OK dead "))
        assert dead["errors"][0]["trace"] == "a secret trace"
        assert len(alice.read("dead_letters", 0).events) == 1


def _ask(client: SyncClient, line: str) -> str:
    try:
        return client._link.ask(f"{line}\n".encode()).decode()
    except Refusal as refusal:
        return str(refusal)
