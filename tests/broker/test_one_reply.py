"""Every command has exactly one reply, even a malformed line or a command whose handler raises an unexpected error."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from broker.connection import Limits
from broker.core.verbs.reporting import Reporting
from broker.server import Server
from tests.broker.core.harness import Core
from tests.support.processes import BrokerProcess
from tweetwire.protocol import parse_lines
from tweetwire.protocol import parser as parser_module
from tweetwire.protocol.errors import Refusal, internal
from tweetwire.protocol.events import decode_stored
from tweetwire.protocol.verbs.publishing import Publish
from tweetwire.protocol.verbs.reporting import Backlog

INTERNAL = "-ERR internal a bug of the broker stopped this command; the broker's log has the details"


def pub(number: object, topic: str = "t", text: str = "1") -> str:
    return f'pub {topic} {{"id":"{number}","msg":{text}}}'


def _raise(*_: object) -> Any:
    raise ZeroDivisionError("a bug")


@contextmanager
def bugs() -> Iterator[None]:
    """Make `extend` raise in the parser, and `backlog` in the handler of a broker that is created in the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(parser_module._PARSERS, b"extend", _raise)
        patch.setattr(Reporting, "backlog", _raise)
        yield


def test_a_nack_without_a_ref_is_refused_with_its_usage() -> None:
    (refusal,) = parse_lines([b"nack t"], 1 << 20)
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.text) == ("bad_arguments", "usage: nack <topic> <ref> [<error>]")


@pytest.mark.parametrize(
    "line", [b"nack", b"nack ", b"nack t ", b"nack  t", b"read t 0001-01-01T00:00:00+23:59", b"ack t @"]
)
def test_no_short_line_causes_a_bug_of_the_parser(line: bytes) -> None:
    (found,) = parse_lines([line], 1 << 20)
    assert not isinstance(found, Refusal) or found.code != "internal"


def test_commands_around_one_that_raises_are_carried_out() -> None:
    with bugs():
        core = Core("t")
        session = core.connect()
        replies = core.type(session, pub(1), "extend t @0", pub(2), "backlog t as=s", pub(3), "ping")
    assert replies == ["+OK pub t 0 synced", INTERNAL, "+OK pub t 1 synced", INTERNAL, "+OK pub t 2 synced", "+PONG"]
    assert [str(bug) for bug in core.bugs] == ["a bug", "a bug"]


def test_only_the_event_whose_check_raises_is_refused_and_those_before_it_are_stored() -> None:
    core = Core("t")
    session = core.connect()
    core.type(session, 'schema t {"type":"integer"}')
    schema = core.broker.topics["t"].documentation.schema
    assert schema is not None
    check = schema.check
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "check", lambda event: _raise() if event.id == "2" else check(event))
        replies = core.type(session, *(_numbered(n) for n in (1, 2, 3)))
    assert replies[:2] == ["+OK pub t 0 synced", INTERNAL]
    # A later sequence must not make the refused one a duplicate.
    assert replies[2].startswith("-ERR out_of_sequence ")
    assert core.type(session, _numbered(2), _numbered(3)) == ["+OK pub t 1-2 synced"]


def _numbered(number: int, text: str = "1") -> str:
    return f'pub t {{"id":"{number}","msg":{text},"producer":"p","sequence":{number}}}'


@pytest.mark.parametrize("number", ["1e400", "-1e400", "9" * 400, "9" * 5000, "0." + "1" * 2000, "1E+0309"])
@pytest.mark.parametrize("schema", ["none", '{"type":"object"}'])
def test_an_event_with_a_number_that_no_reader_can_represent_is_refused_and_the_one_before_it_is_stored(
    number: str, schema: str
) -> None:
    core = Core("t")
    session = core.connect()
    core.type(session, f"schema t {schema}")
    good, bad, next_ = _numbered(1, '{"n":1}'), _numbered(2, f'{{"n":{number}}}'), _numbered(3, '{"n":1}')
    replies = core.type(session, good, bad, next_)
    assert replies[0] == "+OK pub t 0 synced"
    assert replies[1].startswith("-ERR bad_event ")
    assert len(replies) == 3
    other = core.connect()
    core.type(other, 'pub t {"id":"other","msg":{}}')
    assert core.type(session, good) == replies[:1] or core.type(session, good)[0].startswith("+OK dup t ")


@pytest.mark.parametrize(
    "number",
    ["1e308", "-1.7976931348623157e308", "1e-400", "9" * 308, "0." + "1" * 900, "1E+5", "18446744073709551616"],
)
def test_a_number_within_a_double_is_stored_and_our_client_decodes_it(number: str) -> None:
    core = Core("t")
    session = core.connect()
    assert core.type(session, pub(1, text=f"[{number}]")) == ["+OK pub t 0 synced"]
    (line,) = core.type(session, "read t 0")[1:]
    assert decode_stored(line.encode()).decode() == json.loads(f"[{number}]")


