"""Trees of events that name their parents, across topics."""

import json
from typing import Any

import pytest

from broker.core import Access, Session
from broker.core.verbs.chains import Chains
from tests.broker.core.harness import Core
from tests.support.processes import BrokerProcess
from tweetwire import Event, SyncClient
from tweetwire.cli import main


def publish_child(core: Core, session: Session, topic: str, id_: str, parent: str | None = None) -> None:
    core.now_ms += 1
    event = {"id": id_, "msg": {"parent": "not this one", "id": "nor this"}} | ({"parent": parent} if parent else {})
    (reply,) = core.type(session, f"pub {topic} {json.dumps(event)}")
    assert reply.startswith("+OK pub ")


def chain(core: Core, session: Session, topic: str, ref: str, options: str = "") -> Any:
    (reply,) = core.type(session, f"chain {topic} {ref}{options}")
    assert reply.startswith(f"+OK chain {topic} "), reply
    return json.loads(reply.split(" ", 3)[3])


def shape(tree: Any) -> list[tuple[int, str, str]]:
    return [(event["depth"], event["topic"], event["id"]) for event in tree["events"]]


def family() -> tuple[Core, Session]:
    core = Core()
    session = core.connect()
    publish_child(core, session, "orders", "order")
    publish_child(core, session, "payments", "paid", "order")
    publish_child(core, session, "parcels", "sent", "paid")
    publish_child(core, session, "mails", "thanks", "paid")
    publish_child(core, session, "payments", "refused", "order")
    publish_child(core, session, "orders", "other")
    return core, session


TREE = [
    (0, "orders", "order"),
    (1, "payments", "paid"),
    (2, "parcels", "sent"),
    (2, "mails", "thanks"),
    (1, "payments", "refused"),
]


@pytest.mark.parametrize(
    ("topic", "ref"), [("orders", "order"), ("parcels", "sent"), ("payments", "@1"), ("mails", "@0")]
)
def test_each_event_of_a_family_has_the_same_tree(topic: str, ref: str) -> None:
    core, session = family()
    tree = chain(core, session, topic, ref)
    assert shape(tree) == TREE
    assert tree["asked"]["topic"] == topic
    assert (tree["is_whole"], tree["unknown_parent"]) == (True, None)
    assert shape(chain(core, session, "orders", "other")) == [(0, "orders", "other")]


def test_a_later_event_is_in_the_next_answer() -> None:
    core, session = family()
    chain(core, session, "orders", "order")
    publish_child(core, session, "mails", "late", "refused")
    assert shape(chain(core, session, "mails", "late")) == [*TREE, (2, "mails", "late")]


def test_an_id_of_several_events_means_the_newest_one_before_its_child() -> None:
    core = Core()
    session = core.connect()
    for id_, parent in (("a", None), ("b", "a"), ("a", None), ("c", "a"), ("a", "a")):
        publish_child(core, session, "t", id_, parent)
    assert shape(chain(core, session, "t", "@0")) == [(0, "t", "a"), (1, "t", "b")]
    assert [event["offset"] for event in chain(core, session, "t", "a")["events"]] == [2, 3, 4]


def test_two_events_that_name_each_other_cause_no_endless_loop() -> None:
    core = Core()
    session = core.connect()
    events = (
        json.dumps({"id": id_, "parent": parent, "msg": 1}) for id_, parent in (("a", "b"), ("b", "a"), ("c", "c"))
    )
    core.type(session, *(f"pub t {event}" for event in events))
    assert {event["id"] for event in chain(core, session, "t", "a")["events"]} == {"a", "b"}
    assert shape(chain(core, session, "t", "c")) == [(0, "t", "c")]


def test_a_missing_parent_is_named_and_a_long_chain_is_cut() -> None:
    core = Core()
    session = core.connect()
    publish_child(core, session, "t", "n0", "long gone")
    for number in range(1, 3000):
        publish_child(core, session, "t", f"n{number}", f"n{number - 1}")
    tree = chain(core, session, "t", "n2999")
    assert (len(tree["events"]), tree["is_whole"], tree["unknown_parent"]) == (1000, False, "long gone")
    assert len(chain(core, session, "t", "n2999", " limit=100000")["events"]) == 3000


def test_the_index_keeps_the_newest_events_of_all_topics_and_no_more() -> None:
    core = Core()
    session = core.connect()
    core.broker._verbs.reporting.chains = index = Chains(events_max=100)
    publish_child(core, session, "quiet", "rare")
    for number in range(300):
        publish_child(core, session, "busy", f"n{number}", "rare")
    tree = chain(core, session, "quiet", "rare")
    assert len(tree["events"]) == 100
    assert len(index._order) == 100
    for number in range(300, 350):
        publish_child(core, session, "busy", f"n{number}", "rare")
    tree = chain(core, session, "busy", "n349")
    assert tree["unknown_parent"] == "rare"
    assert (len(index._order), len(index._by_id), len(index._by_parent)) == (100,) * 3


def test_a_chain_leaves_out_events_that_the_user_may_not_read() -> None:
    core, session = family()
    session.access = Access("ann", subscribe=("p*",))
    assert shape(chain(core, session, "parcels", "sent")) == [(0, "payments", "paid"), (1, "parcels", "sent")]
    assert core.type(session, "chain mails thanks") == ["-ERR forbidden ann needs a subscribe pattern for mails"]


def test_a_chain_of_an_unknown_event_is_refused() -> None:
    core, session = family()
    assert core.type(session, "chain orders nobody", "chain orders @7", "chain nowhere @1", "ping") == [
        "-ERR no_event no event of orders has the id nobody",
        "-ERR no_event orders has the offsets 0 to 1",
        "-ERR unknown_topic there is no topic nowhere",
        "+PONG",
    ]


def test_the_command_line_draws_the_tree(broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    with SyncClient(broker.address) as client:
        client.publish("orders", Event(id="order", msg=1))
        client.publish("payments", Event(id="paid", msg=1, parent="order"))
        client.publish("mails", Event(id="\x1b[31mthanks", msg=1, parent="paid"))
    assert main(["chain", "payments", "paid", "--broker", broker.address]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[: line.index(" @")] for line in lines] == [
        "order orders",
        "└── paid payments",
        "    └── \\x1b[31mthanks mails",
    ]
    assert main(["chain", "payments", "paid", "--json", "--broker", broker.address]) == 0
    assert [event["depth"] for event in json.loads(capsys.readouterr().out)["events"]] == [0, 1, 2]
