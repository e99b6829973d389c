"""What people see: the live picture, the closing table, and lines where there is no terminal."""

import io
from pathlib import Path

import msgspec
import pytest
from rich.console import Console, RenderableType

from broker import Client, StoredEvent
from demo.check import Row
from demo.observer import Observer
from demo.programs import Program, State
from demo.settings import DemoSettings
from demo.supervisor import Supervisor
from demo.view import check_table, picture, showing

pytestmark = pytest.mark.anyio


def drawn(renderable: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=140)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.fixture
async def supervisor(tmp_path: Path) -> Supervisor:
    supervisor = Supervisor([Program(name=name, argv=("true",)) for name in ("broker", "subscriber")], tmp_path)
    supervisor["broker"].state = State.READY
    supervisor["broker"].address = "127.0.0.1:8000"
    return supervisor


@pytest.fixture
async def observer(tmp_path: Path, supervisor: Supervisor) -> Observer:
    settings = DemoSettings(_cli_parse_args=False, data_dir=tmp_path)  # type: ignore[call-arg]
    opening = {"topics": {"tweets": {"next": 41, "subscriptions": {"demo": {"pending": 3, "in_flight": 2, "dead": 0}}}}}
    observer = Observer(settings, supervisor, Client("127.0.0.1:1"), opening)
    observer._note_rates()
    return observer


async def test_before_the_broker_is_there_the_programs_are_shown(supervisor: Supervisor) -> None:
    text = drawn(picture("starting", supervisor, None))
    assert "tweetwire: starting" in text
    assert "127.0.0.1:8000" in text
    assert "waiting" in text


async def test_topics_are_shown_with_what_is_to_be_acked(supervisor: Supervisor, observer: Observer) -> None:
    (line,) = [line for line in drawn(picture("running", supervisor, observer)).splitlines() if "tweets " in line]
    assert "41" in line
    assert "5" in line.rsplit("41", 1)[1]


async def test_the_last_windows_are_shown_with_their_hashtags(supervisor: Supervisor, observer: Observer) -> None:
    window = {"start": "2026-11-27T22:00:10.000Z", "end": "2026-11-27T22:00:20.000Z"}
    tags = [{"key": "python", "count": 3}]
    message = {"window": window, "tweets": 3000, "per_second": 300.0, "is_final": True, "hashtags": tags}
    raw = msgspec.Raw(msgspec.json.encode(message))
    event = StoredEvent(topic="tweets_stats", offset=0, timestamp=0, id="w", priority=0, msg=raw)
    observer.tally.take("tweets_stats", [event])
    text = drawn(picture("running", supervisor, observer))
    assert "2026-11-27T22:00:10.000Z" in text
    assert "3,000" in text
    assert "#python" in text


def test_the_closing_table_says_what_is_wrong() -> None:
    rows = [Row(what="tweets", wanted=1000, found=1000), Row(what="users", wanted=7, found=6, faults="1 missing")]
    right, wrong = [line for line in drawn(check_table(rows)).splitlines() if "tweets" in line or "users" in line]
    assert "1,000" in right
    assert "right" in right
    assert "WRONG 1 missing" in wrong


async def test_without_a_terminal_each_news_is_a_line(
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
