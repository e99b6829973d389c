"""The statistics that Spark computes of the tweets and their users, live."""

from typing import Final

from nicegui import ui

from dashboard.figures import charts
from dashboard.figures.statistics import named, ranks, user_rows, windows
from dashboard.link import DashboardLink
from dashboard.pages.frame import Refresh
from dashboard.pages.widgets import Chart, RowsTable, card
from dashboard.words import number
from tweetwire.statistics import TWEETS_STATS, USERS_STATS, TweetsWindow, UsersWindow

__all__ = ["build"]

NONE_YET: Final = "no statistics yet: python -m spark all publishes them, a window at a time"


def build(link: DashboardLink) -> Refresh:
    """Build the page and return the function that updates it."""
    summary = ui.label(NONE_YET).classes("hint")
    with ui.element("div").classes("halves"):
        with card("Tweets a second"):
            speed = Chart("tweets a second", empty=NONE_YET)
        with card("Sentiment, mean of each window"):
            mood = Chart("mean sentiment", empty=NONE_YET)
        with card("Positive, neutral, negative"):
            moods = Chart("tweets by sentiment", empty=NONE_YET)
        with card("Users in each window"):
            users = Chart("users", empty=NONE_YET)
        lists = {}
        for member in ("hashtags", "languages", "mentions"):
            with card(f"{member.capitalize()} of the last window"):
                lists[member] = Chart(member, empty=NONE_YET)
        tops = {}
        for by in ("tweets", "engagement", "followers"):
            with card(f"Users by {by}, last window"):
                tops[by] = RowsTable(
                    [("place", "", "number"), ("user", "user", "text"), (by, by, "number")],
                    key="place",
                    empty=NONE_YET,
                    label=f"users by {by}",
                )

    async def refresh() -> None:
        of_tweets = windows(await link.newest(TWEETS_STATS), TweetsWindow)
        of_users = windows(await link.newest(USERS_STATS), UsersWindow)
        speed.show(charts.lines(named(of_tweets, tweets=["per_second"])))
        mood.show(charts.lines(named(of_tweets, mean=["sentiment", "mean"], median=["sentiment", "p50"])))
        shares = {name: ["sentiment", name] for name in ("positive", "neutral", "negative")}
        moods.show(charts.moods(named(of_tweets, **shares)))
        users.show(charts.lines(named(of_users, active=["active_users"], new=["new_users"])))
        if of_tweets:
            last = of_tweets[-1]
            summary.set_text(
                f"last window: {last.window.start} to {last.window.end},"
                f" {number(last.tweets)} tweets of about {number(last.unique_users)} users"
            )
            for member, chart in lists.items():
                chart.show(charts.bars(ranks(getattr(last, member))))
        if of_users:
            for by, rows in tops.items():
                rows.show(user_rows(of_users[-1], by))

    return refresh
