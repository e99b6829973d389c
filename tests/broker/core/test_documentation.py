"""The documentation of a topic: descriptions, comments, and schemas that events must meet."""

import json
from pathlib import Path

import pytest

from tests.broker.core.harness import Core
from tests.support.processes import BrokerProcess
from tweetwire import Event, Refusal, SyncClient
from tweetwire.cli import main

TWEET = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["id", "user"],
    "properties": {
        "id": {"type": "string"},
        "user": {"$ref": "#/$defs/user"},
        "place": {"prefixItems": [{"const": 1}]},
    },
    "$defs": {"user": {"type": "object", "properties": {"a/b": {"type": "integer"}}, "unevaluatedProperties": False}},
}


def pub(id_: str, msg: object, **members: object) -> str:
    return "pub t " + json.dumps({"id": id_, "msg": msg, **members})


def test_a_schema_refuses_events_that_do_not_match_and_names_the_place() -> None:
    core = Core()
    session = core.connect()
    assert core.type(session, f"schema t {json.dumps(TWEET)}") == ["+OK schema t"]
    assert core.type(
        session,
        pub("1", {"id": "1", "user": {}}),
        pub("2", {"id": "1", "user": {"a/b": "x"}}),
        pub("3", {"user": {}}),
        pub("4", {"id": "1", "user": {"z": 1}}),
        pub("5", {"id": "1", "user": {}, "place": [2]}),
        pub("6", {"id": "2", "user": {"a/b": 7}}),
    ) == [
        "+OK pub t 0 synced",
        '-ERR schema msg/user/a~1b: "x" is not of type "integer"',
        '-ERR schema msg: "id" is a required property',
        "-ERR schema msg/user: Unevaluated properties are not allowed ('z' was unexpected)",
        "-ERR schema msg/place/0: 1 was expected",
        "+OK pub t 1 synced",
    ]


def test_a_refused_event_is_kept_among_the_rejected_lines() -> None:
    core = Core()
    session = core.connect()
    core.type(session, 'schema t {"type":"integer"}', "hello me", pub("1", "text"))
    letter = json.loads(core.logs.by_topic["rejected_lines"].pick([0])[0])["msg"]
    assert (letter["code"], letter["client"], json.loads(letter["line"])) == (
        "schema",
        "me",
        {"id": "1", "msg": "text"},
    )


def test_an_event_stored_before_the_schema_is_a_duplicate_and_not_refused() -> None:
    core = Core()
    session = core.connect()
    again = pub("1", "text", producer="p", sequence=4)
    core.type(session, again, 'schema t {"type":"integer"}')
    assert core.type(session, again, pub("2", "text", producer="p", sequence=5)) == [
        "+OK dup t 0",
        '-ERR schema msg: "text" is not of type "integer"',
    ]
    assert core.type(session, "schema t none", pub("2", "text", producer="p", sequence=5)) == [
        "+OK schema t",
        "+OK pub t 1 synced",
    ]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ('schema t {"type":"nope"}', "bad_arguments"),
        ("schema t 5", "bad_arguments"),
        ('schema t {"$schema":"http://json-schema.org/draft-07/schema#"}', "bad_arguments"),
        ('schema t {"$ref":"http://127.0.0.1:9/x.json"}', "bad_arguments"),
        ('schema t {"$ref":"#/$defs/missing"}', "bad_arguments"),
        ('schema t {"pattern":"("}', "bad_arguments"),
        ("schema t {", "bad_json"),
        ("schema t " + "[" * 30_000 + "]" * 30_000, "bad_json"),
        ('schema t {"description":"' + "x" * 300_000 + '"}', "bad_arguments"),
        ('schema dead_letters {"type":"object"}', "forbidden"),
        ("schema", "bad_arguments"),
        ("schema nowhere", "unknown_topic"),
        ("describe nowhere", "unknown_topic"),
        ("describe t " + "x" * 20_000, "bad_arguments"),
        ("comment t", "bad_arguments"),
        ("comment .t x", "bad_name"),
    ],
)
def test_a_wrong_schema_or_description_is_refused_and_changes_nothing(line: str, code: str) -> None:
    core = Core("t")
    session = core.connect()
    (reply,) = core.type(session, line)
    assert reply.startswith(f"-ERR {code} ")
    assert core.type(session, "describe t") == ["+OK describe t {}"]


