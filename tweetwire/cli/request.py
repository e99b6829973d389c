"""``request``: publish an event, and show the reply to it."""

from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Raw

from tweetwire.cli.connection import CommandConnection, TopicArgument
from tweetwire.cli.display import event_line
from tweetwire.cli.event_ids import EventIds
from tweetwire.cli.flags import OUTPUT, Flag, argument
from tweetwire.cli.kinds import SECONDS, SWITCH, TEXT, whole
from tweetwire.protocol.errors import NoReply, StartError
from tweetwire.protocol.events import Event
from tweetwire.protocol.units import format_seconds

__all__ = ["Request"]

_see_json: Final = msgspec.json.Decoder(Raw).decode


class Request(CommandConnection, kw_only=True):
    """Publish one event, wait for the reply of a responder, and write the reply's payload to stdout.

    The JSON is the payload, the member msg of the event. Without a reply in time, the status is 2.
    """

    examples = (
        """tweetwire request prices '{"article":7}'""",
        """tweetwire request prices '{"article":7}' --timeout 30s --json""",
    )

    topic: TopicArgument
    payload: Annotated[str, argument(TEXT, "the payload", name="json")]
    event_id: Annotated[str | None, Flag(TEXT, "id of the event", name="id", default="a new one")] = None
    key: Annotated[str | None, Flag(TEXT, "key, which groups the events of one entity")] = None
    priority: Annotated[int, Flag(whole(0, 255), "priority; a higher one is delivered first")] = 0
    timeout: Annotated[float, Flag(SECONDS, "longest wait for the reply")] = 5.0
    is_json: Annotated[
        bool, Flag(SWITCH, "write the whole reply as a line of JSON, as it is stored", name="json", group=OUTPUT)
    ] = False

    def run_command(self) -> None:
        """Publish, and show the reply. Raises BrokerError, StartError."""
        event = self._event()
        with self.connect() as client:
            try:
                reply = client.request(self.topic, event, timeout_s=self.timeout)
            except NoReply as error:
                waited = format_seconds(self.timeout)
                raise StartError(f"no reply within {waited}; is a responder of {self.topic} running?") from error
        print(event_line(reply).decode() if self.is_json else bytes(reply.msg).decode())

    def _event(self) -> Event:
        try:
            msg = _see_json(self.payload)
        except (msgspec.DecodeError, RecursionError) as error:
            reason = str(error).removeprefix("JSON is malformed: ")
            raise StartError(f"{self.payload[:40]!r} is not JSON: {reason}") from error
        return Event(
            id=self.event_id or EventIds().make(),
            msg=msg,
            priority=self.priority,
            key=UNSET if self.key is None else self.key,
        )
