"""The handler library with a real broker: the result for an event if its function returns, raises or takes too long."""

import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from subscriber import Delivery, Subscriber
from subscriber.handlers.app import ServiceSettings
from subscriber.handlers.history import HistorySettings, show_history
from tests.support.certificates import files_of
from tests.support.processes import BrokerProcess
from tests.support.users import entry
from tests.support.waiting import until_async
from tweetwire import Client, Event, StoredEvent
from tweetwire.protocol.errors import StartError
from tweetwire.runtime.flags import read_flags
from tweetwire.runtime.tls import TlsFiles

pytestmark = pytest.mark.anyio

WITHIN_S = 30.0


class Order(msgspec.Struct):
    item: str
    count: int


@dataclass
class OrderData:
    item: str
    count: int


@pytest.fixture
def app(broker: BrokerProcess) -> Subscriber:
    return Subscriber(broker.address, name="shop")


@asynccontextmanager
async def serving(*apps: Subscriber, drain_s: float = 10.0) -> AsyncIterator[None]:
    """Serve the applications while the block runs, and let them end in order."""
    stop = anyio.Event()
    with anyio.fail_after(WITHIN_S):
        async with anyio.create_task_group() as tasks:
            for one in apps:
                tasks.start_soon(partial(one.serve, stop, drain_s=drain_s))
            yield
            stop.set()


async def publish(broker: BrokerProcess, *messages: Any, topic: str = "orders", **members: Any) -> None:
    async with Client(broker.address) as client:
        for number, message in enumerate(messages):
            await client.publish(topic, Event(id=f"o-{number}", msg=message, **members))


async def standing(broker: BrokerProcess, name: str = "stock", topic: str = "orders") -> dict[str, Any]:
    async with Client(broker.address) as client:
        stats = await client.stats()
    found: dict[str, Any] = stats["topics"].get(topic, {}).get("subscriptions", {}).get(name, {})
    return found


async def until_settled(broker: BrokerProcess, count: int) -> None:
    while (await standing(broker)).get("settled", 0) < count:
        await anyio.sleep(0.05)


async def dead_letters(broker: BrokerProcess, count: int) -> list[dict[str, Any]]:
    async with Client(broker.address) as client:
        while True:
            letters = (await client.read("dead_letters", 0)).events
            if len(letters) >= count:
                return [letter.decode() for letter in letters]
            await anyio.sleep(0.05)


async def test_an_event_is_acked_when_its_function_returns(app: Subscriber, broker: BrokerProcess) -> None:
    seen: list[StoredEvent] = []

    @app.on("orders", as_="stock", from_="earliest")
    async def take(event: StoredEvent) -> None:
        seen.append(event)

    await publish(broker, 1, 2, 3)
    async with serving(app):
        await until_settled(broker, 3)
    assert [event.id for event in seen] == ["o-0", "o-1", "o-2"]
    assert (await standing(broker))["pending"] == 0


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Order, Order("tea", 2)),
        (OrderData, OrderData("tea", 2)),
        (dict[str, Any], {"item": "tea", "count": 2}),
    ],
)
async def test_msg_is_decoded_as_the_annotation_says(
    app: Subscriber, broker: BrokerProcess, wanted: type, expected: object
) -> None:
    seen: list[object] = []

    async def take(order):  # type: ignore[no-untyped-def]
        seen.append(order)

    take.__annotations__["order"] = wanted
    app.on("orders", as_="stock", from_="earliest")(take)
    await publish(broker, {"item": "tea", "count": 2})
    async with serving(app):
        await until_settled(broker, 1)
    assert seen == [expected]


