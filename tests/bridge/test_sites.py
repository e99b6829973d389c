"""Two sites share one centre: each event is once at each broker and once at the centre."""

from pathlib import Path

import pytest

from tests.bridge.programs import Bridge, publish, verified, wait_for_carried, wait_for_entries
from tests.support.processes import BrokerProcess
from tests.support.redis_servers import RedisServer
from tweetwire import Event

EVENTS = 10_000


@pytest.mark.stack
@pytest.mark.timeout(280)
def test_events_of_two_sites_are_once_at_each_of_them(
    tmp_path: Path, broker: BrokerProcess, server: RedisServer
) -> None:
    outward, inward = f"orders -> {server.url('orders')}", f"{server.url('orders')} -> orders"
    with BrokerProcess(tmp_path / "second") as second:
        sites = {"a": broker, "b": second}
        bridges = [
            Bridge(tmp_path / f"{name}.log", site.address, "--out", outward, "--in", inward)
            for name, site in sites.items()
        ]
        with bridges[0], bridges[1]:
            for name, site in sites.items():
                publish(site.address, "orders", [Event(id=f"{name}{number}", msg=number) for number in range(EVENTS)])
            expected = sorted(f"{name}{number}" for name in sites for number in range(EVENTS))
            for name, site in sites.items():
                found = [event.id for event in wait_for_carried(site.address, "orders", 2 * EVENTS, 200)]
                assert sorted(found) == expected
                for of in sites:
                    assert [id_ for id_ in found if id_[0] == of] == [f"{of}{number}" for number in range(EVENTS)], name
            assert sorted(entry["ce_id"] for entry in wait_for_entries(server, "orders", 2 * EVENTS)) == expected
            for site in sites.values():
                assert f"{EVENTS} compared" in verified(site.address, outward)
                assert f"{EVENTS} compared" in verified(site.address, inward)
            for bridge in bridges:
                assert bridge.terminate() == 0
