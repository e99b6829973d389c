"""The plot draws the windows of the last hour as a page and as a picture."""

import os
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import anyio
import msgspec
import pytest
from pydantic import ValidationError

from spark.apps.plot.page import page
from spark.apps.plot.panels import series_of
from spark.apps.plot.settings import PlotSettings
from spark.apps.plot.write import write_plot
from tests.spark.samples import others, statistics, with_totals
from tests.spark.topics import publish_others, publish_windows
from tests.support.processes import BrokerProcess
from tweetwire.statistics import TweetsWindow, UsersWindow

pytestmark = pytest.mark.stack


class Reader(HTMLParser):
    """The texts and the tags of a page that loads nothing and runs nothing."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            assert not name.startswith("on")
            assert name not in ("src", "href", "xlink:href") or str(value).startswith("#")

    def handle_data(self, data: str) -> None:
        self.texts.append(data.strip())


def plot_settings(broker: BrokerProcess, out: Path) -> PlotSettings:
    return PlotSettings(_cli_parse_args=["--broker", broker.address, "--out", str(out)])


@pytest.mark.anyio
async def test_the_last_hour_is_a_page_that_needs_nothing_else_or_a_picture(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    page, picture = folder / "stats.html", folder / "stats.png"
    await write_plot(plot_settings(broker, page), anyio.Event())
    assert Reader(page.read_text("utf-8")).texts.count("no windows") == 10
    tweets, users = with_totals(*statistics(timedelta(minutes=10)))
    for old, fresh, topic in zip(
        statistics(timedelta(hours=3)), (tweets, users), ("tweets_stats", "users_stats"), strict=True
    ):
        publish_windows(broker, topic, [*old, *fresh])
        publish_others(broker, topic, others(fresh[0]))
    await write_plot(plot_settings(broker, page), anyio.Event())
    shown = Reader(page.read_text("utf-8"))
    assert "script" not in shown.tags
    assert shown.texts[shown.texts.index("windows of tweets / users") + 1] == f"{len(tweets)} / {len(users)}"
    assert shown.texts[shown.texts.index("tweets") + 1] == str(sum(window["tweets"] for window in tweets))
    began = tweets[0]["window"]["start"][:16].replace("T", " ")
    assert shown.texts[shown.texts.index(f"tweets since {began}") + 1] == str(tweets[-1]["totals"]["tweets"])
    assert shown.texts[shown.texts.index(f"new users since {began}") + 1] == "0"
    assert "<script>alert(1)</script>" in shown.texts
    assert {"tweets per second", "followers of active users", "no windows"} & set(shown.texts) == {
        "tweets per second",
        "followers of active users",
    }
    await write_plot(plot_settings(broker, picture), anyio.Event())
    assert picture.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert sorted(os.listdir(folder)) == ["stats.html", "stats.png"]


def test_a_curve_breaks_where_windows_are_missing() -> None:
    tweets, _ = statistics(timedelta(minutes=10))
    windows = msgspec.convert([tweets[0], tweets[1], tweets[3]], list[TweetsWindow])
    series = series_of(windows, ("sentiment", "mean"))
    means = [window["sentiment"]["mean"] for window in tweets]
    assert series.values == [means[0], means[1], None, means[3]]
    assert series.times == sorted(series.times)


@pytest.mark.parametrize("word", ["Infinity", "-Infinity", "NaN"])
def test_a_figure_that_is_text_is_not_ranked(word: str) -> None:
    _, [first, *_] = statistics(timedelta(minutes=10))
    first["top_by_engagement"][0] |= {"engagement": word, "key": "w", "screen_name": "of_a_word"}
    window = msgspec.convert(first, UsersWindow)
    assert window.top_by_engagement[1].name in page([], [window], "<svg/>", "stats", datetime.now(UTC))


def test_a_file_of_another_kind_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"a picture in \.png"):
        PlotSettings(_cli_parse_args=["--out", "stats.pdf"])
