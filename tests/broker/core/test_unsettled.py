"""Compare the pages of ``unsettled`` with the delivery model: the events that a subscription has not settled."""

import json
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import invariant

from broker.core import Session
from tests.broker.core.harness import Core
from tests.broker.core.test_core_model import Delivery
from tweetwire.protocol import parse_lines
from tweetwire.protocol.errors import Refusal


def unsettled(core: Core, session: Session, options: str = "") -> dict[str, Any]:
    (reply,) = core.type(session, f"unsettled t as=s {options}")
    assert reply.startswith("+OK unsettled t {"), reply
    answer: dict[str, Any] = json.loads(reply.split(" ", 3)[3])
    return answer


def paged(core: Core, limit: int) -> list[int]:
    session = core.connect()
    offsets: list[int] = []
    start: int | None = 0
    while start is not None:
        page = unsettled(core, session, f"from={start} limit={limit}")
        some = [offset for first, last in page["offsets"] for offset in range(first, last + 1)]
        assert len(some) == limit or page["next"] is None
        offsets += some
        start = page["next"]
    core.disconnect(session)
    return offsets


class Unsettled(Delivery):
    """After every step, all pages together list the events that the model has as waiting, delayed or in flight."""

    @invariant()
    def the_pages_are_what_is_neither_settled_nor_dead(self) -> None:
        if hasattr(self, "core"):
            expected = sorted(offset for offset, place in self.place.items() if place not in {"settled", "dead"})
            assert paged(self.core, 3) == paged(self.core, 1000) == expected


UnsettledTest = Unsettled.TestCase
UnsettledTest.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def test_neighbours_of_all_priorities_are_reported_as_one_run() -> None:
    core = Core("t")
    session = core.connect()
    core.type(session, "sub t as=s", *(f'pub t {{"id":"{n}","priority":{n % 3},"msg":{n}}}' for n in range(9)))
    assert unsettled(core, session) == {"offsets": [[0, 8]], "next": None}
    assert unsettled(core, session, "from=7") == {"offsets": [[7, 8]], "next": None}
    assert unsettled(core, session, "limit=4") == {"offsets": [[0, 3]], "next": 4}


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"unsettled t", "bad_arguments"),
        (b"unsettled t from=1", "bad_arguments"),
        (b"unsettled t as=s limit=0", "bad_arguments"),
        (b"unsettled t as=s from=-1", "bad_arguments"),
        (b"unsettled t as=.s", "bad_name"),
    ],
)
def test_a_wrong_question_is_refused(line: bytes, code: str) -> None:
    (refusal,) = parse_lines([line], 1 << 20)
    assert isinstance(refusal, Refusal)
    assert refusal.code == code


def test_unknown_topics_and_subscriptions_are_refused() -> None:
    core = Core("t")
    session = core.connect()
    assert core.type(session, "unsettled t as=s") == ["-ERR not_subscribed t has no subscription s"]
    assert core.type(session, "unsettled u as=s") == ["-ERR unknown_topic there is no topic u"]
