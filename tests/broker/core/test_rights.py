"""The permissions of a user: each command on each topic, on a core without sockets."""

from typing import Final

import pytest

from broker.core import Access
from broker.core.internal_topics import BROKER_TOPICS, CONFIDENTIAL_TOPICS, INTERNAL_TOPICS
from tests.broker.core.harness import Core
from tests.broker.core.users_of_core import ALICE, BOSS, answer, codes, connect
from tests.support.paths import ROOT
from tweetwire.protocol.permissions import Permission
from tweetwire.protocol.request_reply import REPLIES
from tweetwire.protocol.verbs import VERBS
from tweetwire.protocol.verbs.session import Ping

COMMANDS = {command for verb in VERBS for command in verb.commands}


@pytest.fixture
def core() -> Core:
    return Core("t", REPLIES, *sorted(INTERNAL_TOPICS))


# The permission of each command


def test_the_broker_carries_out_every_command(core: Core) -> None:
    assert core.broker.commands == COMMANDS


def test_a_command_without_a_permission_is_refused(core: Core) -> None:
    class Unlisted(Ping): ...

    session = connect(core, BOSS)
    core.broker.execute(session, Unlisted(), core.now_ms)
    assert core.receive(session) == ["-ERR forbidden no permission is declared for Unlisted"]


NEEDS_LOGIN: Final = (
    'request t {"id":"x","msg":1}',
    *('pub t {"id":"x","msg":1}', 'pub2 t {"id":"x","msg":1}', "pubrel t x", "pubrec t @0", "pubcomp t @0"),
    *("sub t", "sub t as=s create", "unsub t", "unsub t as=s end", "ack t @0", "nack t @0", "extend t @0"),
    *(
        "state",
        "read t 0",
        "last t p",
        "checkpoint t p c",
        "claim t p",
        "topics",
        "stats",
        "explain t @0 as=s",
        "dead",
        "dead topic=t",
    ),
    *("redrive t as=s all", "unsettled t as=s", "backlog t as=s", "clients", "describe t", "describe t text"),
    *("schema t", "schema t none", "comment t text", "retain t", "retain t age=1d", "chain t @0"),
    *("mark t as=m @0", "unmark t as=m", "marks t", "confirm t"),
    *("create t", "drop t", "purge t", "seek t as=s to=0", "pause t as=s", "resume t as=s", "discard t as=s all"),
)


def test_a_connection_without_a_login_may_do_nothing(core: Core) -> None:
    connect(core, BOSS, "sub t as=s")
    core.publish("e0", "e1", "e2")
    session = core.connect()
    session.access = Access(None)
    assert set(codes(core.type(session, *NEEDS_LOGIN))) == {"unauthenticated"}
    assert codes(core.type(session, "ping", "help")) == ["+", "+"]


def test_a_user_without_patterns_may_do_nothing_with_a_topic(core: Core) -> None:
    connect(core, BOSS, "sub t as=s")
    core.publish("e0", "e1", "e2")
    session = connect(core, Access("nobody", is_admin=True))
    with_topic = [line for line in NEEDS_LOGIN if line not in {"state", "topics", "stats", "clients", "dead"}]
    assert set(codes(core.type(session, *with_topic))) == {"forbidden"}
    assert answer(core, session, "topics") == answer(core, session, "dead") == []
    assert answer(core, session, "stats")["topics"] == {}