async def test_a_failure_is_tried_again_and_then_a_dead_letter_with_its_reasons(
    app: Subscriber, broker: BrokerProcess
) -> None:
    attempts: list[int] = []

    @app.on("orders", as_="stock", from_="earliest", tries=3)
    async def take(event: StoredEvent) -> None:
        attempts.append(event.attempt)
        raise ValueError(f'no "{event.id}" left\nin stock ✗')

    await publish(broker, 1)
    async with serving(app):
        (letter,) = await dead_letters(broker, 1)
    assert attempts == [1, 2, 3]
    assert letter["subscription"] == "stock"
    assert len(letter["errors"]) == 3
    error = letter["errors"][-1]
    assert (error["cause"], error["code"], error["message"]) == ("nack", "ValueError", 'no "o-0" left\nin stock ✗')
    assert "in take" in error["trace"]


async def test_a_function_that_takes_too_long_is_cancelled_and_has_failed(
    app: Subscriber, broker: BrokerProcess
) -> None:
    was_cancelled = anyio.Event()

    @app.on("orders", as_="stock", from_="earliest", timeout="50ms", tries=1)
    async def take(event: StoredEvent) -> None:
        try:
            await anyio.sleep(60)
        except anyio.get_cancelled_exc_class():
            was_cancelled.set()
            raise

    await publish(broker, 1)
    async with serving(app):
        (letter,) = await dead_letters(broker, 1)
    assert was_cancelled.is_set()
    assert letter["errors"][0]["code"] == "TimedOut"
    assert letter["errors"][0]["message"] == "took longer than 0.05 s"


async def test_an_event_that_does_not_fit_fails_and_the_next_continues(app: Subscriber, broker: BrokerProcess) -> None:
    seen: list[Order] = []

    @app.on("orders", as_="stock", from_="earliest", tries=1)
    async def take(order: Order) -> None:
        seen.append(order)

    await publish(broker, {"item": "tea"}, {"item": "tea", "count": 2})
    async with serving(app):
        await until_settled(broker, 1)
        (letter,) = await dead_letters(broker, 1)
    assert seen == [Order("tea", 2)]
    assert letter["errors"][0]["code"] == "ValidationError"


async def test_plain_functions_run_in_threads_at_the_same_time(app: Subscriber, broker: BrokerProcess) -> None:
    together = threading.Barrier(4, timeout=WITHIN_S)

    @app.on("orders", as_="stock", from_="earliest", concurrency=4)
    def take(order: dict[str, int]) -> None:
        together.wait()

    await publish(broker, *[{"n": n} for n in range(8)])
    async with serving(app):
        await until_settled(broker, 8)
    assert not together.broken


async def test_no_more_run_at_once_than_allowed(app: Subscriber, broker: BrokerProcess) -> None:
    running, most = 0, 0

    @app.on("orders", as_="stock", from_="earliest", concurrency=3)
    async def take(event: StoredEvent) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.sleep(0.005)
        running -= 1

    await publish(broker, *range(30))
    async with serving(app):
        await until_settled(broker, 30)
    assert most == 3


async def test_two_handlers_with_one_name_share_the_events_without_duplicates(broker: BrokerProcess) -> None:
    seen: list[list[int]] = [[], []]
    apps = []
    for number in range(2):
        apps.append(app := Subscriber(broker.address, name=f"shop-{number}"))

        @app.on("orders", as_="stock", from_="earliest", prefetch=5)
        async def take(event: StoredEvent, number: int = number) -> None:
            await anyio.sleep(0.002)
            seen[number].append(event.offset)

    await publish(broker, *range(100))
    async with serving(*apps):
        await until_settled(broker, 100)
    assert sorted([*seen[0], *seen[1]]) == list(range(100))
    assert all(seen)


async def test_an_event_that_a_handler_publishes_is_a_child_of_the_event_it_handles(
    app: Subscriber, broker: BrokerProcess
) -> None:
    @app.on("orders", as_="stock", from_="earliest")
    async def take(event: StoredEvent) -> None:
        await app.publish("parcels", Event(id="p-1", msg=event.decode()))
        await app.publish("parcels", Event(id="p-2", msg=0, parent="own", headers={"traceparent": "own", "x": "y"}))

    await publish(broker, 7, headers={"traceparent": "00-abc-def-01"})
    async with serving(app):
        await until_settled(broker, 1)
    async with Client(broker.address) as client:
        first, second = (await client.read("parcels", 0)).events
    assert (first.parent, first.headers) == ("o-0", {"traceparent": "00-abc-def-01"})
    assert (second.parent, second.headers) == ("own", {"traceparent": "own", "x": "y"})


