"""Events become records and come back as the same events; foreign entries become events that the broker accepts."""

import base64
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from bridge.central import Arrival
from bridge.envelope import IncomingEnvelope, Origination, OutgoingEnvelope, origination_of
from bridge.gaps import DAMAGED, Gap
from tests.bridge.records import arrival_of, stored
from tweetwire import Event
from tweetwire.protocol.event_lines import parse_event
from tweetwire.protocol.events import encode_event

A, B = "A" * 22, "B" * 22


def outgoing(**options: Any) -> OutgoingEnvelope:
    return OutgoingEnvelope("orders", A, "centre", **options)


def incoming(**options: Any) -> IncomingEnvelope:
    return IncomingEnvelope(B, "centre", "stream", **options)


def carried(event: Any, **options: Any) -> Event:
    sent = outgoing(**options).record(event)
    assert sent is not None
    value = {"value": options["value"]} if "value" in options else {}
    taken = incoming(**value).event(arrival_of(sent))
    assert taken is not None
    return taken


def test_a_record_is_a_cloud_event_in_binary_mode() -> None:
    sent = outgoing().record(stored(7, {"total": 1}, key="k", priority=9, parent="p", headers={"trace": "t"}))
    assert sent is not None
    assert sent.value == b'{"total":1}'
    assert dict(zip(sent.fields[::2], sent.fields[1::2], strict=True)) == {
        "ce_specversion": "1.0",
        "ce_id": "o-7",
        "ce_source": f"tweetwire://{A}/orders",
        "ce_type": "tweetwire.event",
        "ce_time": "2026-11-27T22:22:42.347Z",
        "ce_datacontenttype": "application/json",
        "ce_offset": "7",
        "ce_partitionkey": "k",
        "ce_priority": "9",
        "ce_parent": "p",
        "headers": '{"trace":"t"}',
        "via": A,
    }


texts = st.text(min_size=1, max_size=50)


@pytest.mark.parametrize("value", ["msg", "event"])
@given(
    id_=texts,
    msg=st.recursive(st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts, st.lists, max_leaves=5),
    key=st.just(UNSET) | st.text(max_size=20),
    parent=st.just(UNSET) | texts,
    priority=st.integers(0, 255),
    headers=st.just(UNSET) | st.dictionaries(texts.filter(lambda name: name != "via"), texts, max_size=3),
)
def test_an_event_keeps_its_members_on_its_way(value: str, id_: str, msg: Any, **members: Any) -> None:
    event = stored(3, msg, id=id_, **members)
    taken = carried(event, value=value)
    assert (taken.id, taken.key, taken.parent, taken.priority) == (id_, event.key, event.parent, event.priority)
    assert msgspec.json.decode(msgspec.json.encode(taken.msg)) == msg
    expected = {} if event.headers is UNSET else event.headers
    assert taken.headers == {**expected, "via": f"{A},centre"}
    assert parse_event(encode_event(taken)).id == id_


def test_an_event_is_not_sent_to_a_stream_or_broker_on_its_path() -> None:
    for path in (f"{B},centre", f"{B},other,{A},third", A, "centre"):
        assert outgoing().record(stored(headers={"via": path})) is None
    sent = outgoing().record(stored(headers={"via": f"{B},other", "x": "y"}))
    assert sent is not None
    fields = dict(zip(sent.fields[::2], sent.fields[1::2], strict=True))
    assert fields["via"] == f"{B},other,{A}"
    assert fields["headers"] == '{"x":"y"}'


def test_an_entry_is_not_taken_in_where_its_path_has_this_broker() -> None:
    assert incoming().event(Arrival("1-0", 1, None, b"1", {"via": f"{A},x,{B}"})) is None
    assert incoming().event(Arrival("1-0", 1, None, b"1", {"via": f"{B}x"})) is not None


def test_a_plain_record_has_no_more_than_the_bridges_need() -> None:
    sent = outgoing(kind="plain").record(stored(7, 1, key="k", headers={"x": "y"}))
    assert sent is not None
    assert sent.fields == ["origin", f"tweetwire://{A}/orders", "offset", "7", "via", A]
    assert origination_of(arrival_of(sent)) == Origination(A, "orders", 7)


def test_null_is_a_tombstone_only_if_the_route_says_so() -> None:
    assert outgoing().record(stored(1, None)).value == b"null"  # type: ignore[union-attr]
    sent = outgoing(tombstones=True).record(stored(1, None, key="k"))
    assert sent is not None
    assert (sent.key, sent.value) == ("k", None)
    assert incoming().event(arrival_of(sent)).msg is None  # type: ignore[union-attr]


@pytest.mark.parametrize("value", [b"\xff\x00", b"hello", b"", b'{"a":', b'"\xff"', b"[" * 100_000])
def test_a_payload_that_is_not_json_becomes_base64(value: bytes) -> None:
    taken = incoming().event(Arrival("1-0", 1, None, value, {}))
    assert taken is not None
    assert base64.b64decode(taken.msg) == value
    assert taken.headers == {"data-encoding": "base64", "via": "centre"}


def test_a_foreign_entry_is_named_by_its_place() -> None:
    taken = incoming().event(Arrival("5-1", 5, "k", b'{"a": 1}', {"ce_priority": "900"}))
    assert taken is not None
    assert (taken.id, taken.key, taken.priority, taken.msg) == ("stream/5-1", "k", 255, Raw(b'{"a": 1}'))
    assert origination_of(Arrival("5-1", 5, None, b"1", {})) is None


hostile = st.dictionaries(
    st.sampled_from(
        ["ce_id", "ce_offset", "ce_source", "ce_priority", "ce_parent", "ce_partitionkey", "headers", "via"]
    )
    | st.text(max_size=5),
    st.text(max_size=300) | st.just("9" * 5000) | st.just("[" * 5000) | st.just(f"tweetwire://{A}/t"),
    max_size=8,
)


@pytest.mark.parametrize("value_kind", ["msg", "event"])
@given(fields=hostile, value=st.none() | st.binary(max_size=50))
def test_no_foreign_entry_breaks_the_envelope(value_kind: str, fields: dict[str, str], value: bytes | None) -> None:
    arrival = Arrival("1-0", 1, None, value, fields)
    origination_of(arrival)
    taken = incoming(value=value_kind).event(arrival)
    assert taken is None or parse_event(encode_event(taken))


def test_a_gap_record_has_both_bounds_and_stands_at_the_last_one() -> None:
    gap = outgoing().gap(Gap(3, 9, DAMAGED), 1_700_000_000_000)
    assert gap.offset == 9
    assert origination_of(arrival_of(gap)) == Origination(A, "orders", 9, 3)
    taken = incoming().event(arrival_of(gap))
    assert taken is not None
    found = msgspec.json.decode(taken.msg)["gap"]
    assert (found["first"], found["last"], found["reason"]) == (3, 9, DAMAGED)