@pytest.mark.parametrize("is_folded", [False, True])
def test_the_documentation_is_in_topics_and_survives_a_restart(is_folded: bool) -> None:
    core = Core()
    session = core.connect()
    assert core.type(
        session,
        "hello ann",
        "describe t Tweets as they are: one event, one tweet",
        "describe t All   tweets",
        'schema t {"type": "object"}',
        *(f"comment t remark {n}" for n in range(102)),
    ) == ["+OK hello ann", *["+OK describe t"] * 2, "+OK schema t", *["+OK comment t"] * 102]
    core.restart(is_folded=is_folded)
    session = core.connect()
    (reply,) = core.type(session, "topics")
    documents = {one["topic"]: one for one in json.loads(reply.removeprefix("+OK topics "))}
    assert "description" not in documents["dead_letters"]
    assert documents["t"]["description"] == "All   tweets"
    assert documents["t"]["schema"] == {"type": "object"}
    assert [one["text"] for one in documents["t"]["comments"]] == [f"remark {n}" for n in range(2, 102)]
    assert {one["client"] for one in documents["t"]["comments"]} == {"ann"}
    assert core.type(session, "schema t", pub("1", 1))[1].startswith("-ERR schema")


def test_the_schema_holds_after_a_kill(broker: BrokerProcess, tmp_path: Path) -> None:
    with SyncClient(broker.address, name="ann") as client:
        client.command('schema t {"type":"integer"}')
        client.command("describe t numbers")
        client.command("comment t only small ones")
    broker.kill()
    broker.start()
    with SyncClient(broker.address) as client:
        with pytest.raises(Refusal, match="is not of type"):
            client.publish("t", Event(id="1", msg="text"))
        assert client.publish("t", Event(id="2", msg=2)).first == 0
        (topic,) = (one for one in client.topics() if one.topic == "t")
    assert (topic.description, topic.schema, topic.comments[0].text) == (
        "numbers",
        {"type": "integer"},
        "only small ones",
    )


def test_a_person_documents_a_topic_from_the_command_line(
    broker: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tweet.json"
    file.write_text(json.dumps(TWEET, indent=4))

    def cli(*words: str, status: int = 0) -> str:
        assert main([*words, "--broker", broker.address]) == status
        return "".join(capsys.readouterr())

    assert "tweets as they are" in cli("describe", "tweets", "tweets as they are")
    assert json.loads(cli("schema", "tweets", "--set", str(file), "--json")) == TWEET
    assert "comment was added" in cli("comment", "tweets", "never mind the place", "--name", "ann")
    told = cli("describe", "tweets")
    assert "tweets as they are" in told
    assert '"unevaluatedProperties": false' in told
    assert "ann: never mind the place" in told
    assert "tweets as they are" in cli("topics")
    assert "no schema" in cli("schema", "tweets", "--none")
    file.write_text('{"type": "nope"}')
    assert "the broker refuses (bad_arguments)" in cli("schema", "tweets", "--set", str(file), status=2)
    assert "one line of text" in cli("comment", "tweets", "a\nb", status=2)


def test_the_documentation_of_all_topics_has_a_limit_and_can_still_be_removed_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("broker.core.verbs.documenting.BYTES_MAX", 20_000)
    core = Core()
    session = core.connect()
    assert core.type(session, "describe t " + "x" * 15_000) == ["+OK describe t"]
    core.restart()
    session = core.connect()
    (reply,) = core.type(session, "describe u " + "y" * 6000)
    assert reply.startswith("-ERR too_many ")
    assert core.type(session, "describe t short", "describe u " + "y" * 6000) == ["+OK describe t", "+OK describe u"]
    assert core.type(session, "schema t none") == ["+OK schema t"]
