"""Expressions over an event: their results, their errors, and the operations that they must refuse."""

from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from tweetwire.cli.where import DEPTH_MAX, TEXT_MAX, read_member, read_where
from tweetwire.protocol.errors import StartError

EVENT: Final[dict[str, Any]] = {
    "topic": "orders",
    "offset": 7,
    "timestamp": 1_795_818_162_340,
    "id": "o-7",
    "priority": 3,
    "key": "blue",
    "msg": {
        "user": {"id": 7, "first name": "Ada", "user-id": "u7"},
        "total": 12.5,
        "paid": True,
        "note": None,
        "tags": ["new", "big", [1, True]],
        "text": "a b\tc",
        "in": "x",
    },
}


@pytest.mark.parametrize(
    "text",
    [
        "msg.user.id == 7",
        "msg.user.id==7 and msg.paid",
        "msg.user.id != 8",
        "msg.user['first name'] == 'Ada'",
        'msg."user".id == 7',
        "msg.user.user-id == 'u7'",
        "msg.tags[0] == 'new' and msg.tags[-1][0] == 1",
        "msg.total > 12 and msg.total <= 12.5e0 and 1 < msg.total",
        "id >= 'o-6' and id < 'o-8'",
        "key in ['red', \"blue\"]",
        "not key in ['red']",
        "key not in ['red']",
        "msg.tags contains 'big'",
        "'big' in msg.tags",
        "msg.text ~ 'b\\tc'",
        "msg.user contains 'id'",
        "msg.in == 'x'",
        "msg.note == null",
        "exists msg.note and not exists msg.other",
        "msg.other == 1 or offset == 7",
        "(priority == 3 or msg.other == 1) and not (priority == 4)",
        "not not msg.paid",
        "msg.tags[2] == [1, true]",
        "offset == 7.0",
        "true",
    ],
)
def test_an_expression_is_true(text: str) -> None:
    assert read_where(text)(EVENT)


@pytest.mark.parametrize(
    "text",
    [
        "msg.user.id == '7'",
        "msg.user.id == true",
        "msg.tags[2] == [true, 1]",
        "msg.paid == 1",
        "msg.text < 5",
        "5 < msg.text",
        "msg.paid < 5",
        "msg.note > null",
        "msg.user == 7",
        "msg.user ~ 7",
        "msg.total contains 1",
        "msg.note",
        "priority == 3 and key == 'red'",
        "false or null",
        "exists msg.tags[3]",
    ],
)
def test_an_expression_is_false(text: str) -> None:
    assert not read_where(text)(EVENT)


