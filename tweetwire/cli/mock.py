"""``mock``: make sample events that match a topic's schema, so that a subscriber can be tested before its publisher exists."""

import time
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from tweetwire.cli.connection import CommandConnection, TopicArgument
from tweetwire.cli.display import print_json
from tweetwire.cli.flags import Flag
from tweetwire.cli.kinds import INTEGER, NAME, NUMBER, SWITCH, whole
from tweetwire.protocol.errors import StartError
from tweetwire.protocol.events import Event

if TYPE_CHECKING:
    from tweetwire.client.blocking import SyncClient

__all__ = ["Mock"]

PER_WRITE: Final = 1000


class Mock(CommandConnection, kw_only=True):
    """Make sample events that match a topic's schema, and show them or publish them."""

    examples = ("tweetwire mock orders --count 3", "tweetwire mock orders --count 1000 --rate 50 --publish")

    topic: TopicArgument
    count: Annotated[int, Flag(whole(1), "number of events")] = 10
    publish: Annotated[bool, Flag(SWITCH, "publish them to the topic instead of showing them")] = False
    to: Annotated[str | None, Flag(NAME._replace(word="TOPIC"), "publish them to this topic instead")] = None
    rate: Annotated[
        float | None, Flag(NUMBER, "largest number of events to publish in a second", default="no limit")
    ] = None
    seed: Annotated[
        int | None, Flag(INTEGER, "make the same samples for the same seed", default="new ones each time")
    ] = None

    def run_command(self) -> None:
        """Show or publish the samples.

        Raises Refusal, and StartError if the topic has no schema or no value that matches it is found.
        """
        with self.connect() as client:
            schema = client.command(f"schema {self.topic}").split(" ", 3)[3]
            if schema == "none":
                raise StartError(f"{self.topic} has no schema; give it one: tweetwire schema {self.topic} --set FILE")
            events = self._events(msgspec.json.decode(schema))
            target = self.to or (self.topic if self.publish else None)
            if target is None:
                for event in events:
                    print_json(event)
            else:
                self._publish(client, target, events)

    def _events(self, schema: Any) -> list[Event]:
        try:
            from tweetwire.cli.samples import Samples  # noqa: PLC0415 — its library belongs to an extra
        except ImportError as error:
            raise StartError("sample events need the extra: pip install 'tweetwire[mock]'") from error
        samples = Samples(schema, self.seed)
        return [Event(id=f"mock-{number}", msg=samples.draw()) for number in range(self.count)]

    def _publish(self, client: "SyncClient", topic: str, events: list[Event]) -> None:
        if self.rate is None:
            client.publish_many(topic, events, window=PER_WRITE)
        else:
            began = time.monotonic()
            for number, event in enumerate(events):
                time.sleep(max(0.0, began + number / self.rate - time.monotonic()))
                client.publish(topic, event)
        print(f"published {len(events):,} events to {topic}", flush=True)
