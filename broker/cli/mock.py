"""``mock``: events that a topic's schema allows, so that a subscriber can be written before its publisher."""

import time
from typing import Any, Final

import msgspec
from pydantic import Field
from pydantic_settings import CliPositionalArg

from broker.cli.connection import Connection, command_config
from broker.cli.display import print_json
from broker.errors import StartError
from broker.events import Event
from broker.program import Name
from broker.sync_client import SyncClient

__all__ = ["Mock"]

PER_WRITE: Final = 1000


class Mock(Connection):
    """Make sample events that meet a topic's schema, and show them or publish them."""

    model_config = command_config("mock")

    topic: CliPositionalArg[Name] = Field(description="the topic whose schema counts")
    count: int = Field(10, ge=1, description="how many events")
    publish: bool = Field(False, description="publish them to the topic instead of showing them")
    to: Name | None = Field(None, description="publish them to this topic instead")
    rate: float | None = Field(
        None, gt=0, description="most that are published (events/s; default: as fast as it goes)"
    )
    seed: int | None = Field(None, description="draw the same samples each time (default: others each time)")

    def carry_out(self) -> None:
        """Show or publish the samples. Raises Refusal, StartError where there is no schema, or nothing meets it."""
        with self.connect() as client:
            schema = client.command(f"schema {self.topic}").split(" ", 3)[3]
            if schema == "none":
                raise StartError(
                    f"{self.topic} has no schema; give it one: python -m broker schema {self.topic} --set FILE"
                )
            events = self._events(msgspec.json.decode(schema))
            target = self.to or (self.topic if self.publish else None)
            if target is None:
                for event in events:
                    print_json(event)
            else:
                self._publish(client, target, events)

    def _events(self, schema: Any) -> list[Event]:
        try:
            from broker.cli.samples import Samples  # noqa: PLC0415 — its library is an extra
        except ImportError as error:
            raise StartError("sample events need the extra: pip install 'tweetwire[mock]'") from error
        samples = Samples(schema, self.seed)
        return [Event(id=f"mock-{number}", msg=samples.draw()) for number in range(self.count)]

    def _publish(self, client: SyncClient, topic: str, events: list[Event]) -> None:
        if self.rate is None:
            client.publish_many(topic, events, window=PER_WRITE)
        else:
            began = time.monotonic()
            for number, event in enumerate(events):
                time.sleep(max(0.0, began + number / self.rate - time.monotonic()))
                client.publish(topic, event)
        print(f"published {len(events):,} events to {topic}", flush=True)
