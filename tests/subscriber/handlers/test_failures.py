"""Handlers that raise or end their process: only their own event fails, and only a stop ends the service."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import anyio
import msgspec
import pytest

from subscriber import Delivery, Subscriber
from subscriber.handlers.failures import error_text, reason_of
from tests.subscriber.handlers.test_app import WITHIN_S, dead_letters, publish, serving, standing, until_settled
from tests.support.processes import BrokerProcess
from tweetwire import Client, Event, StoredEvent
from tweetwire.protocol.errors import StartError
from tweetwire.protocol.reasons import REASON_BYTES_MAX
from tweetwire.protocol.requests import nack_line

pytestmark = pytest.mark.anyio


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Exiting(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class Odd(str):
    __slots__ = ()

    def __getitem__(self, key: object) -> str:
        raise RuntimeError("no part of a text")


class Oddly(Exception):
    def __str__(self) -> str:
        return Odd("an odd text")


class Nameless(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise RuntimeError("no name")


class Anonymous(Exception, metaclass=Nameless):
    pass


TEXTS = [
    (ValueError("caf\udcff"), "caf\\udcff"),
    (Unprintable(), "Unprintable, whose text cannot be read"),
    (Exiting(), "Exiting, whose text cannot be read"),
    (Oddly(), "an odd text"),
    (Anonymous("a"), "a"),
    (ValueError(), "ValueError"),
    (ValueError("ž" * 5_000_000), "ž" * 100),
    (ValueError("\x00" * 5_000_000), "\x00" * 100),
    (ValueError('"\\' * 1_000_000), '"\\' * 50),
]


@pytest.mark.parametrize(("error", "text"), TEXTS, ids=range(len(TEXTS)))
def test_the_reason_of_a_failure_never_raises_and_fits_into_a_line(error: Exception, text: str) -> None:
    try:
        raise error
    except Exception as raised:  # noqa: BLE001 — the cases raise any exception
        reason = reason_of(raised)
    line = nack_line("t", 1, *reason)
    told = msgspec.json.decode(line.removeprefix(b"nack t @1 "))
    assert len(msgspec.json.encode(told)) <= REASON_BYTES_MAX
    assert told["message"][: len(text)] == text
    assert "in test_the_reason_of_a_failure" in told["trace"]
    assert error_text(error)


@pytest.mark.parametrize("error", [error for error, _ in TEXTS[:5]], ids=range(5))
async def test_an_error_with_an_odd_text_fails_its_event_and_the_service_continues(
    broker: BrokerProcess, error: Exception
) -> None:
    app, seen = Subscriber(broker.address), []

    @app.on("orders", as_="stock", from_="earliest", tries=1, concurrency=1)
    async def take(event: StoredEvent) -> None:
        if event.decode() == 0:
            raise error
        seen.append(event.id)

    await publish(broker, 0, 1, 2)
    async with serving(app):
        await until_settled(broker, 2)
        (letter,) = await dead_letters(broker, 1)
    assert seen == ["o-1", "o-2"]
    assert letter["errors"][0]["cause"] == "nack"
    assert letter["errors"][0]["message"]


BASE_EXCEPTIONS = [
    SystemExit(0),
    SystemExit("stop"),
    KeyboardInterrupt(),
    GeneratorExit(),
    ExceptionGroup("two", [ValueError("a"), KeyError("b")]),
    BaseExceptionGroup("two", [SystemExit(0), ValueError("b")]),
    asyncio.CancelledError(),
]
NAMES = [type(error).__name__ for error in BASE_EXCEPTIONS]


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
@pytest.mark.parametrize("error", BASE_EXCEPTIONS, ids=NAMES)
async def test_any_error_of_a_handler_fails_its_event_by_its_name(
    broker: BrokerProcess, error: BaseException, is_async: bool
) -> None:
    app, seen = Subscriber(broker.address), []

    def take(event: StoredEvent) -> None:
        if event.decode() == 0:
            raise error
        seen.append(event.id)

    async def take_async(event: StoredEvent) -> None:
        take(event)

    app.on("orders", as_="stock", from_="earliest", tries=1)(take_async if is_async else take)
    await publish(broker, 0, 1, 2)
    async with serving(app):
        await until_settled(broker, 2)
        (letter,) = await dead_letters(broker, 1)
    assert sorted(seen) == ["o-1", "o-2"]
    assert [(one["cause"], one["code"]) for one in letter["errors"]] == [("nack", type(error).__name__)]


@pytest.mark.parametrize("error", BASE_EXCEPTIONS, ids=NAMES)
@pytest.mark.parametrize("place", ["before", "failure", "after"])
async def test_a_service_continues_after_any_error_of_a_hook(
    broker: BrokerProcess, error: BaseException, place: str
) -> None:
    app, seen = Subscriber(broker.address), []

    def hook(delivery: Delivery) -> None:
        if delivery.event.decode() == 0:
            raise error

    {"before": app.before, "failure": app.failure, "after": app.after}[place](hook)

    @app.on("orders", as_="stock", from_="earliest", tries=1)
    async def take(event: StoredEvent) -> None:
        seen.append(event.id)
        if place == "failure" and event.decode() == 0:
            raise KeyError

    await publish(broker, 0, 1)
    async with serving(app):
        await until_settled(broker, 2 if place == "after" else 1)
        letters = await dead_letters(broker, 0 if place == "after" else 1)
    assert "o-1" in seen
    names = {"before": [type(error).__name__], "failure": ["KeyError"], "after": []}[place]
    assert [letter["errors"][0]["code"] for letter in letters] == names


async def test_cancelling_the_service_ends_it_although_a_handler_catches_everything(broker: BrokerProcess) -> None:
    app, begun = Subscriber(broker.address), anyio.Event()

    @app.on("orders", as_="stock", from_="earliest", tries=1)
    async def take(event: StoredEvent) -> None:
        begun.set()
        try:
            await anyio.sleep_forever()
        except BaseException as error:
            raise ValueError("caught") from error

    await publish(broker, 1)
    with anyio.fail_after(WITHIN_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(app.serve, anyio.Event())
            await begun.wait()
            tasks.cancel_scope.cancel()
    with anyio.fail_after(WITHIN_S):
        found = await standing(broker)
        while not (found["pending"] or found["dead"]):
            found = await standing(broker)
    assert (found["pending"], found["settled"], found["dead"]) == (1, 0, 0)


async def test_a_service_whose_subscription_another_client_ends_reports_that(broker: BrokerProcess) -> None:
    app = Subscriber(broker.address)
    app.on("orders", as_="stock", from_="earliest")(lambda event: None)
    await publish(broker, 1)
    with pytest.raises(BaseExceptionGroup) as ended, anyio.fail_after(WITHIN_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(app.serve, anyio.Event())
            await until_settled(broker, 1)
            async with Client(broker.address, name="another") as client:
                subscription = await client.subscribe("orders", as_="stock")
                await client.unsubscribe(subscription, end=True)
            await anyio.sleep_forever()
    error: BaseException = ended.value
    while isinstance(error, BaseExceptionGroup):
        (error,) = error.exceptions
    assert isinstance(error, StartError)
    assert "stock" in str(error)


async def test_a_service_without_handlers_runs_until_its_stop(broker: BrokerProcess) -> None:
    app, stop = Subscriber(broker.address), anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(app.serve, stop)
        with anyio.fail_after(WITHIN_S):
            while True:
                with contextlib.suppress(RuntimeError):
                    await app.publish("orders", Event(id="1", msg=1))
                    break
                await anyio.sleep(0.01)
        stop.set()


@pytest.mark.parametrize("event", [{"id": "1", "msg": 1}, "hello", None])
async def test_publish_names_the_type_that_it_accepts(event: Any) -> None:
    with pytest.raises(TypeError, match=r"publish takes an Event, not a .*: Event\(id="):
        await Subscriber().publish("orders", event)


SERVICE = """
    import os, sys, time
    from tweetwire import StoredEvent
    from subscriber import Subscriber
    app = Subscriber()
    @app.on("orders", as_="stock", from_="earliest", prefetch=100, concurrency={concurrency}, tries=2)
    {kind} take(event: StoredEvent) -> None:
        if event.id == "o-25":
            {end}
        os.write(1, f"{{event.id}} {{event.attempt}}\\n".encode())
    sys.exit(app.run())
