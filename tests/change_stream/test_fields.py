"""Include, exclude and rename by dotted path, in documents and in update descriptions."""

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import assume, given, settings
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


def test_an_update_keeps_the_included_members() -> None:
    fields = Fields(exclude=["user.name", "gone"], rename={"urls.long": "to", "text": "body"})
    touched = changed(
        {"user": {"name": "b", "id": 8}, "user.name": "c", "urls.1.long": "z", "text": "x", "n": 1},
        ["gone", "gone.below", "text", "stays"],
        [{"field": "urls", "newSize": 1}, {"field": "gone", "newSize": 0}],
    )
    assert fields.changed(touched, {}) == changed(
        {"user": {"id": 8}, "urls.1.to": "z", "body": "x", "n": 1}, ["body", "stays"], [{"field": "urls", "newSize": 1}]
    )


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        (Fields(exclude=["a.b"]), "a.0.b"),
        (Fields(exclude=["a.0.b"]), "a.0.b"),
        (Fields(include=["a.b"]), "a.0.b"),
        (Fields(rename={"a.b": "c"}), "a.0.b"),
        (Fields(exclude=["a.b"]), "a.0"),
    ],
)
def test_a_path_whose_digits_decide_is_left_out_and_counted(fields: Fields, path: str) -> None:
    value = 1 if path.endswith("b") else {"b": 1}
    assert fields.changed(changed({path: value}, [], [])) == changed({}, [], []) | {"unclear": 1}
    assert fields.changed(changed({}, [path], [{"field": path, "newSize": 1}])).get("unclear", 0) in {0, 2}


def test_a_path_whose_digits_do_not_decide_is_kept() -> None:
    fields = Fields(exclude=["secret"])
    touched = changed({"a.0.b": 1, "c.0.1.2": {"d": 1}}, ["a.1"], [{"field": "a.2", "newSize": 1}])
    assert fields.changed(touched) == touched


@pytest.mark.parametrize(
    ("known", "kept"),
    [
        ({}, {}),
        ({"a.0.b": ["a", "0", "b"]}, {"a.0.b": 1}),
        ({"a.0.b": ["a", 0, "b"]}, {}),
        ({"a.0.b": ["a", "0.b"]}, {"a.0.b": 1}),
    ],
)
def test_a_server_that_disambiguates_paths_is_believed(known: dict[str, Any], kept: dict[str, Any]) -> None:
    assert Fields(exclude=["a.b"]).changed(changed({"a.0.b": 1}, [], []), known) == changed(kept, [], [])


def test_a_name_with_a_dot_is_the_path_that_it_spells() -> None:
    document = {"_id": 1, "a.b": "secret", "a": {"b": "secret", "b.c": "secret", "d": 1}, "a.d": 2}
    fields = Fields(exclude=["a.b"], rename={"a.d": "e"})
    assert fields.document(document) == {"_id": 1, "a": {"e": 1}, "a.e": 2}
    assert fields.changed(changed({"a.b": "secret", "a.d": 2}, [], [])) == changed({"a.e": 2}, [], [])


def test_digits_in_a_document_are_a_name_and_positions_are_not_counted() -> None:
    document = {"_id": 1, "a": {"0": {"b": 1}, "b": 2}, "c": [{"b": 3}, [{"b": 4}]], "0": 5}
    assert Fields(exclude=["a.b", "c.b"]).document(document) == {
        "_id": 1,
        "a": {"0": {"b": 1}},
        "c": [{}, [{}]],
        "0": 5,
    }


def test_a_value_on_the_way_to_an_included_path_is_not_kept() -> None:
    fields = Fields(include=["a.b"])
    assert fields.document({"_id": 1, "a": "secret"}) == {"_id": 1}
    assert fields.document({"_id": 1, "a": ["secret", {"b": 1, "c": 2}]}) == {"_id": 1, "a": [None, {"b": 1}]}
    assert fields.changed(changed({"a": "secret"}, [], [])) == changed({}, ["a"], [])
    assert fields.changed(changed({"a.3": "secret"}, [], []), {}) == changed({"a.3": None}, [], [])


