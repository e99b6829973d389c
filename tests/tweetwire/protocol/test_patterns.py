"""The grammar of patterns: the topics that they match, when two of them can match the same topic, and wrong words."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.patterns import check_topic_or_pattern, do_overlap, is_pattern, literal_start, matches


@pytest.mark.parametrize(
    ("pattern", "topics", "others"),
    [
        ("orders.*", ["orders.eu", "orders.a-b_c"], ["orders", "orders.eu.fr", "order.eu", "ordersXeu", "xorders.eu"]),
        ("orders.>", ["orders.eu", "orders.eu.fr"], ["orders", "ordersXeu", "x.orders.eu"]),
        ("*.orders", ["a.orders"], ["orders", "a.b.orders", "a.orders.b"]),
        ("a.*.c.>", ["a.b.c.d", "a.b.c.d.e"], ["a.b.c", "a.c.d.e", "a.b.d.e"]),
        ("*", ["a"], ["a.b"]),
        (">", ["a", "a.b", "a.b.c"], []),
        ("*.*.*", ["a.b.c"], ["a.b", "a.b.c.d"]),
    ],
)
def test_a_pattern_matches_whole_words(pattern: str, topics: list[str], others: list[str]) -> None:
    assert check_topic_or_pattern(pattern) == pattern
    assert is_pattern(pattern)
    assert [topic for topic in topics + others if matches(pattern, topic)] == topics


@pytest.mark.parametrize(
    "word",
    [
        *("orders*", "*x", "a.>.b", ">.a", "a>", "a..*", ".*", "*.", "**", "a.*>", ">>", "a/*", "*\x00", "é.*"),
        *("*" * 65_536, "a." * 64 + "*"),
    ],
)
def test_a_wrong_pattern_is_refused_in_one_short_line(word: str) -> None:
    with pytest.raises(Refusal, match=r"bad_name .*a whole word between dots") as refused:
        check_topic_or_pattern(word)
    assert len(str(refused.value)) < 400


def test_a_name_is_not_a_pattern() -> None:
    assert check_topic_or_pattern("orders.eu") == "orders.eu"
    assert not is_pattern("orders.eu")
    with pytest.raises(Refusal, match="bad_name"):
        check_topic_or_pattern("..")


_WORDS = st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=3)
_PATTERNS = st.builds(lambda words, end: ".".join([*words, *end]), _WORDS, st.sampled_from([[], [">"]]))
_TOPICS = [".".join(words) for count in range(1, 6) for words in product("ab", repeat=count)]


@given(one=_PATTERNS, other=_PATTERNS)
def test_two_patterns_overlap_if_a_topic_matches_both(one: str, other: str) -> None:
    both = any(matches(one, topic) and matches(other, topic) for topic in _TOPICS)
    assert do_overlap(one, other) == do_overlap(other, one) == both


@given(pattern=_PATTERNS)
def test_a_topic_that_matches_begins_like_its_pattern(pattern: str) -> None:
    assert all(topic.startswith(literal_start(pattern)) for topic in _TOPICS if matches(pattern, topic))
