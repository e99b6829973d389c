"""A topic's JSON Schema (draft 2020-12), which the `msg` of an event must meet.

The check of an event takes a limited time, whatever the schema and the event are. The time of a pattern is proportional to the
length of the text, and the weight of the schema times the size of the `msg` is at most `UNITS_MAX`. So events are checked on
the event loop, in their order.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from jsonschema_rs import Draft202012Validator, RegexOptions, ValidationError

from broker.core.topic.schema_costs import PATTERN_BYTES_MAX, weight_of
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.events import IncomingEvent, encode_event

__all__ = ["Schema", "UnusableSchema"]

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
FAULT_CHARACTERS_MAX: Final = 400
UNITS_MAX: Final = 10_000_000
"""The limit of weight × bytes for one event. At the limit, a check takes about 100 ms."""
UNITS_A_SHARE: Final = 500_000
"""After about this many units of weight × bytes, which take at most 5 ms, other clients have their turn."""


class Schema:
    """A schema that can be used; `text` is its JSON.

    Raises Refusal ``bad_json`` if the text is not JSON, and ``bad_arguments`` if it is not a schema of this draft or could take
    too long to check. References lead to places within the schema only, since a broker fetches nothing.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        schema = _decoded(text)
        if isinstance(schema, dict) and str(schema.get("$schema", DIALECT)).rstrip("#") != DIALECT:
            raise Refusal("bad_arguments", f"the schema names another draft; this broker supports only {DIALECT}")
        try:
            self._weight = weight_of(schema)
            self.bytes_max = UNITS_MAX // self._weight
            options = RegexOptions(size_limit=PATTERN_BYTES_MAX, dfa_size_limit=PATTERN_BYTES_MAX)
            self._validator = Draft202012Validator(schema, pattern_options=options, offline=True)
        except (ValueError, RecursionError) as error:
            raise Refusal("bad_arguments", f"not a schema of draft 2020-12: {_sentence(error)}") from error

    def shares(self, events: list[IncomingEvent]) -> Iterator[list[IncomingEvent]]:
        """Yield a run of events in parts of about `UNITS_A_SHARE`, at least one event each."""
        share: list[IncomingEvent] = []
        units = 0
        for event in events:
            units += self._weight * min(memoryview(event.msg).nbytes, self.bytes_max)
            share.append(event)
            if units > UNITS_A_SHARE:
                yield share
                share, units = [], 0
        if share:
            yield share

    def check(self, event: IncomingEvent) -> None:
        """Raise Refusal ``schema`` if the event's `msg` does not meet the schema, with the place of the first fault.

        A `msg` is also refused if it is too large to be checked in time, or if the validator cannot represent it. An
        example is a `msg` with more than 255 levels.
        """
        size = memoryview(event.msg).nbytes
        if size > self.bytes_max:
            reason = f"msg has {size} bytes, and at most {self.bytes_max} can be checked in time by this topic's schema"
            raise Refusal("schema", reason, encode_event(event))
        try:
            self._validator.validate(msgspec.json.decode(event.msg))
        except ValidationError as fault:
            raise Refusal("schema", _fault_text(fault), encode_event(event)) from None
        except (ValueError, RecursionError) as error:
            raise Refusal("schema", f"msg cannot be validated: {_sentence(error)}", encode_event(event)) from None


class UnusableSchema:
    """A schema that an older broker accepted and this one refuses.

    Its topic accepts no event until the schema is replaced or removed. Otherwise events would be stored unchecked without a
    warning.
    """

    def __init__(self, text: str, reason: str) -> None:
        self.text = text
        self.reason = reason

    def shares(self, events: list[IncomingEvent]) -> Iterator[list[IncomingEvent]]:
        """Yield a run of events as it is."""
        yield events

    def check(self, event: IncomingEvent) -> None:
        """Raise Refusal ``schema``."""
        raise Refusal(
            "schema",
            f"this topic's schema is of an older broker and cannot be used ({self.reason}); set another: schema <topic>",
            encode_event(event),
        )


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Refusal("bad_json", f"the schema is not JSON: {error}") from None


def _fault_text(fault: ValidationError) -> str:
    """Describe a fault as ``msg/user/id: 7 is not of type "string"``, where the place is a JSON pointer."""
    steps = (str(step).replace("~", "~0").replace("/", "~1") for step in fault.instance_path)
    return f"{'/'.join(('msg', *steps))}: {_sentence(fault)}"


def _sentence(error: Exception) -> str:
    text = error.message if isinstance(error, ValidationError) else str(error)
    return text if len(text) <= FAULT_CHARACTERS_MAX else f"{text[:FAULT_CHARACTERS_MAX]}…"
