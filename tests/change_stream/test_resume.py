"""A resume record contains a publisher's position, and parsing its text gives an equal record."""

import pytest
from bson import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from change_stream.resume import CopyProgress, ResumeRecord, Stamp, StreamPosition, scope_of, token_time

TOKEN = {"_data": "8265F1A2B30000000A2B022C0100296E5A1004"}
times = st.builds(Timestamp, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 2))
tokens = st.none() | st.fixed_dictionaries(
    {"_data": st.text("0123456789ABCDEF", min_size=1).map("82".__add__)},
    optional={"_typeBits": st.binary(min_size=1)},
)


copies = st.builds(CopyProgress, st.binary(), st.integers(0, 2**63), st.integers(0, 2**63))


@given(times, tokens, st.none() | copies, st.booleans())
def test_a_record_reads_back_as_it_was(
    time: Timestamp, token: dict[str, object] | None, copy: CopyProgress | None, is_lost: bool
) -> None:
    record = ResumeRecord("65f1a2b3c4d5e6f708192a3b", "0123456789ab", StreamPosition(time, token), copy, is_lost)
    assert ResumeRecord.parse(record.text()) == record
    assert '"' not in record.text()
    assert "\\" not in record.text()


def test_a_stamp_writes_the_same_as_a_record() -> None:
    time = Timestamp(1710334643, 10)
    assert Stamp("c", "s")(time, TOKEN) == ResumeRecord("c", "s", StreamPosition(time, TOKEN)).text()


@pytest.mark.parametrize(
    ("tail", "copy", "is_lost"),
    [
        ("", None, False),
        ("//lost", None, True),
        ("/-", CopyProgress(), False),
        ("/YQ==/lost", CopyProgress(b"a"), True),
    ],
)
def test_a_record_of_an_older_version_is_read(tail: str, copy: CopyProgress | None, is_lost: bool) -> None:
    record = ResumeRecord.parse(f"v1/c/s/5.7/-{tail}")
    assert record == ResumeRecord("c", "s", StreamPosition(Timestamp(5, 7)), copy, is_lost)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "v1",
        "v2/c/s/1.1/-/-",
        "v2/c/s/1.1/-/-/x/1",
        "v3/c/s/1.1/-",
        "v2/c/s/1.1/-",
        "v1/c/s/1/-",
        "v1/c/s/1.1/-/a/b",
        "v1/c/s/1.1/-//lost/x",
        "v1/c/s/x.y/-",
        "offset 5",
    ],
)
def test_a_text_that_is_not_a_record_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        ResumeRecord.parse(text)


def test_a_token_begins_with_its_cluster_time() -> None:
    assert token_time(TOKEN) == Timestamp(0x65F1A2B3, 10)


def test_a_token_of_unknown_form_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown form"):
        token_time({"_data": "9965F1A2B30000000A"})


def test_a_position_without_token_begins_behind_its_time() -> None:
    assert StreamPosition(Timestamp(5, 7)).start_options() == {"startAtOperationTime": Timestamp(5, 8)}


def test_a_position_with_a_token_begins_after_it() -> None:
    assert StreamPosition.behind(TOKEN).start_options() == {"startAfter": TOKEN}


def test_the_scope_shows_the_watched_collection_and_the_options() -> None:
    scopes = {
        scope_of("db", "a", [], {}),
        scope_of("db", "b", [], {}),
        scope_of("other", "a", [], {}),
        scope_of("db", "a", [{"$match": {}}], {}),
        scope_of("db", "a", [], {"fullDocument": "updateLookup"}),
    }
    assert len(scopes) == 5
    assert scope_of("db", "a", [], {}) in scopes