USERS: Final = {
    "no login": Access(None),
    "no patterns": Access("n"),
    "publisher": Access("p", ("t",)),
    "reader": Access("r", (), ("t",)),
    "both": Access("b", ("t",), ("t",)),
    "admin": Access("a", ("t",), ("t",), is_admin=True),
}
ALL: Final = set(USERS)
LOGGED_IN: Final = ALL - {"no login"}
PUBLISHING: Final = {"publisher", "both", "admin"}
READING: Final = {"reader", "both", "admin"}
MATRIX: Final = [
    *((line, ALL) for line in ("hello x", "help", "help pub", "ping", "quit")),
    *((line, LOGGED_IN) for line in ("topics", "stats", "dead")),
    *((line, PUBLISHING) for line in ('pub t {"id":"x","msg":1}', 'request t {"id":"x","msg":1}')),
    *((line, PUBLISHING) for line in ('pub2 t {"id":"x","msg":1}', "pubrel t x", "checkpoint t p c", "skip t p 1")),
    *((line, PUBLISHING) for line in ("claim t other", "claim t other free")),
    *((line, PUBLISHING) for line in ("describe t text", "comment t text")),
    *((line, READING) for line in ("sub t", "sub t as=new", "sub t as=new create", "unsub t", "unsub t as=new")),
    *((line, READING) for line in ("ack t @0", "nack t @0", "extend t @0", "pubrec t @0", "pubcomp t @0")),
    ("begin t @0", READING),
    *((line, READING) for line in ("mark t as=new @0", "unmark t as=new", "marks t")),
    *((line, {"admin"}) for line in ("confirm t", "confirm t after=m")),
    ('pub t after=m within=1ms {"id":"x","msg":1}', PUBLISHING),
    *((line, {"admin"}) for line in ("mark t as=alices @1", "unmark t as=alices")),
    *((line, READING) for line in ("read t 0", "last t p", "chain t @0", "describe t", "schema t", "dead topic=t")),
    *((line, READING) for line in ("explain t @0 as=alices", "unsettled t as=alices", "backlog t as=alices")),
    *((line, {"admin"}) for line in ("sub t as=alices", "sub t as=alices tries=1", "unsub t as=alices end")),
    *((line, {"admin"}) for line in ("redrive t as=alices all", "clients", "schema t none", "schema t {}")),
    *((line, {"admin"}) for line in ("retain t", "retain t age=1d", "forget t p", "state")),
    *((line, {"admin"}) for line in ("create t", "create t age=1d", "purge t", "drop t", "drop t if_empty")),
    *((line, {"admin"}) for line in ("seek t as=alices to=0", "pause t as=alices", "resume t as=alices")),
    ("discard t as=alices all", {"admin"}),
    *((line, set()) for line in ("pub u {}", "sub u", "sub u create", "read u 0", "pub dead_letters {}", "drop u")),
]


def test_every_verb_is_in_the_matrix(core: Core) -> None:
    (reply,) = core.type(core.connect(), "help")
    verbs = set(reply.partition("commands: ")[2].partition(";")[0].split())
    assert verbs == {line.split()[0] for line, _ in MATRIX}


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ('pub orders {"id":"1","msg":1}', "carol needs a publish pattern for orders"),
        ("read orders 0", "carol needs a subscribe pattern for orders"),
        (
            'pub handler_history {"id":"1","msg":1}',
            "carol needs a publish pattern that names handler_history; * does not",
        ),
        ("read dead_letters 0", "carol needs a subscribe pattern that names dead_letters; * does not"),
        ("stats orders", "carol needs a pattern for orders"),
        ("clients", "that is for administrators, and carol is not one"),
    ],
)
def test_a_refusal_names_the_pattern_that_the_user_lacks(line: str, text: str) -> None:
    core = Core("orders")
    session = core.connect()
    session.access = Access("carol", ("t",), ("t",))
    assert core.type(session, line) == [f"-ERR forbidden {text}"]


@pytest.mark.parametrize(("line", "allowed"), MATRIX, ids=[line for line, _ in MATRIX])
def test_each_permission_allows_only_its_commands(line: str, allowed: set[str]) -> None:
    line = line.replace("{}", '{"id":"x","msg":1}') if line.startswith("pub") else line
    for name, access in USERS.items():
        core = Core("t", "u")
        connect(core, ALICE, "sub t as=alices", "mark t as=alices @0")
        core.publish("e0", "e1", "e2")
        session = core.connect()
        session.access = access
        before = core.broker.records()
        replies = core.type(session, line)
        if not replies:
            # A confirmation that waits for a mark.
            core.pass_time(1)
            replies = core.receive(session)
        (first, *_) = codes(replies)
        assert (first not in {"unauthenticated", "forbidden"}) == (name in allowed), name
        if name not in allowed:
            assert core.broker.records() == before, "a refused command changes nothing"


# Internal topics


@pytest.mark.parametrize("topic", sorted(CONFIDENTIAL_TOPICS))
@pytest.mark.parametrize(
    ("pattern", "is_named"),
    [("*", False), ("?*", False), ("[a-z]*", False), ("*[a-z]", False), ("{topic}", True), ("{start}*", True)],
)
def test_reading_an_internal_topic_needs_a_pattern_that_names_it(
    core: Core, topic: str, pattern: str, *, is_named: bool
) -> None:
    named = pattern.format(topic=topic, start=topic[:3])
    session = connect(core, Access("ann", (), (named,)))
    lines = (f"read {topic} 0", f"sub {topic}", f"describe {topic}", f"chain {topic} @0")
    assert codes(core.type(session, *lines)) == (["+", "+", "+", "no_event"] if is_named else ["forbidden"] * 4)
    assert topic in answer(core, session, "stats")["topics"], "its figures are no secret"


