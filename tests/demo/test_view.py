"""The output for people: the live picture, the closing table, and plain lines without a terminal."""

import io
from pathlib import Path

import msgspec
import pytest
from rich.console import Console, RenderableType

from demo.check import CheckRow
from demo.observer import Observer
from demo.programs import Program, ProgramState
from demo.settings import DemoSettings
from demo.supervisor import Supervisor
from demo.view import check_table, picture, showing
from tests.dashboard.samples import tweets_window
from tweetwire import Client, StoredEvent

pytestmark = pytest.mark.anyio


def drawn(renderable: RenderableType, width: int = 140) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.fixture
async def supervisor(tmp_path: Path) -> Supervisor:
    supervisor = Supervisor([Program(name=name, argv=("true",)) for name in ("broker", "subscriber")], tmp_path)
    supervisor["broker"].state = ProgramState.READY
    supervisor["broker"].address = "127.0.0.1:8000"
    return supervisor


@pytest.fixture
async def observer(tmp_path: Path, supervisor: Supervisor) -> Observer:
    settings = DemoSettings(_cli_parse_args=False, data_dir=tmp_path)
    opening = {"topics": {"tweets": {"next": 41, "subscriptions": {"demo": {"pending": 3, "in_flight": 2, "dead": 0}}}}}
    observer = Observer(settings, supervisor, Client("127.0.0.1:1"), opening)
    observer._note_rates()
    return observer


async def test_before_the_broker_is_there_the_programs_are_shown(supervisor: Supervisor) -> None:
    text = drawn(picture("starting", supervisor, None))
    assert "tweetwire: starting" in text
    assert "127.0.0.1:8000" in text
    assert "waiting" in text


async def test_topics_are_shown_with_their_unacked_events(supervisor: Supervisor, observer: Observer) -> None:
    (line,) = [line for line in drawn(picture("running", supervisor, observer)).splitlines() if "tweets " in line]
    assert "41" in line
    assert "5" in line.rsplit("41", 1)[1]


async def test_the_last_windows_are_shown_with_their_hashtags(supervisor: Supervisor, observer: Observer) -> None:
    message = tweets_window(10, tweets=3000) | {"hashtags": [{"key": "python", "count": 3}]}
    raw = msgspec.Raw(msgspec.json.encode(message))
    event = StoredEvent(topic="tweets_stats", offset=0, timestamp=0, id="w", priority=0, msg=raw)
    observer.tally.note_events("tweets_stats", [event])
    text = drawn(picture("running", supervisor, observer))
    assert "2026-11-28T01:43:10.000Z" in text
    assert "3,000" in text
    assert "#python" in text


async def test_the_view_of_the_whole_stack_fits_80_columns_and_24_lines(tmp_path: Path) -> None:
    names = ("mongodb", "broker", "dashboard", "spark", "change_stream", "subscriber", "simulator", "sse_ingest")
    supervisor = Supervisor([Program(name=name, argv=("true",)) for name in names], tmp_path)
    for child in supervisor.children.values():
        child.state, child.address = ProgramState.RESTARTING, "http://127.0.0.1:65535"
    settings = DemoSettings(_cli_parse_args=False, data_dir=tmp_path)
    topics = ("dead_letters", "tweets", "users", "tweets_stats", "users_stats", "logger_stats")
    figures = {"next": 41_000_000, "subscriptions": {"demo": {"pending": 3_000_000, "in_flight": 2, "dead": 0}}}
    observer = Observer(settings, supervisor, Client("127.0.0.1:1"), {"topics": dict.fromkeys(topics, figures)})
    observer._note_rates()
    text = drawn(picture("running; dashboard: http://127.0.0.1:8088", supervisor, observer, 80), 80)
    assert len(text.splitlines()) <= 24
    assert text.count("http://127.0.0.1:65535") == len(names), text
    assert "…" not in text
    assert "41,000,000" in text


def test_the_closing_table_shows_the_faults() -> None:
    rows = [
        CheckRow(what="tweets", wanted=1000, found=1000),
        CheckRow(what="users", wanted=7, found=6, faults="1 missing"),
    ]
    right, wrong = [line for line in drawn(check_table(rows)).splitlines() if "tweets" in line or "users" in line]
    assert "1,000" in right
    assert "right" in right
    assert "WRONG 1 missing" in wrong


async def test_without_a_terminal_each_change_is_a_line(
    supervisor: Supervisor, observer: Observer, capsys: pytest.CaptureFixture[str]
) -> None:
    with showing(supervisor, Console(file=io.StringIO())) as view:
        view.say("running")
        view.show(observer)
        view.show(observer)
        view.say("running")
    lines = capsys.readouterr().out.splitlines() + capsys.readouterr().err.splitlines()
    assert len([line for line in lines if "running" in line]) == 2
    assert len([line for line in lines if "tweets=" in line]) == 1