async def test_a_plain_function_publishes_from_its_thread(app: Subscriber, broker: BrokerProcess) -> None:
    @app.on("orders", as_="stock", from_="earliest")
    def take(event: StoredEvent) -> None:
        anyio.from_thread.run(app.publish, "parcels", Event(id="p", msg=1))

    await publish(broker, 7)
    async with serving(app):
        await until_settled(broker, 1)
    async with Client(broker.address) as client:
        (child,) = (await client.read("parcels", 0)).events
    assert child.parent == "o-0"


async def test_a_stop_lets_handlers_end_and_begins_no_more(app: Subscriber, broker: BrokerProcess) -> None:
    begun: list[int] = []
    may_end = anyio.Event()

    @app.on("orders", as_="stock", from_="earliest", concurrency=2)
    async def take(event: StoredEvent) -> None:
        begun.append(event.offset)
        await may_end.wait()

    await publish(broker, *range(10))
    async with anyio.create_task_group() as tasks, serving(app):
        await until_async(lambda: len(begun) == 2)
        tasks.start_soon(_set_after, may_end, 0.2)
    assert begun == [0, 1]
    found = await standing(broker)
    assert (found["settled"], found["pending"] + found["in_flight"]) == (2, 8)


async def _set_after(event: anyio.Event, seconds: float) -> None:
    await anyio.sleep(seconds)
    event.set()


async def test_a_handler_that_does_not_end_in_the_drain_time_is_given_up(
    app: Subscriber, broker: BrokerProcess
) -> None:
    has_begun = anyio.Event()

    @app.on("orders", as_="stock", from_="earliest")
    async def take(event: StoredEvent) -> None:
        has_begun.set()
        await anyio.sleep_forever()

    await publish(broker, 1)
    async with serving(app, drain_s=0.1):
        await has_begun.wait()
    assert (await standing(broker))["settled"] == 0


async def test_events_continue_when_the_broker_was_killed(app: Subscriber, broker: BrokerProcess) -> None:
    seen: set[int] = set()

    @app.on("orders", as_="stock", from_="earliest", prefetch=10)
    async def take(event: StoredEvent) -> None:
        await anyio.sleep(0.002)
        seen.add(event.offset)

    await publish(broker, *range(200))
    async with serving(app):
        await until_async(lambda: len(seen) > 50)
        broker.kill()
        await anyio.to_thread.run_sync(broker.start)
        await until_async(lambda: len(seen) == 200)
        while (await standing(broker)).get("pending", 1) + (await standing(broker)).get("in_flight", 1):
            await anyio.sleep(0.05)


async def test_hooks_see_each_try_and_a_hook_before_it_can_make_it_fail(app: Subscriber, broker: BrokerProcess) -> None:
    told: list[tuple[str, str]] = []

    @app.before
    def check(delivery: Delivery) -> None:
        if delivery.event.decode() == 0:
            raise PermissionError("not today")

    @app.after
    async def tell(delivery: Delivery) -> None:
        told.append((delivery.event.id, type(delivery.error).__name__))
        raise RuntimeError("a broken hook changes nothing")

    @app.on("orders", as_="stock", from_="earliest", tries=1, concurrency=1)
    async def take(event: StoredEvent) -> None:
        assert event.decode() == 1

    await publish(broker, 0, 1)
    async with serving(app):
        await until_settled(broker, 1)
        (letter,) = await dead_letters(broker, 1)
    assert told == [("o-0", "PermissionError"), ("o-1", "NoneType")]
    assert letter["errors"][0]["message"] == "not today"


