"""Sample events: the generated values match their schema."""

import json
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator

from tests.support.processes import BrokerProcess
from tweetwire import SyncClient
from tweetwire.cli import main
from tweetwire.cli.samples import Samples
from tweetwire.protocol.errors import StartError

TREE = {"type": "object", "required": ["v"], "properties": {"v": {"type": "integer"}, "n": {"$ref": "#"}}}
USER = {
    "type": "object",
    "required": ["id", "name", "since"],
    "properties": {
        "id": {"type": "string", "pattern": "^[0-9]{18,19}$"},
        "name": {"type": "string", "minLength": 20, "maxLength": 25},
        "since": {"type": "string", "format": "date-time"},
        "followers": {"type": "integer", "minimum": 5, "maximum": 7},
    },
    "additionalProperties": False,
}
SCHEMAS: list[Any] = [
    True,
    {},
    {"type": ["integer", "null"]},
    {"not": {"type": "string"}},
    {"enum": [1, "a", None]},
    {"const": {"a": [1]}},
    {"$ref": "#/$defs/user", "$defs": {"user": USER}},
    TREE,
    {"type": "object", "dependentRequired": {"a": ["b"]}, "properties": {"a": {"type": "string"}, "b": {"const": 2}}},
    {"allOf": [{"properties": {"x": {"type": "integer"}}, "required": ["x"]}], "unevaluatedProperties": False},
    {"type": "array", "contains": {"const": 3}, "minContains": 2, "maxContains": 3, "maxItems": 4},
    {"type": "array", "prefixItems": [{"const": 1}, {"type": "string"}], "items": False, "minItems": 2},
    {"type": "array", "items": {"enum": [1, 2, 3]}, "uniqueItems": True, "minItems": 3},
    {"if": {"properties": {"k": {"const": 1}}, "required": ["k"]}, "then": {"required": ["z"]}, "type": "object"},
    {"oneOf": [{"type": "string"}, {"type": "integer", "multipleOf": 7, "minimum": 50}]},
    {"type": "number", "exclusiveMinimum": 0, "maximum": 0.01},
    {"type": "number", "multipleOf": 0.25, "minimum": -3, "maximum": -1},
    {"type": "object", "patternProperties": {"^n_[a-z]{3}$": {"type": "integer"}}, "minProperties": 3},
    {"type": "object", "additionalProperties": {"type": "boolean"}, "minProperties": 2, "maxProperties": 2},
    {
        "type": "array",
        "items": {"$ref": "#/$defs/tree"},
        "$defs": {"tree": TREE | {"properties": {"v": {"type": "integer"}}}},
    },
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
def test_a_sample_meets_its_schema(schema: Any) -> None:
    validator = Draft202012Validator(schema, validate_formats=True)
    samples = Samples(schema, seed=1)
    drawn = [samples.draw() for _ in range(50)]
    assert [value for value in drawn if not validator.is_valid(value)] == []


def test_the_same_seed_gives_the_same_samples() -> None:
    one, other = Samples(USER, seed=3), Samples(USER, seed=3)
    drawn = [one.draw() for _ in range(20)]
    assert drawn == [other.draw() for _ in range(20)]
    assert len({value["id"] for value in drawn}) == 20


@pytest.mark.parametrize(
    "schema", [False, {"type": "string", "minLength": 3, "maxLength": 2}, {"allOf": [{"const": 1}, {"const": 2}]}]
)
def test_a_schema_that_no_event_can_meet_is_reported(schema: Any) -> None:
    with pytest.raises(StartError, match="no value"):
        Samples(schema).draw()


def test_a_subscriber_can_be_written_before_its_publisher(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    with SyncClient(broker.address) as client:
        client.command(f"schema users {json.dumps(USER)}")
        assert main(["mock", "users", "--count", "3", "--seed", "1", "--broker", broker.address]) == 0
        shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [event["id"] for event in shown] == ["mock-0", "mock-1", "mock-2"]
        assert main(["mock", "users", "--publish", "--count", "20", "--seed", "1", "--broker", broker.address]) == 0
        stored = client.read("users", 0).events
        assert len(stored) == 20
        assert [event.decode() for event in stored[:3]] == [event["msg"] for event in shown]
        assert main(["mock", "dead_letters", "--broker", broker.address]) == 2
        assert "dead_letters has no schema" in capsys.readouterr().err
