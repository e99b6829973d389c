"""A batch in columns holds exactly the records that went in, and its ids grow."""

from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from bridge.central import Record
from bridge.engines.redis_batch import packed

NAMES = ("ce_id", "ce_time", "ce_partitionkey", "headers")


def entries(batch: bytes) -> list[dict[str, str]]:
    """Return the entries of a batch as the script makes them."""
    ids, names, columns, is_sparse = msgspec.msgpack.decode(batch)
    found: list[dict[str, str]] = []
    for at in range(len(ids)):
        values: list[Any] = [column if isinstance(column, str) else column[at] for column in columns]
        assert is_sparse or None not in values
        found.append({name: value for name, value in zip(names, values, strict=True) if value is not None})
    return found


def expected(record: Record) -> dict[str, str]:
    fields = dict(zip(record.fields[::2], record.fields[1::2], strict=True))
    return fields if record.value is None else {"data": record.value.decode()} | fields


def record(offset: int, timestamp: int, value: str | None, fields: dict[str, str]) -> Record:
    raw = None if value is None else value.encode()
    return Record(offset, timestamp, None, raw, [word for pair in fields.items() for word in pair])


members = st.tuples(
    st.integers(0, 5),
    st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
    st.fixed_dictionaries({"ce_source": st.just("s")}, optional={name: st.sampled_from("abc") for name in NAMES}),
)


@given(st.lists(members, min_size=1, max_size=12))
def test_every_record_comes_out_as_it_went_in(drawn: list[tuple[int, str | None, dict[str, str]]]) -> None:
    records = [record(offset, 7 + time, value, fields) for offset, (time, value, fields) in enumerate(drawn)]
    batch = packed(records)
    assert entries(batch) == [expected(one) for one in records]
    ids = [tuple(map(int, text.split("-"))) for text in msgspec.msgpack.decode(batch)[0]]
    assert all(before < after for before, after in pairwise(ids))
    assert ids[0] == (records[0].timestamp, 0)


def test_a_field_that_is_the_same_in_all_records_is_sent_once() -> None:
    records = [record(at, 1000 + at, str(at), {"ce_source": "s" * 1000, "ce_id": f"e{at}"}) for at in range(100)]
    assert len(packed(records)) < 5000
    ids = msgspec.msgpack.decode(packed(records))[0]
    assert ids == [f"{1000 + at}-{at}" for at in range(100)]


def test_there_is_no_id_zero() -> None:
    assert msgspec.msgpack.decode(packed([record(0, 0, "v", {})]))[0] == ["0-1"]