@given(
    st.sampled_from(["1e400", "-2.5E+309", "1e0999", "9" * 310, "1" * 200 + "." + "1" * 900]),
    st.sampled_from(
        ["%s", "[%s]", "[0,%s ,1]", '{"a":{"b":%s}}', '{"a":[[%s],"b"]}', "[%s\t]", '{"e000":"0e",\n"a":%s}']
    ),
    st.lists(st.sampled_from(['"a"', "[1e3]", '{"a":"0e000"}', '"4e1203"', "-1e-999"]), min_size=2, max_size=3),
    st.data(),
)
def test_a_number_beyond_a_double_is_found_wherever_it_is_among_other_events(
    number: str, place: str, others: list[str], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(others)))
    texts = [*others[:at], place % number, *others[at:]]
    found = parse_lines([pub(n, text=text).encode() for n, text in enumerate(texts)], 1 << 20)
    assert [one.code for one in found if isinstance(one, Refusal)] == ["bad_event"]
    runs = [[bytes(event.msg).decode() for event in one.events] for one in found if isinstance(one, Publish)]
    assert runs == [run for run in (others[:at], others[at:]) if run]


@pytest.mark.parametrize("text", ['"1e400"', '"3e4567"', f'"{"9" * 2000}"', '{"1e999":"e000"}', '"abc1e+500def"'])
def test_text_that_looks_like_a_large_number_is_stored(text: str) -> None:
    core = Core("t")
    assert core.type(core.connect(), pub(1, text=text)) == ["+OK pub t 0 synced"]


def test_an_event_nested_deeper_than_the_validator_goes_is_refused_as_schema() -> None:
    core = Core("t")
    session = core.connect()
    core.type(session, 'schema t {"type":["object","integer"]}')
    replies = core.type(session, pub(1), pub(2, text="[" * 400 + "]" * 400), pub(3))
    assert replies[0] == "+OK pub t 0 synced"
    assert replies[1].startswith("-ERR schema msg cannot be validated: ")
    assert replies[2] == "+OK pub t 1 synced"


LINES = st.one_of(
    st.integers(0, 5).map(pub),
    st.integers(0, 5).map(lambda n: pub(n, "u", f"[{n}]")),
    st.sampled_from(
        [
            *(
                "extend t @0",
                "backlog t as=s",
                "nack t",
                "ping",
                "help",
                "help nonsense",
                "nonsense",
                "read t 0 limit=2",
            ),
            *('pub t {"id":1}', "pub t 1e400", 'pub t {"id":"x","msg":1e400}', "ack t x", "nack t @0 {", "sub"),
            *(
                "last t p",
                "stats",
                "topics",
                "dead",
                "clients",
                "checkpoint t p c",
                "describe t",
                "retain t",
                "chain t @99",
            ),
        ]
    ),
    st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), min_size=1, max_size=30)
    .filter(lambda line: line.strip(" \t") and not line.strip().lower().startswith("quit"))
    .map(lambda line: f"nonsense {line}"),
)


@given(st.lists(LINES, max_size=40))
def test_n_commands_have_n_replies_and_the_stored_events_are_those_of_a_model(lines: list[str]) -> None:
    with bugs():
        core = Core("t", "u")
        session = core.connect()
        received = core.type(session, *lines)
    replies = 0
    for line in received:
        if line.startswith("+OK pub "):
            first, _, last = line.split(" ")[3].partition("-")
            replies += int(last or first) - int(first) + 1
        else:
            replies += not line.startswith("{")
    assert replies == len(lines)
    for topic in ("t", "u"):
        good = [
            json.loads(line[6:])["id"]
            for line in lines
            if line.startswith(f"pub {topic} ") and "400" not in line and '"id":1}' not in line
        ]
        stored = [json.loads(line)["id"] for line in core.logs.by_topic[topic]._lines]
        assert stored == good


@pytest.mark.anyio
async def test_a_bug_is_logged_and_the_broker_continues(tmp_path: Path) -> None:
    with bugs():
        server = Server(tmp_path / "b", "memory", limits=Limits(1 << 20, 1 << 20, 30.0))
    async with server.open(["t"]):
        session = server.admit("inside", lambda: None)
        with capture_logs() as logs:
            server.broker.execute(session, Backlog("t", "s"), server.now_ms())
            server.do_work()
        assert session.take_output().decode() == f"{INTERNAL}\n"
        assert [(entry["log_level"], str(entry["exc_info"])) for entry in logs] == [("error", "a bug")]
        server.dismiss(session)


def test_publishes_before_a_line_that_the_parser_cannot_read_are_stored(
    shared_broker: BrokerProcess, topic: str
) -> None:
    import socket

    with (
        socket.create_connection(("127.0.0.1", shared_broker.port), 10) as connection,
        connection.makefile("rb") as lines,
    ):
        lines.readline()
        connection.sendall(
            "".join(f"{pub(n, topic)}\n" for n in range(100)).encode() + f"nack {topic}\nping\n".encode()
        )
        confirmed = 0
        while (line := lines.readline()).startswith(b"+OK pub "):
            first, _, last = line.split(b" ")[3].partition(b"-")
            confirmed += int(last or first) - int(first) + 1
        assert (confirmed, line.split(b" ")[1], lines.readline()) == (100, b"bad_arguments", b"+PONG\n")


def test_an_internal_refusal_keeps_its_cause() -> None:
    error = ValueError("why")
    assert internal(error).__cause__ is error
