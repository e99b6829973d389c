"""``python -m spark console``: the latest windows of both statistics on a terminal."""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import anyio
from anyio import to_thread
from pydantic import Field
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from broker import BrokerLost, BrokerUnreachable
from broker.program import ClientSettings, settings_config
from broker.units import Seconds
from spark.link import Link, see_broker
from spark.windows import Tail, Window, start_of

__all__ = ["ConsoleSettings", "show", "tables"]

_BROKER_WITHIN_S = 10.0
_WIDTH = 120
"""Columns where there is no terminal to ask."""

_Row = tuple[str, ...]


class ConsoleSettings(ClientSettings):
    """Show the latest windows of tweets_stats and users_stats, newest last, until Ctrl-C.

    On a terminal the tables stay in their place; elsewhere each window is a line.
    """

    model_config = settings_config("python -m spark console")

    rows: int = Field(10, ge=1, le=100, description="windows of each topic that are shown")
    every: Seconds = Field("1s", gt=0, validate_default=True, description="how often the topics are looked at")
    once: bool = Field(False, description="print the tables once and end")
    tweets_stats_topic: str = Field("tweets_stats", description="topic of the tweets' statistics")
    users_stats_topic: str = Field("users_stats", description="topic of the users' statistics")


class _Latest:
    """What is shown: the latest windows of both topics."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self.tweets: deque[Window] = deque(maxlen=settings.rows)
        self.users: deque[Window] = deque(maxlen=settings.rows)
        self._tails = (
            (self.tweets, Tail(settings.tweets_stats_topic, settings.rows)),
            (self.users, Tail(settings.users_stats_topic, settings.rows)),
        )

    def look(self, link: Link) -> list[Window]:
        """Take in what is new, and give it."""
        fresh = []
        for shown, tail in self._tails:
            found = tail.fresh(link)
            shown.extend(found)
            fresh += found
        return fresh


async def show(settings: ConsoleSettings, stop: anyio.Event, console: Console | None = None) -> None:
    """Show the windows until `stop`. Raises BrokerUnreachable and StartError at the start."""
    console = console or Console()
    if not console.is_terminal:
        console.width = _WIDTH
    latest = _Latest(settings)
    login = settings.login()
    await to_thread.run_sync(see_broker, login, [settings.tweets_stats_topic, settings.users_stats_topic])
    with Link(login, name="spark-console", retry_s=_BROKER_WITHIN_S) as link:
        fresh = await to_thread.run_sync(latest.look, link)
    if settings.once:
        console.print(tables(latest.tweets, latest.users))
        return
    # Once it runs, a broker that is away is told at once rather than waited for.
    with Link(login, name="spark-console", retry_s=0) as link:
        look = partial(to_thread.run_sync, latest.look, link)
        if not console.is_terminal:
            _print_lines(console, fresh)
            await _follow(settings, stop, lambda found, _: _print_lines(console, found), look)
            return
        with Live(tables(latest.tweets, latest.users), console=console, auto_refresh=False) as live:
            await _follow(
                settings,
                stop,
                lambda _, away: live.update(tables(latest.tweets, latest.users, away), refresh=True),
                look,
            )


async def _follow(
    settings: ConsoleSettings,
    stop: anyio.Event,
    tell: Callable[[list[Window], bool], None],
    look: Callable[[], Awaitable[list[Window]]],
) -> None:
    """Look every so often; `tell` gets what is new, and whether the broker is away."""
    while not stop.is_set():
        try:
            tell(await look(), False)
        except (BrokerLost, BrokerUnreachable):
            tell([], True)
        with anyio.move_on_after(settings.every):
            await stop.wait()


def tables(tweets: Sequence[Window], users: Sequence[Window], is_away: bool = False) -> Group:
    """Lay both statistics out: a row a window, and beneath what is on top in the newest."""
    parts: list[Table | Text] = [
        _table("tweets_stats", _TWEETS_COLUMNS, [_tweets_row(window) for window in tweets]),
        *(Text(f"{name}: {_tops(tweets[-1][name])}") for name in ("hashtags", "mentions", "languages") if tweets),
        *_totals(tweets, _tweets_totals),
        _table("users_stats", _USERS_COLUMNS, [_users_row(window) for window in users]),
    ]
    if users:
        best = [(entry["screen_name"] or entry["key"], entry["tweets"]) for entry in users[-1]["top_by_tweets"]]
        parts.append(Text("users: " + ", ".join(f"{name} {count}" for name, count in best[:_TOPS])))
    parts += _totals(users, _users_totals)
    if is_away:
        parts.append(Text("the broker is away; what it publishes meanwhile is shown when it is back", style="bold red"))
    return Group(*parts)


_TOPS = 5
_TWEETS_COLUMNS = (
    *("window (UTC)", "tweets", "per s", "orig/reply/rt/quote", "sentiment"),
    *("engagement", "users", "lag p95 ms", "late"),
)
_USERS_COLUMNS = (*("window (UTC)", "active", "new", "verified", "followers p50", "followers p95", "tweets/user"),)


def _totals(windows: Sequence[Window], line: Callable[[Window], str]) -> list[Text]:
    totals = windows[-1].get("totals") if windows else None
    return [Text(line(totals))] if totals else []


def _tweets_totals(totals: Window) -> str:
    mean = _number(totals["sentiment"]["mean"], "+.3f")
    return (
        f"since {_time(totals['since'])}: {totals['tweets']:,} tweets ({_kinds(totals)}) in {totals['windows']:,} windows, "
        f"sentiment {mean}, late {totals['late']:,}"
    )


def _users_totals(totals: Window) -> str:
    return (
        f"since {_time(totals['since'])}: {totals['new_users']:,} new users, {totals['tweets']:,} tweets of users "
        f"in {totals['windows']:,} windows"
    )


def _tweets_row(window: Window) -> _Row:
    return (
        *(_span(window), f"{window['tweets']:,}", _number(window["per_second"], ",.1f"), _kinds(window)),
        *(_number(window["sentiment"]["mean"], "+.3f"), _number(window["engagement"]["mean"], ".3g")),
        *(f"{window['unique_users']:,}", _number(window["lag_ms"]["p95"], ",.0f"), f"{window['late']:,}"),
    )


def _users_row(window: Window) -> _Row:
    followers = window["followers"]
    return (
        *(_span(window), f"{window['active_users']:,}", f"{window['new_users']:,}"),
        *(_number(window["verified_share"], ".1%"), _number(followers["p50"], ",.0f")),
        *(_number(followers["p95"], ",.0f"), _number(window["tweets_per_user"], ".2f")),
    )


def _print_lines(console: Console, windows: Sequence[Window]) -> None:
    for window in sorted(windows, key=start_of):
        names, row = (
            (_TWEETS_COLUMNS, _tweets_row(window)) if "tweets" in window else (_USERS_COLUMNS, _users_row(window))
        )
        figures = ", ".join(f"{name} {value}" for name, value in zip(names[1:], row[1:], strict=True))
        console.print(f"{row[0]} {figures}", highlight=False, markup=False, soft_wrap=True)


def _table(title: str, names: _Row, rows: Sequence[_Row]) -> Table:
    table = Table(title=title if rows else f"{title}: no windows yet", title_justify="left")
    for place, name in enumerate(names):
        table.add_column(name, justify="right" if place else "left", no_wrap=place == 0)
    for row in rows:
        table.add_row(*row)
    return table


def _tops(entries: Sequence[Window]) -> str:
    return ", ".join(f"{entry['key']} {entry['count']:,}" for entry in entries[:_TOPS])


def _span(window: Window) -> str:
    return _time(window["window"]["start"])


def _time(iso: str) -> str:
    # Seconds are enough for any but the shortest windows.
    return iso.removesuffix("Z").removesuffix(".000").replace("T", " ")


def _kinds(counts: Window) -> str:
    return "/".join(f"{counts['kinds'][kind]:,}" for kind in ("original", "reply", "retweet", "quote"))


def _number(value: float | str | None, form: str) -> str:
    # Spark writes NaN as a word.
    return "–" if value is None else value if isinstance(value, str) else format(value, form)
