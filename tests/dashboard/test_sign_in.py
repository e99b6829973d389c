"""Signing in while others try wrong tokens."""

import ssl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import httpx
import pytest
from argon2 import PasswordHasher

from dashboard.sessions import SESSIONS_MAX, SIGN_INS_MAX, Sessions, _Attempts
from tests.dashboard.programs import DashboardProcess
from tests.support.processes import BrokerProcess
from tests.support.waiting import until

pytestmark = pytest.mark.anyio

WRONG = 60
# A client of httpx makes such a context itself, which takes so long that the attempts would begin one after the other.
CONTEXT = ssl.create_default_context()


def sign_in(dashboard: DashboardProcess, user: str, token: str) -> httpx.Response:
    with httpx.Client(base_url=dashboard.url, timeout=60, verify=CONTEXT) as web:
        return web.post("/sign-in", data={"user": user, "token": token}, headers={"Origin": dashboard.url})


@pytest.mark.parametrize("name", ["boss", "somebody"])
def test_an_honest_sign_in_does_not_wait_for_wrong_ones(tmp_path: Path, name: str) -> None:
    """The correct sign-in succeeds before all wrong ones that were sent before it are answered."""
    users = tmp_path / "users.toml"
    users.write_text(f'[[users]]\nname = "boss"\ntoken = "{PasswordHasher().hash("right")}"\nsubscribe = ["*"]\n')
    with (
        BrokerProcess(tmp_path / "broker", "--users", str(users)) as broker,
        DashboardProcess(broker.address, tmp_path / "dashboard.log") as dashboard,
        ThreadPoolExecutor(WRONG) as threads,
    ):

        def wrong(number: int) -> str:
            return sign_in(dashboard, name, f"wrong{number}").headers["location"]

        attempts = [threads.submit(wrong, number) for number in range(WRONG)]
        # All attempts have been sent by then.
        until(lambda: sum(attempt.done() for attempt in attempts) >= 3)
        honest = sign_in(dashboard, "boss", "right")
        waiting = sum(not attempt.done() for attempt in attempts)
        assert "set-cookie" in honest.headers
        assert waiting > 0
        answers = {attempt.result() for attempt in attempts}
        assert answers <= {"/sign-in?refused=unknown", "/sign-in?refused=busy"}


async def test_where_many_wait_the_oldest_of_the_address_that_has_most_is_given_up() -> None:
    attempts = _Attempts()
    honest = attempts.begin("10.0.0.1")
    wrong = [attempts.begin("10.0.0.2") for _ in range(SIGN_INS_MAX - 1)]
    attempts.begin("10.0.0.3")
    assert [scope.cancel_called for scope in (honest, *wrong[:2])] == [False, True, False]
    attempts.end(wrong[1])
    attempts.begin("10.0.0.3")
    assert [scope.cancel_called for scope in (honest, *wrong[:3])] == [False, True, False, False]
    assert isinstance(honest, anyio.CancelScope)


async def test_where_there_are_many_sessions_the_oldest_of_the_same_user_ends_first() -> None:
    tasks: Any = SimpleNamespace(start_soon=lambda _: None)
    settings: Any = SimpleNamespace(broker="127.0.0.1:9", tls_context=lambda: None)
    sessions = Sessions(settings, tasks)

    def keep(user: str) -> str:
        link: Any = SimpleNamespace(user=user, close=lambda: None)
        return sessions._keep(link)

    honest, *greedy = [keep("honest"), *(keep("greedy") for _ in range(SESSIONS_MAX - 1))]
    keep("greedy")
    assert honest in sessions._links
    assert greedy[0] not in sessions._links
    keep("new")
    assert honest not in sessions._links
