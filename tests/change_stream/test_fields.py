"""Include, exclude and rename by dotted path, in documents and in what an update touched."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from change_stream.fields import Fields

TWEET: dict[str, Any] = {
    "_id": 1,
    "text": "hi",
    "user": {"name": "a", "id": 7, "place": {"city": "x", "zip": 1}},
    "urls": [{"short": "s", "long": "l"}, {"short": "t", "long": "m"}],
}


@pytest.mark.parametrize(
    ("fields", "document"),
    [
        (Fields(), TWEET),
        (Fields(include=["text"]), {"_id": 1, "text": "hi"}),
        (Fields(include=["user.place.city"]), {"_id": 1, "user": {"place": {"city": "x"}}}),
        (Fields(include=["user", "user.name"]), {"_id": 1, "user": TWEET["user"]}),
        (Fields(include=["urls.long"]), {"_id": 1, "urls": [{"long": "l"}, {"long": "m"}]}),
        (Fields(exclude=["user", "urls"]), {"_id": 1, "text": "hi"}),
        (
            Fields(exclude=["user.place", "user.place.city", "urls"]),
            {"_id": 1, "text": "hi", "user": {"name": "a", "id": 7}},
        ),
        (
            Fields(include=["user"], exclude=["user.place.zip", "user.id"]),
            {"_id": 1, "user": {"name": "a", "place": {"city": "x"}}},
        ),
        (Fields(include=["text"], rename={"text": "body"}), {"_id": 1, "body": "hi"}),
        (
            Fields(include=["urls.long"], rename={"urls": "links", "urls.long": "to"}),
            {"_id": 1, "links": [{"to": "l"}, {"to": "m"}]},
        ),
    ],
)
def test_a_document_keeps_what_is_wanted(fields: Fields, document: dict[str, Any]) -> None:
    assert fields.document(TWEET) == document


def changed(updated: dict[str, Any], removed: list[str], truncated: list[dict[str, Any]]) -> dict[str, Any]:
    return {"updated": updated, "removed": removed, "truncated": truncated}


def test_what_an_update_touched_keeps_what_is_wanted() -> None:
    fields = Fields(exclude=["user.name", "gone"], rename={"urls.long": "to", "text": "body"})
    touched = changed(
        {"user": {"name": "b", "id": 8}, "user.name": "c", "urls.1.long": "z", "text": "x", "n": 1},
        ["gone", "gone.below", "text", "stays"],
        [{"field": "urls", "newSize": 1}, {"field": "gone", "newSize": 0}],
    )
    assert fields.changed(touched) == changed(
        {"user": {"id": 8}, "urls.1.to": "z", "body": "x", "n": 1}, ["body", "stays"], [{"field": "urls", "newSize": 1}]
    )


def test_only_included_paths_of_an_update_are_kept() -> None:
    fields = Fields(include=["user.place"])
    touched = changed(
        {"user.place.city": "y", "user": {"name": "b", "place": {"city": "q"}}, "text": "x"}, ["user.id"], []
    )
    assert fields.changed(touched) == changed({"user.place.city": "y", "user": {"place": {"city": "q"}}}, [], [])


def test_no_document_stays_none() -> None:
    assert Fields(exclude=["a"]).document(None) is None


names = st.sampled_from("abcd")
paths = st.lists(names, min_size=1, max_size=3).map(".".join)
documents = st.recursive(st.integers(), lambda inner: st.dictionaries(names, inner) | st.lists(inner), max_leaves=12)


@given(st.dictionaries(names, documents), st.lists(paths))
def test_excluding_is_including_the_rest(document: dict[str, Any], excluded: list[str]) -> None:
    """Nothing below an excluded path is left, and everything else is."""

    def leaves(value: Any, at: str) -> set[str]:
        if isinstance(value, dict):
            return {leaf for name, member in value.items() for leaf in leaves(member, f"{at}.{name}")}
        if isinstance(value, list):
            return {leaf for member in value for leaf in leaves(member, at)}
        return {at[1:]}

    def is_out(leaf: str) -> bool:
        return any(leaf == path or leaf.startswith(f"{path}.") for path in excluded)

    kept = leaves(Fields(exclude=excluded).document(document), "")
    assert kept == {leaf for leaf in leaves(document, "") if not is_out(leaf)}
