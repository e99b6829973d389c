"""The paths of the pages."""

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import RedirectResponse, Response
from nicegui import ui

from dashboard.link import DashboardLink
from dashboard.pages import (
    cluster,
    dead_letters,
    event,
    overview,
    pipeline,
    sign_in,
    subscription,
    subscriptions,
    topic,
    topics,
    tweets,
)
from dashboard.pages.frame import Refresh, show_frame
from dashboard.sessions import Sessions

__all__ = ["register"]

Build = Callable[..., Refresh]

PAGES: Final[tuple[tuple[str, str, Build], ...]] = (
    ("/", "Overview", overview.build),
    ("/topics", "Topics", topics.build),
    ("/topics/{topic}", "Topic", topic.build),
    ("/topics/{topic}/{offset}", "Event", event.build),
    ("/subscriptions", "Subscriptions", subscriptions.build),
    ("/subscriptions/{topic}/{name}", "Subscription", subscription.build),
    ("/dead-letters", "Dead letters", dead_letters.build),
    ("/tweets", "Tweets", tweets.build),
    ("/pipeline", "Pipeline", pipeline.build),
    ("/cluster", "Cluster", cluster.build),
)


def register(sessions: Sessions) -> None:
    """Register the pages; each shows only the data that its visitor may see."""
    sign_in.register(sessions)
    for path, title, build in PAGES:
        _register(sessions, path, title, build)


def _register(sessions: Sessions, path: str, title: str, build: Build) -> None:
    @ui.page(path, title=f"{title} · tweetwire")
    def page(request: Request) -> Response | None:
        link: DashboardLink | None = sessions.link_of(request.cookies)
        if link is None:
            return RedirectResponse(f"/sign-in?then={quote(request.url.path)}")
        params: dict[str, Any] = dict(request.path_params)
        show_frame(link, request, title, build, params)
        return None
