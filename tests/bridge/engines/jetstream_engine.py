"""A stream of a real NATS server, as the tests of the engines use it."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from nats.js.api import AckPolicy, ConsumerConfig
from nats.js.errors import NotFoundError

from bridge.central import Destination, Origin, Registry
from bridge.engines.jetstream import JetStreamDestination
from bridge.engines.jetstream_link import NatsLogin
from bridge.engines.jetstream_origin import JetStreamOrigin
from bridge.engines.jetstream_registry import STREAM, JetStreamRegistry
from tests.support.nats_servers import NatsCluster, NatsServer, with_nats

__all__ = ["JetStreamEngine"]


class JetStreamEngine:
    """A stream of one server, or of a cluster."""

    def __init__(self, server: NatsServer | NatsCluster, stream: str = "ORDERS", timeout_s: float = 20) -> None:
        self.ports = [server.port] if isinstance(server, NatsServer) else [port for _, port in server.hosts]
        self.login = NatsLogin(tuple(("127.0.0.1", port) for port in self.ports), timeout_s=timeout_s)
        self.stream = stream

    def destination(self, topic: str = "orders", **options: Any) -> Destination:
        return JetStreamDestination(self.login, self.stream, topic, **options)

    def origin(self) -> Origin:
        return JetStreamOrigin(self.login, self.stream)

    def registry(self, **options: Any) -> Registry:
        return JetStreamRegistry(self.login, **options)

    def run(self, work: Callable[[Any], Awaitable[Any]]) -> Any:
        """Run a function with the library's JetStream context."""
        return with_nats(self.ports, lambda client: work(client.jetstream(timeout=5)))

    def make(self, *subjects: str, **config: Any) -> None:
        """Make the stream as a person would."""
        config = {"allow_atomic": True, **config}
        self.run(lambda context: context.add_stream(name=self.stream, subjects=list(subjects), **config))

    def delete(self, *streams: str) -> None:
        async def work(context: Any) -> None:
            for stream in streams or (self.stream,):
                with suppress(NotFoundError):
                    await context.delete_stream(stream)

        self.run(work)

    def clear(self) -> None:
        """Delete everything that a test may have made."""
        self.delete(self.stream, STREAM)

    def add(self, value: bytes, subject: str = "tw.someone.orders.x", **headers: str) -> None:
        async def work(context: Any) -> None:
            try:
                await context.stream_info(self.stream)
            except NotFoundError:
                await context.add_stream(name=self.stream, subjects=["tw.*.*.>"], allow_atomic=True)
            await context.publish(subject, value, headers=headers or None)

        self.run(work)

    def remove_first(self, count: int) -> None:
        async def work(context: Any) -> None:
            state = (await context.stream_info(self.stream)).state
            await context.purge_stream(self.stream, seq=state.first_seq + count)

        self.run(work)

    def messages(self) -> list[Any]:
        """Return all messages, read by the library's own consumer."""

        async def work(context: Any) -> list[Any]:
            found: list[Any] = []
            total = (await context.stream_info(self.stream)).state.messages
            config = ConsumerConfig(ack_policy=AckPolicy.NONE)
            subscription = await context.pull_subscribe("", stream=self.stream, config=config)
            while len(found) < total:
                found += await subscription.fetch(min(1000, total - len(found)), timeout=20)
            return found

        result: list[Any] = self.run(work)
        return result
