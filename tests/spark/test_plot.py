"""The last hour as a page and as a picture, and what the console shows: of windows that the topics hold."""

import io
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import anyio
import pytest
from pydantic import ValidationError
from rich.console import Console

from broker import Event, SyncClient
from spark.console import ConsoleSettings, show
from spark.plot.panels import series_of
from spark.plot.settings import PlotSettings
from spark.plot.write import write_plot
from tests.processes import BrokerProcess
from tests.spark import reference, samples
from tests.spark.reference import Row

WINDOW_MS = 10_000

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


def statistics(ago: timedelta) -> tuple[list[Row], list[Row]]:
    """Both statistics of four windows, the first of which began so long ago; one hashtag is a trap."""
    start = round((datetime.now(UTC) - ago).timestamp() * 1000) // WINDOW_MS * WINDOW_MS
    made = samples.changes(400, start=start, span_ms=4 * WINDOW_MS)
    for change in made[:100]:
        change["document"]["hashtags"] = ["<script>alert(1)</script>"]
    rows = [samples.row(offset, change, arrived=change["at"] + 20) for offset, change in enumerate(made)]
    computed = reference.tweets_stats(rows, WINDOW_MS), reference.users_stats(rows, WINDOW_MS)
    return [one for _, one in sorted(computed[0].items())], [one for _, one in sorted(computed[1].items())]


def publish(broker: BrokerProcess, topic: str, windows: Sequence[Row]) -> None:
    events = [Event(id=f"{topic}:{window['window']['start']}", msg=window) for window in windows]
    with SyncClient(broker.address) as client:
        client.publish_many(topic, events)


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
    tweets, users = statistics(timedelta(minutes=10))
    for old, fresh, topic in zip(
        statistics(timedelta(hours=3)), (tweets, users), ("tweets_stats", "users_stats"), strict=True
    ):
        publish(broker, topic, [*old, *fresh])
    await write_plot(plot_settings(broker, page), anyio.Event())
    shown = Reader(page.read_text("utf-8"))
    assert "script" not in shown.tags
    assert shown.texts[shown.texts.index("windows of tweets / users") + 1] == f"{len(tweets)} / {len(users)}"
    assert shown.texts[shown.texts.index("tweets") + 1] == str(sum(window["tweets"] for window in tweets))
    assert "<script>alert(1)</script>" in shown.texts
    assert {"tweets per second", "followers of active users", "no windows"} & set(shown.texts) == {
        "tweets per second",
        "followers of active users",
    }
    await write_plot(plot_settings(broker, picture), anyio.Event())
    assert picture.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert sorted(os.listdir(folder)) == ["stats.html", "stats.png"]
    await console_shows(broker, tweets, users)
    ctrl_c_ends_the_console(broker, tweets)


async def console_shows(broker: BrokerProcess, tweets: list[Row], users: list[Row]) -> None:
    out = io.StringIO()
    given = ["--broker", broker.address, "--once", "--rows", "3"]
    await show(ConsoleSettings(_cli_parse_args=given), anyio.Event(), Console(file=out))
    lines = out.getvalue().splitlines()
    starts = [window["window"]["start"][:19].replace("T", " ") for window in (*tweets[-3:], *users[-3:])]
    assert [start for line in lines for start in starts[:1] * (starts[0] in line)] == starts[:1] * 2
    assert all(any(start in line for line in lines) for start in starts)
    assert tweets[-4]["window"]["start"][:19].replace("T", " ") not in out.getvalue()
    best = users[-1]["top_by_tweets"][0]
    assert f"users: {best['screen_name']} {best['tweets']}" in out.getvalue()


def ctrl_c_ends_the_console(broker: BrokerProcess, tweets: list[Row]) -> None:
    command = [sys.executable, "-u", "-m", "spark", "console", "--broker", broker.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            last = tweets[-1]["window"]["start"][:19].replace("T", " ")
            while last not in (line := process.stdout.readline()):
                assert line, "it ended"
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_a_curve_breaks_where_windows_are_missing() -> None:
    tweets, _ = statistics(timedelta(minutes=10))
    series = series_of([tweets[0], tweets[1], tweets[3]], ("sentiment", "mean"))
    means = [window["sentiment"]["mean"] for window in tweets]
    assert series.values == [means[0], means[1], None, means[3]]
    assert series.times == sorted(series.times)


def test_a_file_of_another_kind_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"a picture in \.png"):
        PlotSettings(_cli_parse_args=["--out", "stats.pdf"])
