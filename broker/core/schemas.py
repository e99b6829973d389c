"""A topic's JSON Schema (draft 2020-12): what the `msg` of an event must be."""

from typing import Any, Final

import msgspec
from jsonschema_rs import Draft202012Validator, ValidationError

from broker.errors import Refusal
from broker.events import IncomingEvent, encode_event

__all__ = ["Schema"]

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
FAULT_CHARACTERS_MAX: Final = 400


class Schema:
    """A schema that can be used; `text` is the JSON it came as.

    Raises Refusal ``bad_json`` for what is no JSON and ``bad_arguments`` for what is no schema of this draft. References
    lead to places within the schema only: a broker fetches nothing.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        schema = _decoded(text)
        if isinstance(schema, dict) and str(schema.get("$schema", DIALECT)).rstrip("#") != DIALECT:
            raise Refusal("bad_arguments", f"the schema's draft is another one; this broker knows {DIALECT}")
        try:
            self._validator = Draft202012Validator(schema, offline=True)
        except (ValueError, RecursionError) as error:
            raise Refusal("bad_arguments", f"no schema of draft 2020-12: {_sentence(error)}") from error

    def check(self, event: IncomingEvent) -> None:
        """Raise Refusal ``schema`` if the event's `msg` does not meet the schema, with the place of the first fault."""
        message = msgspec.json.decode(event.msg)
        if not self._validator.is_valid(message):
            fault = next(self._validator.iter_errors(message))
            raise Refusal("schema", _fault_text(fault), encode_event(event))


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Refusal("bad_json", f"the schema is no JSON: {error}") from None


def _fault_text(fault: ValidationError) -> str:
    """Write a fault as ``msg/user/id: 7 is not of type "string"``, the place being a JSON pointer."""
    steps = (str(step).replace("~", "~0").replace("/", "~1") for step in fault.instance_path)
    return f"{'/'.join(('msg', *steps))}: {_sentence(fault)}"


def _sentence(error: Exception) -> str:
    text = error.message if isinstance(error, ValidationError) else str(error)
    return text if len(text) <= FAULT_CHARACTERS_MAX else f"{text[:FAULT_CHARACTERS_MAX]}…"
