"""The report shows the stored tweets, and no text of a tweet runs as code in the reader's browser."""

import os
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymongo.database import Database

from sse_ingest.account import SourceAccount
from sse_ingest.report.figures import Curves, ReportFigures, step_of
from sse_ingest.report.page import page
from sse_ingest.report.settings import ReportSettings
from sse_ingest.report.write import write_report
from sse_ingest.store import Store
from tests.sse_ingest.samples import status, user
from tests.sse_ingest.stored import batch_of
from tweetwire.protocol.errors import StartError

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Reader(HTMLParser):
    """Collects the texts of a page, the paths of its drawings, and its tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.paths: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert not any(name.startswith("on") or name in ("src", "href") for name, _ in attrs)
        if tag == "path":
            self.paths.append(str(dict(attrs)["d"]))

    def handle_data(self, data: str) -> None:
        self.texts.append(data.strip())


def settings(mongo_url: str, database: str, output: Path, **members: Any) -> ReportSettings:
    return ReportSettings(_cli_parse_args=[], mongo_url=mongo_url, database=database, output=output, **members)


@pytest.mark.anyio
async def test_stored_tweets_are_shown(
    store: Store, mongo_url: str, database: Database[dict[str, Any]], tmp_path: Path
) -> None:
    tagged = {"hashtags": [{"text": "fun"}, {"text": "<script>alert(1)</script>"}]}
    items = [status(number, entities=tagged, user=user(number % 3 + 1)) for number in range(1, 41)]
    await store.store_batch(batch_of(SourceAccount(), *items))
    await store.store_batch(batch_of(SourceAccount(), status(99, lang=None)))
    await write_report(settings(mongo_url, database.name, tmp_path / "report.html"), anyio.Event())
    shown = Reader((tmp_path / "report.html").read_text("utf-8"))
    assert "script" not in shown.tags
    assert shown.texts[shown.texts.index("tweets") + 1] == "41"
    assert shown.texts[shown.texts.index("authors") + 1] == "3"
    assert shown.texts[shown.texts.index("fun") + 1] == "40"
    assert shown.texts[shown.texts.index("<script>alert(1)</script>") + 1] == "40"
    assert shown.texts[shown.texts.index("unknown") + 1] == "1"
    assert "+0.250" in shown.texts
    assert [path.startswith("M48.0 ") for path in shown.paths] == [True, True]
    assert os.listdir(tmp_path) == ["report.html"]


@pytest.mark.anyio
async def test_an_empty_database_has_a_page_too_and_old_tweets_can_be_left_out(
    store: Store, mongo_url: str, database: Database[dict[str, Any]], tmp_path: Path
) -> None:
    output = tmp_path / "report.html"
    await write_report(settings(mongo_url, database.name, output), anyio.Event())
    assert "nothing is stored" in output.read_text()
    await store.store_batch(batch_of(SourceAccount(), status(1), status(2)))
    database.tweets.update_one({"_id": "1"}, {"$set": {"ingested_at": datetime.now(UTC) - timedelta(hours=2)}})
    await write_report(settings(mongo_url, database.name, output, last="1h"), anyio.Event())
    texts = Reader(output.read_text("utf-8")).texts
    assert texts[texts.index("tweets") + 1] == "1"
    await write_report(settings(mongo_url, database.name, output, last="99999999h"), anyio.Event())
    texts = Reader(output.read_text("utf-8")).texts
    assert texts[texts.index("tweets") + 1] == "2"


@pytest.mark.anyio
async def test_an_invalid_database_name_is_reported_in_one_sentence(mongo_url: str, tmp_path: Path) -> None:
    with pytest.raises(StartError, match="--database: database names cannot contain"):
        await write_report(settings(mongo_url, "a b", tmp_path / "report.html"), anyio.Event())
    with pytest.raises(StartError, match="--database: database names cannot contain"):
        await Store.open(mongo_url, "a b", 10.0)


@pytest.mark.anyio
async def test_a_file_that_cannot_be_written_is_reported_in_one_sentence(
    store: Store, mongo_url: str, database: Database[dict[str, Any]], tmp_path: Path
) -> None:
    with pytest.raises(StartError, match="cannot write"):
        await write_report(settings(mongo_url, database.name, tmp_path / "nowhere" / "report.html"), anyio.Event())


@given(st.datetimes(), st.integers(0, 10**9), st.integers(2, 100))
def test_steps_reach_from_the_first_tweet_beyond_the_last(first: datetime, span_ms: int, steps: int) -> None:
    first = first.replace(year=2026)
    last = first + timedelta(milliseconds=span_ms)
    step = step_of(first, last, steps)
    assert first + steps * step > last
    assert step >= timedelta(milliseconds=1)


def test_a_curve_is_broken_where_nothing_was_stored() -> None:
    curves = Curves(
        [NOW + timedelta(seconds=place) for place in range(5)], 1.0, [1, 0, 0, 2, 4], [0.0, None, None, 1.0, -1.0]
    )
    figures = ReportFigures(7, 1, 0, 0.0, curves, [], [], [], [], [], [])
    rates, sentiment = Reader(page(figures, "t", NOW)).paths
    assert rates.count("M") == 1
    assert sentiment.count("M") == 2
    assert sentiment.count("L") == 1


@pytest.mark.parametrize(
    ("step", "rate", "shown"), [(1, 1310.5, {"1,310", "655", "00:00:04"}), (86_400, 4.25, {"4.25", "2026-01-05 00:00"})]
)
def test_scales_can_be_read_whatever_the_rate_and_the_time(step: int, rate: float, shown: set[str]) -> None:
    times = [NOW + timedelta(seconds=place * step) for place in range(5)]
    curves = Curves(times, float(step), [rate] * 5, [0.0] * 5)
    assert shown <= set(Reader(page(ReportFigures(7, 1, 0, 0.0, curves, [], [], [], [], [], []), "t", NOW)).texts)
