"""``python -m spark console`` shows the latest windows of both statistics on a terminal."""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import anyio
from anyio import to_thread
from msgspec.structs import astuple
from pydantic import Field
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from spark.connector.link import SparkLink, see_broker
from spark.connector.windows import WindowTail
from tweetwire import BrokerLost, BrokerUnreachable
from tweetwire.runtime.kinds import Seconds
from tweetwire.runtime.program import ClientSettings, settings_config
from tweetwire.statistics import Figure, KeyCount, Kinds, TweetsTotals, TweetsWindow, UsersTotals, UsersWindow, Window

__all__ = ["ConsoleSettings", "show", "tables"]

_BROKER_WITHIN_S = 10.0
_WIDTH = 120
"""The width in columns if the output is not a terminal."""

_Row = tuple[str, ...]


class ConsoleSettings(ClientSettings):
    """Show the latest windows of tweets_stats and users_stats, newest last, until Ctrl-C.

    On a terminal the tables are updated in place; elsewhere each window is a line.
    """

    model_config = settings_config("python -m spark console")

    rows: int = Field(10, ge=1, le=100, description="windows of each topic to show")
    every: Seconds = Field("1s", gt=0, validate_default=True, description="pause between two reads of the topics")
    once: bool = Field(False, description="print the tables once and end")
    tweets_stats_topic: str = Field("tweets_stats", description="topic of the tweets' statistics")
    users_stats_topic: str = Field("users_stats", description="topic of the users' statistics")


class _Latest:
    """The latest windows of both topics."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self.tweets: deque[TweetsWindow] = deque(maxlen=settings.rows)
        self.users: deque[UsersWindow] = deque(maxlen=settings.rows)
        self._of_tweets = WindowTail(settings.tweets_stats_topic, TweetsWindow, settings.rows)
        self._of_users = WindowTail(settings.users_stats_topic, UsersWindow, settings.rows)

    def look(self, link: SparkLink) -> list[Window]:
        """Add the new windows, and return them."""
        tweets, users = self._of_tweets.fresh(link), self._of_users.fresh(link)
        self.tweets.extend(tweets)
        self.users.extend(users)
        return [*tweets, *users]


async def show(settings: ConsoleSettings, stop: anyio.Event, console: Console | None = None) -> None:
    """Show the windows until `stop`. Raises BrokerUnreachable and StartError at the start."""
    console = console or Console()
    if not console.is_terminal:
        console.width = _WIDTH
    latest = _Latest(settings)
    login = settings.login()
    await to_thread.run_sync(see_broker, login, [settings.tweets_stats_topic, settings.users_stats_topic])
    with SparkLink(login, name="spark-console", retry_s=_BROKER_WITHIN_S) as link:
        fresh = await to_thread.run_sync(latest.look, link)
    if settings.once:
        console.print(tables(latest.tweets, latest.users))
        return
    # While running, an unreachable broker is shown at once instead of waited for.
    with SparkLink(login, name="spark-console", retry_s=0) as link:
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
    """Read new windows at regular intervals. Pass them to `tell`, and whether the broker is unreachable."""
    while not stop.is_set():
        try:
            tell(await look(), False)
        except (BrokerLost, BrokerUnreachable):
            tell([], True)
        with anyio.move_on_after(settings.every):
            await stop.wait()


def tables(tweets: Sequence[TweetsWindow], users: Sequence[UsersWindow], is_away: bool = False) -> Group:
    """Return both statistics as tables with a row per window, followed by the top values of the newest window."""
    parts: list[Table | Text] = [
        _table("tweets_stats", _TWEETS_COLUMNS, [_tweets_row(window) for window in tweets]),
        *(
            Text(f"{name}: {_tops(getattr(tweets[-1], name))}")
            for name in ("hashtags", "mentions", "languages")
            if tweets
        ),
        *(Text(_tweets_totals(totals)) for totals in [tweets[-1].totals if tweets else None] if totals),
        _table("users_stats", _USERS_COLUMNS, [_users_row(window) for window in users]),
    ]
    if users:
        best = [(entry.name, entry.tweets) for entry in users[-1].top_by_tweets]
        parts.append(Text("users: " + ", ".join(f"{name} {count}" for name, count in best[:_TOPS])))
    parts += [Text(_users_totals(totals)) for totals in [users[-1].totals if users else None] if totals]
    if is_away:
        parts.append(Text("the broker is unreachable; windows published meanwhile appear later", style="bold red"))
    return Group(*parts)


_TOPS = 5
_TWEETS_COLUMNS = (
    *("window (UTC)", "tweets", "per s", "orig/reply/rt/quote", "sentiment"),
    *("engagement", "users", "lag p95 ms", "late"),
)
_USERS_COLUMNS = (*("window (UTC)", "active", "new", "verified", "followers p50", "followers p95", "tweets/user"),)


def _tweets_totals(totals: TweetsTotals) -> str:
    mean = _number(totals.sentiment.mean, "+.3f")
    return (
        f"since {_time(totals.since)}: {totals.tweets:,} tweets ({_kinds(totals.kinds)}) in {totals.windows:,} windows, "
        f"sentiment {mean}, late {totals.late:,}"
    )


def _users_totals(totals: UsersTotals) -> str:
    return (
        f"since {_time(totals.since)}: {totals.new_users:,} new users, {totals.tweets:,} tweets of users "
        f"in {totals.windows:,} windows"
    )


def _tweets_row(window: TweetsWindow) -> _Row:
    return (
        *(_span(window), f"{window.tweets:,}", _number(window.per_second, ",.1f"), _kinds(window.kinds)),
        *(_number(window.sentiment.mean, "+.3f"), _number(window.engagement.mean, ".3g")),
        *(f"{window.unique_users:,}", _number(window.lag_ms.p95, ",.0f"), f"{window.late:,}"),
    )


def _users_row(window: UsersWindow) -> _Row:
    followers = window.followers
    return (
        *(_span(window), f"{window.active_users:,}", f"{window.new_users:,}"),
        *(_number(window.verified_share, ".1%"), _number(followers.p50, ",.0f")),
        *(_number(followers.p95, ",.0f"), _number(window.tweets_per_user, ".2f")),
    )


def _print_lines(console: Console, windows: Sequence[Window]) -> None:
    for window in sorted(windows, key=lambda one: one.window.start_at):
        names, row = (
            (_TWEETS_COLUMNS, _tweets_row(window))
            if isinstance(window, TweetsWindow)
            else (_USERS_COLUMNS, _users_row(window))
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


def _tops(entries: Sequence[KeyCount]) -> str:
    return ", ".join(f"{entry.key} {entry.count:,}" for entry in entries[:_TOPS])


def _span(window: Window) -> str:
    return _time(window.window.start)


def _time(iso: str) -> str:
    # Fractions of a second matter only for the shortest windows.
    return iso.removesuffix("Z").removesuffix(".000").replace("T", " ")


def _kinds(kinds: Kinds) -> str:
    return "/".join(f"{count:,}" for count in astuple(kinds))


def _number(value: Figure, form: str) -> str:
    # Spark writes NaN as text.
    return "–" if value is None else value if isinstance(value, str) else format(value, form)