@pytest.mark.parametrize("topic", sorted(INTERNAL_TOPICS))
def test_without_users_a_subscription_to_an_internal_topic_is_used_again(core: Core, topic: str) -> None:
    session = core.connect()
    assert codes(core.type(session, "hello ann", f"sub {topic} as=s create", f"sub {topic} as=s")) == ["+", "+", "+"]
    core.disconnect(session)
    again = core.connect()
    attached = core.type(again, "hello ann resume", f"unsub {topic} as=s", f"sub {topic} as=s")
    assert codes(attached) == ["+"] * 4, attached


def test_without_users_a_chain_and_dead_name_internal_topics() -> None:
    core = Core("t", "dead_letters", "handler_history")
    session = core.connect()
    core.publish("e0")
    core.type(
        session,
        'pub handler_history {"id":"h","parent":"e0","msg":1}',
        "sub handler_history as=s from=earliest tries=1 create",
    )
    core.type(session, "nack handler_history @0")
    assert "handler_history" in {event["topic"] for event in answer(core, session, "chain t @0")["events"]}
    assert [dead["subscription"] for dead in answer(core, session, "dead")] == ["s"]


def test_the_ingesters_figures_are_read_with_any_pattern(core: Core) -> None:
    assert codes(core.type(connect(core, ALICE), "read logger_stats 0")) == ["+"]


@pytest.mark.parametrize("topic", sorted(INTERNAL_TOPICS - BROKER_TOPICS))
def test_publishing_to_our_programs_topics_needs_a_pattern_that_names_it(core: Core, topic: str) -> None:
    lines = (f'pub {topic} {{"id":"x","msg":1}}', f"checkpoint {topic} p c", f"comment {topic} text")
    assert codes(core.type(connect(core, ALICE), *lines)) == ["forbidden"] * 3
    assert codes(core.type(connect(core, Access("ann", (topic,))), *lines)) == ["+", "+", "+"]


@pytest.mark.parametrize("topic", sorted(BROKER_TOPICS))
def test_only_the_broker_writes_its_own_topics_also_where_there_are_no_users(core: Core, topic: str) -> None:
    lines = (
        f'pub {topic} {{"id":"x","msg":1}}',
        f'pub2 {topic} {{"id":"x","msg":1}}',
        f"checkpoint {topic} p c",
        f"schema {topic} none",
    )
    everybody, named = core.connect(), connect(core, Access("ann", (topic,), (topic,), is_admin=True))
    core.type(everybody, "hello everybody")
    for session in (everybody, named):
        assert codes(core.type(session, *lines)) == ["forbidden"] * 4
        assert codes(core.type(session, f"retain {topic} age=30d", f"describe {topic} text")) == ["+", "+"]
    assert core.logs.by_topic[topic].next == 0


def test_an_administrator_retains_internal_topics_with_any_pattern_and_reads_none(core: Core) -> None:
    session = connect(core, BOSS)
    assert codes(core.type(session, "retain dead_letters age=30d", "read dead_letters 0")) == ["+", "forbidden"]


# The documentation


def test_the_matrix_in_the_documentation_is_the_one_in_use() -> None:
    text = (ROOT / "docs" / "reference" / "security.md").read_text()
    rows = text.partition("| verb | needs |\n| --- | --- |\n")[2].partition("\n\n")[0].splitlines()
    documented: dict[str, str] = {}
    for row in rows:
        verbs, needs = row.strip("|").split("|")
        documented |= dict.fromkeys((verb.strip().strip("`") for verb in verbs.split(",")), needs.strip())
    assert documented == {
        _WORDS.get(command.__name__, command.__name__.lower()): command.permission.value for command in COMMANDS
    }


_WORDS: Final = {
    "Publish": "pub",
    "Subscribe": "sub",
    "SubscribePattern": "sub",
    "Unsubscribe": "unsub",
    "UnsubscribePattern": "unsub",
    "Describe": "describe <text>",
    "Documentation": "describe",
    "SetSchema": "schema <json schema>",
}


def test_permissions_are_all_used() -> None:
    assert {command.permission for command in COMMANDS} == set(Permission)