"""
OTHERS = sorted(f"o-{number}" for number in range(51) if number != 25)


def service(broker: BrokerProcess, kind: str, end: str, concurrency: int = 1) -> "subprocess.Popen[str]":
    code = textwrap.dedent(SERVICE.format(kind=kind, end=end, concurrency=concurrency))
    command = [sys.executable, "-c", code, "--broker", broker.address]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def run_until_settled(broker: BrokerProcess, start: Callable[[], "subprocess.Popen[str]"]) -> tuple[int, list[str]]:
    """Restart a service until 50 events are settled. Return how often it died, and its output."""
    printed: list[str] = []
    deaths = 0
    while True:
        with start() as process:
            while process.poll() is None and anyio.run(standing, broker).get("settled", 0) < len(OTHERS):
                pass
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            printed += process.communicate(timeout=WITHIN_S)[0].splitlines()
        if process.returncode == 0:
            return deaths, printed
        deaths += 1
        assert deaths < 9


@pytest.mark.parametrize("concurrency", [1, 10])
@pytest.mark.parametrize("kind", ["async def", "def"])
def test_a_handler_that_ends_the_process_fails_only_its_own_event(
    broker: BrokerProcess, kind: str, concurrency: int
) -> None:
    anyio.run(publish, broker, *range(51))
    deaths, printed = run_until_settled(broker, lambda: service(broker, kind, "os._exit(1)", concurrency))
    assert deaths == 1 + 2
    assert sorted({line.split()[0] for line in printed}) == OTHERS
    (letter,) = anyio.run(dead_letters, broker, 1)
    assert (letter["event"]["id"], [error["cause"] for error in letter["errors"]]) == ("o-25", ["disconnect"] * 2)
    assert {line.split()[1] for line in printed} <= ({"1"} if concurrency == 1 else {"1", "2"})


def test_a_killed_service_fails_only_the_events_that_it_was_handling(broker: BrokerProcess) -> None:
    anyio.run(publish, broker, *range(51))
    for _ in range(3):
        with service(broker, "async def", "print('handling', flush=True); time.sleep(60)") as process:
            assert process.stdout is not None
            while process.stdout.readline() != "handling\n":
                pass
            os.kill(process.pid, signal.SIGKILL)
    (letter,) = anyio.run(dead_letters, broker, 1)
    assert letter["event"]["id"] == "o-25"
    with service(broker, "async def", "pass") as process:
        anyio.run(until_settled, broker, len(OTHERS))
        process.send_signal(signal.SIGTERM)
        printed = process.communicate(timeout=WITHIN_S)[0].splitlines()
    assert process.returncode == 0
    assert {line.split()[1] for line in printed} <= {"1"}


async def test_a_stop_ends_with_status_0_and_an_exit_in_a_handler_is_not_a_stop(broker: BrokerProcess) -> None:
    await publish(broker, *range(26))
    process = service(broker, "async def", "print('exiting', flush=True); sys.exit(0)")
    with process:
        assert process.stdout is not None
        while await anyio.to_thread.run_sync(process.stdout.readline) != "exiting\n":
            pass
        await until_settled(broker, 25)
        await dead_letters(broker, 1)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        await anyio.to_thread.run_sync(process.communicate)
    assert process.returncode == 0
