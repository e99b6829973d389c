"""The statistics that Spark makes of the tweets and their users, live."""

from typing import Final

from nicegui import ui

from broker.dashboard.figures import charts
from broker.dashboard.figures.statistics import TWEETS_STATS, USERS_STATS, named, ranks, user_rows, windows
from broker.dashboard.link import Link
from broker.dashboard.pages.frame import Refresh
from broker.dashboard.pages.widgets import Chart, Rows, card
from broker.dashboard.words import number

__all__ = ["build"]

NONE_YET: Final = "no statistics yet: python -m spark all makes them, a window at a time"


def build(link: Link) -> Refresh:
    """Build the page; returns what brings it up to date."""
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
                tops[by] = Rows(
                    [("place", "", "number"), ("user", "user", "text"), (by, by, "number")],
                    key="place",
                    empty=NONE_YET,
                    label=f"users by {by}",
                )

    async def refresh() -> None:
        of_tweets = windows(await link.newest(TWEETS_STATS))
        of_users = windows(await link.newest(USERS_STATS))
        speed.show(charts.lines(named(of_tweets, tweets=["per_second"])))
        mood.show(charts.lines(named(of_tweets, mean=["sentiment", "mean"], median=["sentiment", "p50"])))
        shares = {name: ["sentiment", name] for name in ("positive", "neutral", "negative")}
        moods.show(charts.moods(named(of_tweets, **shares)))
        users.show(charts.lines(named(of_users, active=["active_users"], new=["new_users"])))
        if of_tweets:
            last = of_tweets[-1]
            summary.set_text(
                f"last window: {last['window']['start']} to {last['window']['end']},"
                f" {number(last.get('tweets'))} tweets of about {number(last.get('unique_users'))} users"
            )
            for member, chart in lists.items():
                chart.show(charts.bars(ranks(last, member)))
        if of_users:
            for by, rows in tops.items():
                rows.show(user_rows(of_users[-1], by))

    return refresh
