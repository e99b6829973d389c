"""The console: tables that are printed once, tables that are updated on a terminal, and lines without a terminal."""

import io
import signal
import subprocess
import sys
from datetime import timedelta

import anyio
import pytest
from rich.console import Console

from spark.apps.console import ConsoleSettings, show
from tests.spark.reference import Row
from tests.spark.samples import others, statistics, with_totals
from tests.spark.topics import publish_others, publish_windows
from tests.support.processes import BrokerProcess

WITHIN_S = 60

pytestmark = [pytest.mark.stack, pytest.mark.anyio]


def settings(broker: BrokerProcess, *flags: str) -> ConsoleSettings:
    return ConsoleSettings(_cli_parse_args=["--broker", broker.address, *flags])


def start_of(window: Row) -> str:
    return str(window["window"]["start"])[:19].replace("T", " ")


async def shown(out: io.StringIO, text: str) -> None:
    """Wait until `text` appears in the output since the last call."""
    with anyio.fail_after(WITHIN_S):
        while text not in out.getvalue():
            await anyio.sleep(0.02)
    out.seek(0)
    out.truncate()


async def test_the_console_shows_the_latest_windows_and_their_totals(broker: BrokerProcess) -> None:
    tweets, users = with_totals(*statistics(timedelta(minutes=10)))
    tweets[-2]["engagement"]["mean"] = "NaN"
    publish_windows(broker, "tweets_stats", tweets)
    publish_windows(broker, "users_stats", users)
    for topic, window in (("tweets_stats", tweets[0]), ("users_stats", users[0])):
        publish_others(broker, topic, others(window))
    out = io.StringIO()
    await show(settings(broker, "--once", "--rows", "10"), anyio.Event(), Console(file=out))
    lines = out.getvalue().splitlines()
    for window in tweets[-3:]:
        assert sum(start_of(window) in line for line in lines) == 2, "in one of the tables it is missing"
    assert not any(start_of(tweets[-4]) in line for line in lines if "since" not in line)
    best = users[-1]["top_by_tweets"][0]
    assert f"users: {best['screen_name']} {best['tweets']}" in out.getvalue()
    since = f"since {start_of(tweets[0])}: "
    assert f"{since}{sum(window['tweets'] for window in tweets)} tweets (" in out.getvalue()
    assert f"{since}0 new users, " in out.getvalue()
    assert f"in {len(tweets)} windows" in out.getvalue()
    ctrl_c_ends_it(broker, tweets)


def ctrl_c_ends_it(broker: BrokerProcess, tweets: list[Row]) -> None:
    command = [sys.executable, "-u", "-m", "spark", "console", "--broker", broker.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            while start_of(tweets[-1]) not in (line := process.stdout.readline()):
                assert line, "it ended"
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            process.kill()


async def test_on_a_terminal_the_tables_stay_and_follow_the_topics_also_across_a_restart(broker: BrokerProcess) -> None:
    tweets, users = statistics(timedelta(minutes=10))
    # Publish another window first, so that each window that the test waits for is new.
    publish_windows(broker, "tweets_stats", tweets[:1])
    out, stop = io.StringIO(), anyio.Event()
    console = Console(file=out, force_terminal=True, width=160, height=60)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(show, settings(broker, "--every", "20ms"), stop, console)
        await shown(out, start_of(tweets[0]))
        publish_windows(broker, "tweets_stats", tweets[1:2])
        await shown(out, start_of(tweets[1]))
        publish_windows(broker, "users_stats", users[2:3])
        await shown(out, start_of(users[2]))
        broker.kill()
        await shown(out, "the broker is unreachable")
        broker.start()
        publish_windows(broker, "tweets_stats", tweets[3:4])
        await shown(out, start_of(tweets[3]))
        stop.set()
