"""Scores agree with their definitions."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

from sse_ingest.scoring import engagement, lexicon_scorer, parse_emotion_values, vader_scorer
from sse_ingest.simulator.emotions import emotion_values
from tests.support.recordings import invented, recorded


def test_vader_gives_the_compound_score() -> None:
    text = "I love this, it is GREAT!!! :)"
    assert vader_scorer()(text) == VADER.polarity_scores(text)["compound"]
    assert vader_scorer()(text) > 0.5
    assert vader_scorer()("this is terrible") < 0
    assert vader_scorer()("") == 0.0


VADER = SentimentIntensityAnalyzer()
WORDS = (
    "good BAD love Hate no No not never without doubt so this least at very kind of sort but BUT or nor isn't VERY really "
    "yeah right bus stop the shit kiss death bad ass to die for great! horrible?? :) :( x 😀 💔😀 x😂 ö😀 ❤ ☺️ 日本 !!! '\u2003"
)


@given(
    st.lists(
        st.one_of(*map(st.sampled_from, (WORDS.split(" "), sorted(VADER.lexicon))), st.text(max_size=4)), max_size=14
    )
)
def test_the_compound_score_is_vaders_own_whatever_the_words(words: list[str]) -> None:
    text = " ".join(words)
    assert vader_scorer()(text) == VADER.polarity_scores(text)["compound"]


@pytest.mark.parametrize(
    ("path", "least"), [*invented("tweets/shapes.jsonl", 10), *recorded("tweets/shapes-2006-2018.jsonl", 100)]
)
def test_the_compound_score_of_a_files_tweets_is_vaders_own(path: Path, least: int) -> None:
    lines = path.read_bytes().splitlines()
    texts = [tweet["text"] for tweet in map(msgspec.json.decode, lines[:300]) if isinstance(tweet.get("text"), str)]
    assert len(texts) > least
    assert [vader_scorer()(text) for text in texts] == [VADER.polarity_scores(text)["compound"] for text in texts]


def test_the_lexicon_score_is_the_sum_divided_by_the_number_of_words() -> None:
    score = lexicon_scorer({"good": 3, "bad": -3, "cool stuff": 3})
    assert score("good, but BAD bad!") == pytest.approx(-3 / 4)
    assert score("cool stuff here") == pytest.approx(1)
    assert score("cool cats") == 0
    assert score("") == 0


@given(st.text())
def test_any_text_has_scores_in_range(text: str) -> None:
    assert -1 <= vader_scorer()(text) <= 1
    assert -5 <= lexicon_scorer({"good": 5, "bad": -5})(text) <= 5


def test_emotion_values_are_read_with_any_line_end_and_a_bad_line_is_named() -> None:
    assert parse_emotion_values("good\t3\r\ncan't stand\t-3\r\n\r\n") == {"good": 3, "can't stand": -3}
    for line in ("bad -3", "bad\tnan", "bad\t-inf", "bad\tx"):
        with pytest.raises(ValueError, match="line 2"):
            parse_emotion_values(f"good\t3\n{line}\n")


def test_the_simulators_word_list_has_the_servers_form() -> None:
    values = parse_emotion_values(emotion_values().decode())
    assert len(values) > 2000
    assert all(-5 <= value <= 5 for value in values.values())
    assert emotion_values().endswith(b"\r\n")
    assert any(" " in word for word in values)


@pytest.mark.parametrize(
    ("path", "count", "word", "value"),
    [
        *invented("rtp-server/emotion_values.txt", 8, "can't bear", -3),
        *recorded("rtp-server/emotion_values.txt", 2477, "abandon", -2),
    ],
)
def test_the_servers_word_list_is_read(path: Path, count: int, word: str, value: float) -> None:
    values = parse_emotion_values(path.read_bytes().decode())
    assert len(values) == count
    assert values[word] == value


@pytest.mark.parametrize(("counts", "expected"), [((3, 1, 8), 0.5), ((3, 1, 0), 4.0), ((0, 0, 0), 0.0)])
def test_engagement_with_and_without_followers(counts: tuple[int, int, int], expected: float) -> None:
    assert engagement(*counts) == expected