@pytest.mark.parametrize(
    "function", [lambda: None, lambda a, b: None, lambda *, a: None], ids=["none", "two", "keyword"]
)
def test_a_function_that_cannot_take_an_event_is_refused_at_once(function: Callable[..., None]) -> None:
    with pytest.raises(TypeError, match="must take exactly one argument"):
        Subscriber().on("orders", as_="stock")(function)


SERVICE = """
    import sys
    from subscriber import Subscriber
    app = Subscriber()
    @app.on("orders", as_="stock", from_="earliest")
    def take(order: dict[str, int]) -> None:
        print(order["n"], flush=True)
    if __name__ == "__main__":
        sys.exit(app.run())
"""


def test_a_service_of_ten_lines_is_a_program(broker: BrokerProcess) -> None:
    command = [sys.executable, "-c", textwrap.dedent(SERVICE), "--broker", broker.address]
    anyio.run(publish, broker, {"n": 41})
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "41\n"
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 0
    assert f"service ready on {broker.address}" in log


async def test_with_a_users_token_every_handler_is_that_user(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    users.write_text(entry("shop", "s-secret"))
    taken: list[str] = []
    with BrokerProcess(tmp_path / "broker", "--users", users) as broker:
        app = Subscriber(broker.address, name="shop", token="s-secret")
        app.on("orders", as_="stock", from_="earliest")(lambda event: taken.append(event.id))
        app.on("orders", as_="bills", from_="earliest")(lambda event: taken.append(event.id))
        async with serving(app), Client(broker.address, name="shop", token="s-secret") as client:
            await client.publish("orders", Event(id="1", msg=1))
            while len(taken) < 2:
                await anyio.sleep(0.01)
    assert taken == ["1", "1"]


async def test_a_service_speaks_tls_as_its_code_or_its_flags_say(tmp_path: Path, certificates: Path) -> None:
    taken: list[str] = []
    with BrokerProcess(tmp_path / "broker", *files_of(certificates, "server")) as broker:
        context = TlsFiles(*(certificates / name for name in ("ca.pem", "client.pem", "client.key"))).context()
        told = Subscriber(broker.address, name="told", tls=context)
        flagged = Subscriber(name="flagged")
        flags = ["--broker", broker.address, *files_of(certificates, "client", "--broker-")]
        settings, stop = read_flags(ServiceSettings, flags), anyio.Event()
        for app in (told, flagged):
            app.on("orders", as_=app.name, from_="earliest")(lambda event: taken.append(event.id))
        async with anyio.create_task_group() as tasks, Client(broker.address, tls=context) as client:
            tasks.start_soon(flagged._serve_program, settings, stop)
            async with serving(told):
                await client.publish("orders", Event(id="1", msg=1))
                await until_async(lambda: len(taken) == 2)
            stop.set()
    assert taken == ["1", "1"]


async def test_a_service_with_a_wrong_token_ends_with_the_remedy(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    users.write_text(entry("shop", "s-secret"))
    with BrokerProcess(tmp_path / "broker", "--users", users) as broker:
        app = Subscriber(broker.address, name="shop", token="s-wrong")
        app.on("orders", as_="stock")(lambda event: None)
        with pytest.raises(BaseExceptionGroup) as refused:
            await app.serve(anyio.Event())
    error: BaseException = refused.value
    while isinstance(error, BaseExceptionGroup):
        (error,) = error.exceptions
    assert isinstance(error, StartError)
    assert "of orders: unauthenticated no such name and token; see --broker-user" in str(error)


def test_a_service_without_a_broker_is_reported_in_one_sentence() -> None:
    command = [sys.executable, "-c", textwrap.dedent(SERVICE), "--broker", "127.0.0.1:1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 2
    assert "no broker answers at 127.0.0.1:1" in done.stderr.splitlines()[-1]


async def test_a_failure_hook_sees_only_failed_tries(app: Subscriber, broker: BrokerProcess) -> None:
    told: list[str] = []

    @app.failure
    def tell(delivery: Delivery) -> None:
        told.append(f"{delivery.event.id} {delivery.error!r}")

    @app.on("orders", as_="stock", from_="earliest", tries=1, concurrency=1)
    async def take(event: StoredEvent) -> None:
        if event.decode() == 0:
            raise KeyError("tea")

    await publish(broker, 0, 1)
    async with serving(app):
        await until_settled(broker, 1)
        await dead_letters(broker, 1)
    assert told == ["o-0 KeyError('tea')"]


async def test_each_try_and_its_processing_time_is_kept_and_can_be_shown(
    app: Subscriber, broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    @app.on("orders", as_="stock", from_="earliest", tries=3, concurrency=1)
    async def take(event: StoredEvent) -> None:
        if event.decode() == 0 and event.attempt < 3:
            raise KeyError("tea")
        await anyio.sleep(0.002)

    await publish(broker, 0, 1)
    async with serving(app):
        await until_settled(broker, 2)
    settings = HistorySettings(broker=broker.address, report="json")
    await show_history(settings, anyio.Event())
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    shown = {event["id"]: event for event in map(msgspec.json.decode, lines)}
    outcomes = [(one["outcome"], one.get("error"), one["attempt"]) for one in shown["o-0"]["tries"]]
    assert outcomes == [("failed", "KeyError", 1), ("failed", "KeyError", 2), ("handled", None, 3)]
    (only,) = shown["o-1"]["tries"]
    assert (only["subscription"], only["topic"], only["outcome"]) == ("stock", "orders", "handled")
    assert only["seconds"] >= 0.002

    command = [sys.executable, "-m", "subscriber", "history", "--broker", broker.address, "--failed"]
    done = await anyio.run_process(command)
    text = done.stdout.decode()
    assert "o-0 @0" in text
    assert "o-1" not in text
    assert "KeyError 2" in text


async def test_without_a_history_topic_the_command_reports_that_there_is_none(broker: BrokerProcess) -> None:
    app = Subscriber(broker.address, history=None)

    @app.on("orders", as_="stock", from_="earliest")
    async def take(event: StoredEvent) -> None: ...

    await publish(broker, 0)
    async with serving(app):
        await until_settled(broker, 1)
    with pytest.raises(StartError, match="no history to read from handler_history"):
        await show_history(HistorySettings(broker=broker.address), anyio.Event())


async def test_a_try_is_a_span_of_the_events_trace_and_published_events_are_its_children(
    app: Subscriber, broker: BrokerProcess, spans: InMemorySpanExporter
) -> None:
    trace_id, parent_id = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"

    @app.on("orders", as_="stock", from_="earliest", tries=1, concurrency=1)
    def take(order: int) -> None:
        if order == 0:
            raise KeyError("tea")
        anyio.from_thread.run(app.publish, "parcels", Event(id="p", msg=1))

    await publish(broker, 0, 1, headers={"traceparent": f"00-{trace_id}-{parent_id}-01"})
    async with serving(app):
        await until_settled(broker, 1)
        await dead_letters(broker, 1)
    failed, handled = sorted(spans.get_finished_spans(), key=lambda span: int(attribute(span, "tweetwire.offset")))
    for span in (failed, handled):
        assert span.name == "process orders"
        assert format(span.context.trace_id, "032x") == trace_id
        assert span.parent is not None
        assert format(span.parent.span_id, "016x") == parent_id
        assert attribute(span, "messaging.consumer.group.name") == "stock"
    assert not failed.status.is_ok
    assert [event.name for event in failed.events] == ["exception"]
    assert handled.status.status_code is not failed.status.status_code
    async with Client(broker.address) as client:
        (child,) = (await client.read("parcels", 0)).events
    assert child.headers == {"traceparent": f"00-{trace_id}-{format(handled.context.span_id, '016x')}-01"}


def attribute(span: ReadableSpan, name: str) -> Any:
    assert span.attributes is not None
    return span.attributes[name]


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    """The exported spans, from a separate provider, since OpenTelemetry allows only one global provider in a process."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace, "get_tracer", provider.get_tracer)
        yield exporter
    provider.shutdown()
