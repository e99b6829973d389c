"""The ingester publishes its statistics to a broker, and stores tweets without one, too."""

from pathlib import Path

import anyio
import pytest
from structlog.testing import capture_logs

from sse_ingest.logger_stats import TOPIC, publish_statistics
from tests.support.certificates import files_of
from tests.support.processes import BrokerProcess
from tests.support.users import entry
from tweetwire.runtime.login import Login
from tweetwire.runtime.tls import TlsFiles

pytestmark = [pytest.mark.stack, pytest.mark.anyio]


async def test_a_broker_that_refuses_is_logged_once_with_the_flags_to_see(tmp_path: Path) -> None:
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
    (told,) = [one["reason"] for one in logs if one["event"] == "broker unreachable, statistics paused"]
    assert told == "unauthenticated no such name and token; see --broker-user and --broker-token"


async def test_figures_go_over_tls_and_a_broker_with_only_tls_is_logged_once(
    tmp_path: Path, certificates: Path
) -> None:
    files = TlsFiles(*(certificates / name for name in ("ca.pem", "client.pem", "client.key")))
    flags = files_of(certificates, "server")
    with BrokerProcess(tmp_path / "broker", *flags, "--topic", TOPIC) as broker, capture_logs() as logs:
        login = Login(broker.address, tls=files)
        async with anyio.create_task_group() as tasks, login.client("test") as client:
            tasks.start_soon(publish_statistics, login, 0.05, dict)
            tasks.start_soon(publish_statistics, Login(broker.address), 0.05, dict)
            with anyio.fail_after(60):
                while not logs or (await client.read(TOPIC, 0)).next < 2:
                    await anyio.sleep(0.02)
            tasks.cancel_scope.cancel()
    (told,) = [one["reason"] for one in logs if one["event"] == "broker unreachable, statistics paused"]
    assert told.endswith("speaks TLS only, and this client does not; see --broker-tls")
