"""The broker as a process: its guarantees to clients across connections, restarts and kills."""

import socket
from typing import Self

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from tests.support.processes import BrokerProcess
from tweetwire import Client, Event, Refusal, SyncClient
from tweetwire.protocol.errors import StartError

pytestmark = pytest.mark.anyio


class Telnet:
    """A person with telnet, who types lines and reads the output."""

    def __init__(self, port: int) -> None:
        self._connection = socket.create_connection(("127.0.0.1", port), 10)
        self._lines = self._connection.makefile("rb")
        assert self.read().startswith("+OK tweetwire broker")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()
        self._connection.close()

    def type(self, *lines: str) -> str:
        """Send lines in one write and return the next line received."""
        self._connection.sendall("".join(f"{line}\r\n" for line in lines).encode())
        return self.read()

    def read(self) -> str:
        """Return the next line."""
        return self._lines.readline().decode().rstrip("\n")


def test_a_person_can_publish_subscribe_and_ack_by_hand(broker: BrokerProcess) -> None:
    with Telnet(broker.port) as telnet:
        low, high = 'pub tweets {"id":"1","msg":"low"}', 'pub tweets {"id":"2","priority":3,"msg":"high"}'
        assert telnet.type(low, high) == "+OK pub tweets 0-1 synced"
        assert telnet.type("sub tweets as=me from=earliest") == "+OK sub tweets as=me from=0 pending=2 prefetch=1"
        assert '"id":"2","priority":3,"msg":"high"}' in telnet.read()
        assert telnet.type("ack tweets 2") == "+OK ack tweets 1"
        assert '"id":"1","priority":0,"msg":"low"}' in telnet.read()
        assert telnet.type("ACK tweets @0") == "+OK ack tweets 1"
        assert telnet.type("quit") == "+OK bye"
        assert telnet.read() == ""


def test_replies_keep_the_order_of_the_commands_also_while_some_wait_for_the_disk(broker: BrokerProcess) -> None:
    with Telnet(broker.port) as telnet:
        first = telnet.type(
            'pub a {"id":"1","msg":1}', "ping", 'pub b {"id":"1","msg":1}', "nonsense", "ack a 1", "ping"
        )
        rest = [telnet.read() for _ in range(5)]
        assert [line.split(" ")[:3] for line in [first, *rest]] == [
            ["+OK", "pub", "a"],
            ["+PONG"],
            ["+OK", "pub", "b"],
            ["-ERR", "unknown_command", "nonsense;"],
            ["-ERR", "not_subscribed", "this"],
            ["+PONG"],
        ]


def test_an_ack_of_a_future_offset_is_refused_and_the_connection_lives_on(broker: BrokerProcess) -> None:
    with Telnet(broker.port) as telnet:
        telnet.type("sub tweets as=me create")
        assert telnet.type("ack tweets 1").startswith("-ERR stale")
        assert telnet.type("ping") == "+PONG"


async def test_confirmed_events_are_there_after_a_kill(broker: BrokerProcess) -> None:
    with SyncClient(broker.address) as client:
        client.publish_many("tweets", (Event(id=str(n), msg=n) for n in range(5000)))
    broker.kill()
    broker.start()
    with SyncClient(broker.address) as client:
        lines, after = client.read_lines("tweets", 0)
        assert after == 5000
        assert [line.count(b'"id":"%d",' % n) for n, line in enumerate(lines)] == [1] * 5000


async def test_a_durable_subscription_continues_where_it_was_after_a_kill(broker: BrokerProcess) -> None:
    async with Client(broker.address, name="reader") as client:
        async with client.publisher("tweets") as publisher:
            await publisher.publish_many(Event(id=str(n), msg=n, priority=n % 3) for n in range(3000))
        subscription = await client.subscribe("tweets", as_="inventory", from_="earliest", prefetch=100)
        acked: set[int] = set()
        async for batch in subscription:
            await subscription.ack(batch)
            acked |= {event.offset for event in batch}
            if len(acked) > 1000:
                break
        await client.ping()
        broker.kill()
        broker.start()
        again: set[int] = set()
        async for batch in subscription:
            await subscription.ack(batch)
            again |= {event.offset for event in batch}
            if len(acked | again) == 3000:
                break
        assert not acked & again


async def test_a_disconnect_gives_events_to_another_reader_with_the_try_counted(broker: BrokerProcess) -> None:
    async with Client(broker.address) as second:
        await second.publish("tweets", Event(id="1", msg="x"))
        async with await anyio.connect_tcp("127.0.0.1", broker.port) as first:
            lines = BufferedByteReceiveStream(first)
            await first.send(b"sub tweets as=shared from=earliest\n")
            await lines.receive_until(b'"offset":0', 4096)
            waiting = await second.subscribe("tweets", as_="shared")
        batch = await anext(waiting)
        assert (batch[0].id, batch[0].attempt) == ("1", 2)


