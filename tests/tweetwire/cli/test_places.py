"""The places and times that users type."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from tweetwire.cli.places import read_place, read_time

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The local time is that of Berlin: one hour ahead of UTC in winter, two hours in summer."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", "earliest"),
        (" latest ", "latest"),
        ("@1042", 1042),
        ("1042", 1042),
        ("@0", 0),
        ("20261128", 20261128),
        ("9223372036854775807", 9223372036854775807),
        ("now", "2026-11-29T12:00:00.000Z"),
        ("10m", "2026-11-29T11:50:00.000Z"),
        ("1.5h", "2026-11-29T10:30:00.000Z"),
        ("250ms", "2026-11-29T11:59:59.750Z"),
        ("7d", "2026-11-22T12:00:00.000Z"),
        ("today", "2026-11-28T23:00:00.000Z"),
        ("yesterday", "2026-11-27T23:00:00.000Z"),
        ("yesterday 14:00", "2026-11-28T13:00:00.000Z"),
        ("14:00", "2026-11-29T13:00:00.000Z"),
        ("08:30:15", "2026-11-29T07:30:15.000Z"),
        ("2026-11-28", "2026-11-27T23:00:00.000Z"),
        ("2026-11-28 14:00", "2026-11-28T13:00:00.000Z"),
        ("2026-11-28T14:00", "2026-11-28T13:00:00.000Z"),
        ("2026-11-28T14:00:00Z", "2026-11-28T14:00:00.000Z"),
        ("2026-11-28 14:00:00.5+03:00", "2026-11-28T11:00:00.500Z"),
        ("2999-01-01T00:00:00Z", "2999-01-01T00:00:00.000Z"),
    ],
)
def test_a_place_is_read_as_people_write_it(text: str, place: int | str) -> None:
    assert read_place(text, NOW) == place


@pytest.mark.parametrize(
    ("now", "text", "at"),
    [
        # In 2026, clocks in Berlin are set forward on 29 March at 02:00, and back on 25 October at 03:00.
        ("2026-07-01T12:00:00+00:00", "14:00", "2026-07-01T12:00:00+00:00"),
        ("2026-03-30T10:00:00+00:00", "yesterday", "2026-03-28T23:00:00+00:00"),
        ("2026-10-26T10:00:00+00:00", "yesterday", "2026-10-24T22:00:00+00:00"),
        ("2026-10-26T10:00:00+00:00", "2d", "2026-10-24T10:00:00+00:00"),
        ("2026-10-26T10:00:00+00:00", "2026-10-25 02:30", "2026-10-25T00:30:00+00:00"),
        ("2026-03-30T10:00:00+00:00", "2026-03-29 02:30", "2026-03-29T01:30:00+00:00"),
    ],
)
def test_local_times_follow_daylight_saving_time(now: str, text: str, at: str) -> None:
    assert read_time(text, datetime.fromisoformat(now)) == datetime.fromisoformat(at)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "soon",
            "@",
            "@-1",
            "-1",
            "@x",
            "10",
            "10 minutes",
            "10x",
            "1e9",
            "99999999999999d",
            "25:00",
            "yesterday noon",
        ),
        *("2026-13-01", "2026-02-30", "tomorrow", "٣m", "99999999999999999999"),
    ],
)
def test_any_other_text_is_refused_with_the_ways_to_write_a_time(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time; write 10m"):
        read_time(text, NOW)
    if text != "10":
        with pytest.raises(ValueError, match="is not a place; write earliest, latest, @1042"):
            read_place(text, NOW)


def test_without_a_given_time_the_clock_is_read() -> None:
    before = datetime.now(UTC)
    assert before <= read_time("now") <= datetime.now(UTC)