@pytest.mark.parametrize(
    "text",
    [
        "msg.other == 1",
        "msg.other != 1",
        "not msg.other == 1",
        "not msg.other",
        "msg.other == null",
        "msg.user.id.more == 1",
        "msg.tags.name == 1",
        "msg.tags[9] != 1",
        "msg.user[0] != 1",
        "parent != 'a'",
        "msg.other in ['a']",
        "msg.other not in ['a']",
        "msg.other == msg.another",
        "priority == 3 and msg.other == 1",
    ],
)
def test_a_missing_member_makes_an_expression_false(text: str) -> None:
    assert not read_where(text)(EVENT)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "a member or a value is expected at character 1, and the end is there"),
        ("msg.user.id = 7", "'= 7' at character 13 is not part of an expression; write =="),
        ("msg.user.id ==", "a member or a value is expected at character 15"),
        ("mgs.user == 7", "an event has no member 'mgs'; it has topic, offset"),
        ("key == red", "an event has no member 'red'"),
        ("(key == 'a'", ") is expected at character 12, and the end is there"),
        ("key == 'a' key", "and, or, or the end is expected at character 12, and 'key' is there"),
        ("1 < priority < 5", "is expected at character 14, and '<' is there"),
        ("msg[key] == 1", "an index or a name in quotes is expected"),
        ("msg[1.5] == 1", "an index or a name in quotes is expected"),
        ("key == 'a", '"\'a" at character 8 is not part of an expression'),
        ("msg.f()", "'(' is there"),
        ("msg ** 9", "'** 9' at character 5 is not part of an expression"),
        ("exists 5", "a member or a value is expected"),
        ("not", "and the end is there"),
        ("7up == 1", "'7up == 1' at character 1 is not part"),
    ],
)
def test_a_mistake_is_reported_in_one_sentence_with_its_place(text: str, sentence: str) -> None:
    with pytest.raises(StartError) as caught:
        read_where(text)
    assert str(caught.value).startswith("--where: ")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_expression_has_a_bounded_size_and_depth() -> None:
    with pytest.raises(StartError, match=f"it can have {TEXT_MAX}"):
        read_where("1" * (TEXT_MAX + 1))
    with pytest.raises(StartError, match=f"more than {DEPTH_MAX} parentheses"):
        read_where("(" * (DEPTH_MAX + 1))
    with pytest.raises(StartError, match=f"more than {DEPTH_MAX} parentheses"):
        read_where("[" * (DEPTH_MAX + 1))
    assert read_where("(" * DEPTH_MAX + "offset == 7" + ")" * DEPTH_MAX)(EVENT)
    assert read_where("not " * 1000 + "true")(EVENT)
    assert read_where(" or ".join(["false"] * 400) + " or true")(EVENT)
    assert read_where(f"{'9' * TEXT_MAX}")(EVENT)


def test_the_path_of_a_member_gives_its_value() -> None:
    assert read_member("msg.tags[1]", "--format")(EVENT) == "big"
    assert read_member("parent", "--format")(EVENT) is UNSET
    with pytest.raises(StartError, match=r"--format: a dot, \[ or the end is expected at character 5"):
        read_member("key == 1", "--format")


WORDS: Final = (
    *(
        "msg",
        "msg.user.id",
        "key",
        "and",
        "or",
        "not",
        "in",
        "contains",
        "exists",
        "~",
        "==",
        "!=",
        "<",
        ">=",
        "(",
        ")",
    ),
    *(
        "[",
        "]",
        ",",
        ".",
        "'a'",
        '"b"',
        "1",
        "-2.5e3",
        "true",
        "false",
        "null",
        "__class__",
        "msg.__class__",
        "$",
        "9" * 99,
    ),
)
JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=600)
@given(st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join) | st.text(max_size=40), JSON)
@example("msg", float("inf"))
def test_any_text_is_an_expression_or_one_sentence_and_its_result_is_a_truth_value(text: str, msg: Any) -> None:
    sentence = ""
    try:
        result = read_where(text)({**EVENT, "msg": msg})
    except StartError as error:
        sentence = str(error)
    assert "\n" not in sentence
    assert sentence.startswith("--where") or result in {True, False}


VALUES: Final = {"a": 1, "b": 2}


@given(
    st.recursive(
        st.sampled_from([("msg.a == 1", True), ("msg.b == 1", False), ("msg.c == 1", None)]),
        lambda inner: st.one_of(
            inner.map(lambda one: (f"not ({one[0]})", None if one[1] is None else not one[1])),
            st.tuples(inner, inner).map(
                lambda two: (
                    f"({two[0][0]}) and ({two[1][0]})",
                    False if False in (two[0][1], two[1][1]) else None if None in (two[0][1], two[1][1]) else True,
                )
            ),
            st.tuples(inner, inner).map(
                lambda two: (
                    f"({two[0][0]}) or ({two[1][0]})",
                    True if True in (two[0][1], two[1][1]) else None if None in (two[0][1], two[1][1]) else False,
                )
            ),
        ),
        max_leaves=12,
    )
)
def test_and_or_and_not_have_three_values(case: tuple[str, bool | None]) -> None:
    text, expected = case
    assert read_where(text)({"msg": VALUES}) is (expected is True)
