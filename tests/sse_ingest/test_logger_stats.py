"""The ingester's figures need a broker; its work does not."""

from pathlib import Path

import anyio
import pytest
from structlog.testing import capture_logs

from broker.login import Login
from sse_ingest.logger_stats import publish_statistics
from tests.processes import BrokerProcess
from tests.users import entry

pytestmark = [pytest.mark.stack, pytest.mark.anyio]


async def test_a_broker_that_refuses_is_told_once_with_the_flags_to_see(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    users.write_text(entry("ingest", "i-secret"))
    asked: list[int] = []

    def figures() -> dict[str, int]:
        asked.append(1)
        return {}

    with BrokerProcess(tmp_path / "broker", "--users", users) as broker, capture_logs() as logs:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(publish_statistics, Login(broker.address, "ingest", "i-wrong"), 0.05, figures)
            with anyio.fail_after(60):
                while len(asked) < 3:
                    await anyio.sleep(0.02)
            tasks.cancel_scope.cancel()
    (told,) = [one["reason"] for one in logs if one["event"] == "statistics wait for the broker"]
    assert told == "unauthenticated no such name and token; see --broker-user and --broker-token"
