"""Two sites and a real centre: each broker knows the other, and sees when its machine is gone."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bridge.programs import Bridge, publish, wait_for_entries
from tests.support.nats_servers import NatsServer
from tests.support.paths import ROOT
from tests.support.processes import BrokerProcess
from tests.support.redis_servers import RedisServer
from tests.support.waiting import until
from tweetwire import Event

pytestmark = [pytest.mark.stack, pytest.mark.timeout(240)]


def cluster(address: str, *flags: str) -> str:
    command = [sys.executable, "-m", "tweetwire", "cluster", "--broker", address, *flags]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, "COLUMNS": "240"}, capture_output=True, text=True, check=True, timeout=60
    ).stdout


def seen_at(address: str) -> dict[str, dict[str, Any]]:
    """Return the brokers that a broker sees at its only centre, by their address."""
    found = json.loads(cluster(address, "--json"))["centres"]
    return {one["address"]: one for centre in found for one in centre["brokers"]}


def states(address: str) -> dict[str, str]:
    return {name: one["state"] for name, one in seen_at(address).items()}


def check_two_sites(tmp_path: Path, first: BrokerProcess, centre: str) -> None:
    with BrokerProcess(tmp_path / "second") as second:
        sites = {"first": first, "second": second}
        bridges = {
            name: Bridge(
                tmp_path / f"{name}.log",
                site.address,
                *("--out", f"orders -> {centre}", "--advertise", f"{name}:8000", "--heartbeat", "100ms"),
            )
            for name, site in sites.items()
        }
        for name, site in sites.items():
            publish(site.address, "orders", [Event(id=f"{name}{number}", msg=number) for number in range(25)])
        with bridges["first"], bridges["second"]:
            both = {"first:8000": "present", "second:8000": "present"}
            for site in sites.values():
                until(lambda: states(site.address) == both, 60)  # noqa: B023 — `until` ends within the turn

            def carried() -> dict[str, Any]:
                topics = seen_at(first.address)["second:8000"]["topics"]
                return next(topic for topic in topics if topic["topic"] == "orders")

            until(lambda: list(carried()["lag"].values()) == [0], 60)
            assert (carried()["earliest"], carried()["next"]) == (0, 25)
            shown = cluster(first.address)
            assert "first:8000 (this broker)" in shown
            assert "second:8000" in shown
            # A machine that is lost says nothing.
            second.kill()
            bridges["second"].kill()
            until(lambda: states(first.address) == both | {"second:8000": "silent"}, 60)
            assert bridges["first"].terminate() == 0
            assert "Traceback" not in bridges["first"].log()


def test_two_sites_see_each_other_at_redis(tmp_path: Path, broker: BrokerProcess, server: RedisServer) -> None:
    check_two_sites(tmp_path, broker, server.url("orders"))
    wait_for_entries(server, "orders", 50)


def test_two_sites_see_each_other_at_jetstream(tmp_path: Path, broker: BrokerProcess) -> None:
    with NatsServer(tmp_path / "nats") as server:
        check_two_sites(tmp_path, broker, f"nats://127.0.0.1:{server.port}/ORDERS")


def test_a_broker_without_a_bridge_has_an_empty_cluster(broker: BrokerProcess) -> None:
    assert "no bridge of this broker" in cluster(broker.address)
    assert json.loads(cluster(broker.address, "--json"))["centres"] == []