def test_a_member_gives_way_to_one_that_is_renamed_to_its_name() -> None:
    fields = Fields(rename={"text": "body", "a": "b", "b": "a"})
    assert fields.document({"_id": 1, "text": 1, "body": 2, "a": 3, "b": 4}) == {"_id": 1, "body": 1, "b": 3, "a": 4}
    assert fields.changed(changed({"text": 1, "body": 2}, [], [])) == changed({"body": 1}, [], [])
    with pytest.raises(ValueError, match="two members are renamed to "):
        Fields(rename={"a": "c", "b": "c"})


def test_a_path_of_very_many_positions_is_read_at_once() -> None:
    path = ".".join(["a", *"0" * 100, "b"])
    fields = Fields(exclude=["a.0.0.b"], rename={"a.0.c": "d"})
    assert fields.changed(changed({path: 1}, [], [])) == changed({}, [], []) | {"unclear": 1}


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
    """All values below an excluded path are removed, and all other values stay."""

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


member_names = st.sampled_from(["a", "b", "c", "0", "1", "a.b", "0.a", "b.0", ""])
flag_paths = st.lists(st.sampled_from(["a", "b", "c", "0", "1"]), min_size=1, max_size=3).map(".".join)
shapes = st.recursive(
    st.none(),
    lambda inner: st.dictionaries(member_names, inner, max_size=4) | st.lists(inner, max_size=3),
    max_leaves=12,
)
Spot = tuple[str | int, ...]


def spots(value: Any, at: Spot = ()) -> dict[Spot, Any]:
    """Return every value of a document by its path. A path has names, and numbers for array positions."""
    found = {at: value} if at else {}
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, member in members:
        found |= spots(member, (*at, name))
    return found


def marked(shape: Any, at: Spot = ()) -> Any:
    """Return a document of this shape in which each value is its own path, so that all values differ."""
    if isinstance(shape, dict):
        return {name: marked(member, (*at, name)) for name, member in shape.items()}
    if isinstance(shape, list):
        return [marked(item, (*at, n)) for n, item in enumerate(shape)]
    return repr(at)


def is_wanted(spot: Spot, include: list[str], exclude: list[str]) -> bool:
    """Return whether a value must be kept according to the documentation, without using the code under test."""
    path = ".".join(name for name in spot if isinstance(name, str)) + "."
    is_in = not include or any(path.startswith(f"{one}.") for one in ["_id", *include])
    return is_in and not any(path.startswith(f"{one}.") for one in exclude)


def text_of(spot: Spot) -> str:
    return ".".join(map(str, spot))


@settings(max_examples=1000)
@given(
    st.dictionaries(member_names, shapes, max_size=5),
    st.lists(flag_paths, max_size=2),
    st.lists(flag_paths, max_size=3),
    st.dictionaries(flag_paths, st.sampled_from(["x", "y"]), max_size=2),
    st.booleans(),
)
def test_excluded_members_are_nowhere_and_document_and_changes_agree(
    shape: dict[str, Any], include: list[str], exclude: list[str], rename: dict[str, str], is_known: bool
) -> None:
    """Each value is set by a separate update, which must keep the value exactly where the converted document keeps it."""
    assume(len({(path.rpartition(".")[0], name) for path, name in rename.items()}) == len(rename))
    fields, document = Fields(include, exclude, rename), marked(shape)
    every = spots(document)
    texts = Counter(map(text_of, every))
    # Two members with the same dotted text cannot both be set by one update, since MongoDB cannot name them either.
    single = {spot: value for spot, value in every.items() if texts[text_of(spot)] == 1}
    known = {text_of(spot): list(spot) for spot in single if is_known}
    kept = fields.document(document)
    left = {spot for spot, value in every.items() if value == repr(spot) and not is_wanted(spot, include, exclude)}
    touched = {text_of(spot): value for spot, value in single.items()}
    told = fields.changed(changed(touched, [], []), known if is_known else None)
    line = json.dumps([kept, told])
    assert not [spot for spot in left if json.dumps(repr(spot)) in line]
    shown: dict[str, list[Any]] = {}
    for spot, value in spots(kept).items():
        shown.setdefault(text_of(spot), []).append(value)
    for path, value in told["updated"].items():
        assert value in shown[path]
    if is_known:
        assert "unclear" not in told
        wanted = {repr(spot) for spot in single} & set(strings(kept))
        assert wanted <= set(strings(told["updated"]))


def strings(value: Any) -> list[str]:
    return [found for found in spots(value).values() if isinstance(found, str)]