async def test_a_nack_keeps_its_reasons_and_a_policy_limits_the_tries(broker: BrokerProcess) -> None:
    async with Client(broker.address, name="worker") as client:
        await client.publish("tweets", Event(id="1", msg="x"))
        subscription = await client.subscribe("tweets", as_="s", from_="earliest", tries=2, timeout_s=90, backoff_s=0.1)
        for attempt in (1, 2):
            (event,) = await anext(subscription)
            assert event.attempt == attempt
            await subscription.extend([event])
            await subscription.nack(event, "no such user", code=404, trace="line 1\nline 2")
        (letter,) = await anext(await client.subscribe("dead_letters", from_="earliest"))
        assert [(error["message"], error["code"]) for error in letter.decode()["errors"]] == [("no such user", 404)] * 2
        policy = (await client.stats())["topics"]["tweets"]["subscriptions"]["s"]["policy"]
        assert (policy["timeout_ms"], policy["tries"], policy["backoff_ms"]) == (90_000, 2, 100)


async def test_a_sequence_that_is_sent_again_is_stored_once(broker: BrokerProcess) -> None:
    async with Client(broker.address) as client:
        event = Event(id="1", msg=1, producer="p", sequence=7, checkpoint="here")
        first = await client.publish("tweets", event)
        second = await client.publish("tweets", event)
        assert (first.first, first.is_duplicate) == (0, False)
        assert (second.first, second.is_duplicate) == (0, True)
        broker.kill()
        broker.start()
        position = await client.last("tweets", "p")
        assert position is not None
        assert (position.sequence, position.checkpoint) == (7, "here")
        assert (await client.publish("tweets", event)).is_duplicate


async def test_publishes_of_many_tasks_each_get_their_own_offset(broker: BrokerProcess) -> None:
    offsets: dict[str, int] = {}

    async def publish(client: Client, id_: str) -> None:
        offsets[id_] = (await client.publish("t", Event(id=id_, msg=1))).first

    async with Client(broker.address) as client:
        async with anyio.create_task_group() as tasks, client.publisher("t") as publisher:
            for number in range(300):
                tasks.start_soon(publish, client, f"single-{number}")
                await publisher.publish(Event(id=f"run-{number}", msg=1))
        page = await client.read("t", 0, limit=1000)
    stored = {event.id: event.offset for event in page.events}
    assert len(stored) == 600
    assert offsets == {id_: offset for id_, offset in stored.items() if id_.startswith("single")}


async def test_a_publisher_continues_through_kills_and_every_event_is_there_once(broker: BrokerProcess) -> None:
    async with Client(broker.address) as client, client.publisher("tweets", window=500) as publisher:
        for n in range(20_000):
            await publisher.publish(Event(id=str(n), msg=n, producer="p", sequence=n))
            if n in {5_000, 11_000, 17_000}:
                broker.kill()
                broker.start()
        await publisher.flush()
        ids: list[str] = []
        after = 0
        while len(ids) < 20_000:
            page = await client.read("tweets", after, limit=5000, bytes_max=8 << 20)
            ids += [event.id for event in page.events]
            after = page.next
        assert ids == [str(n) for n in range(20_000)]


async def test_a_refused_event_is_named_and_the_connection_lives_on(broker: BrokerProcess) -> None:
    async with Client(broker.address) as client:
        with pytest.raises(Refusal, match="bad_event"):
            await client.publish("tweets", Event(id="", msg=1))
        with pytest.raises(Refusal, match="unknown_topic"):
            await client.subscribe("nothing")
        await client.ping()


async def test_an_error_inside_a_clients_block_leaves_it_unchanged(broker: BrokerProcess) -> None:
    with pytest.raises(Refusal, match="unknown_topic"):
        async with Client(broker.address) as client:
            await client.read("nothing", 0)
    with pytest.raises(TimeoutError):
        async with Client(broker.address) as client:
            subscription = await client.subscribe("empty", create=True)
            with anyio.fail_after(0.05):
                await anext(subscription)


def test_sigterm_ends_it_with_status_0(broker: BrokerProcess) -> None:
    with SyncClient(broker.address) as client:
        client.publish("tweets", Event(id="1", msg=1))
        assert broker.terminate() == 0


def test_a_second_broker_on_the_same_folder_ends_with_a_reason(broker: BrokerProcess) -> None:
    with pytest.raises(StartError, match="another broker uses"):
        BrokerProcess(broker.data_dir).start()


def test_http_on_the_port_is_closed_and_nothing_is_run(broker: BrokerProcess) -> None:
    with socket.create_connection(("127.0.0.1", broker.port), 10) as connection:
        connection.sendall(b'GET / HTTP/1.1\r\nHost: x\r\n\r\npub tweets {"id":"1","msg":1}\n')
        received = b""
        while data := connection.recv(4096):
            received += data
    assert received.count(b"\n") == 1
    with SyncClient(broker.address) as client:
        assert [topic.topic for topic in client.topics()] == ["dead_letters"]


def test_a_client_that_sends_quit_gets_all_replies_however_slowly_it_reads(broker: BrokerProcess) -> None:
    with SyncClient(broker.address) as publisher:
        publisher.publish_many("t", (Event(id=str(n), msg="x" * 1000) for n in range(8000)))
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(20)
        connection.connect(("127.0.0.1", broker.port))
        connection.sendall(b"read t 0 limit=8000 bytes=16777216\nquit\n")
        with connection.makefile("rb") as lines:
            received = list(lines)
    assert len(received) == 1 + 1 + 8000 + 1
    assert received[-1] == b"+OK bye\n"
