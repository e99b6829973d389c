"""The frame of every page: navigation, user, state of the broker, light or dark theme."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import quote

from fastapi import Request
from nicegui import ui

from dashboard.link import Away, DashboardLink, LinkState
from dashboard.words import time_text
from tweetwire.protocol.errors import Refusal

__all__ = ["NAVIGATION", "Refresh", "head", "show_frame"]

Refresh = Callable[[], Awaitable[None]]
"""Updates a page; called once a second while the broker answers."""

NAVIGATION: Final = (
    ("/", "Overview", "insights"),
    ("/topics", "Topics", "list_alt"),
    ("/subscriptions", "Subscriptions", "move_to_inbox"),
    ("/dead-letters", "Dead letters", "report"),
    ("/tweets", "Tweets", "tag"),
    ("/pipeline", "Pipeline", "account_tree"),
    ("/cluster", "Cluster", "hub"),
)
EVERY_S: Final = 1.0
THEMES: Final = {"light": False, "dark": True}


def head(request: Request) -> None:
    """Add the style and the keyboard shortcuts, which all pages share, to a page."""
    ui.add_head_html(
        '<link rel="stylesheet" href="/static/dashboard.css"><script src="/static/dashboard.js" defer></script>'
    )
    ui.dark_mode(THEMES.get(request.cookies.get("tweetwire_theme", "")))


def show_frame(
    link: DashboardLink, request: Request, title: str, build: Callable[..., Refresh], params: Mapping[str, Any]
) -> None:
    """Build a page, fill it when the broker has answered, and update it from then on."""
    head(request)
    _header(link, request.url.path)
    with ui.element("main").classes("page"):
        banner = ui.label().classes("banner").props("role=status")
        with ui.element("div").classes("loading") as loading:
            ui.spinner(size="2em")
            ui.label(f"asking the broker at {link.address} …")
        with ui.element("div").classes("content") as content:
            with ui.element("h1").classes("title"):
                ui.label(" / ".join(filter(None, (title, *map(str, params.values())))))
            refresh = build(link, **params)
    Ticker(link, request.url.path, banner=banner, loading=loading, content=content, refresh=refresh).start()


class Ticker:
    """Updates a page, and shows an error if the broker does not answer."""

    def __init__(
        self,
        link: DashboardLink,
        path: str,
        *,
        banner: ui.label,
        loading: ui.element,
        content: ui.element,
        refresh: Refresh,
    ) -> None:
        self._link = link
        self._path = path
        self._banner = banner
        self._loading = loading
        self._content = content
        self._refresh = refresh

    def start(self) -> None:
        """Show the current state, and continue as long as the page is open."""
        self._show_state("")
        ui.timer(EVERY_S, self._tick)

    async def _tick(self) -> None:
        link = self._link
        link.look()
        if link.state in {LinkState.REFUSED, LinkState.CLOSED}:
            ui.navigate.to(f"/sign-in?then={quote(self._path)}")
            return
        trouble = ""
        if link.state is LinkState.THERE:
            try:
                await self._refresh()
            except Away:
                trouble = "the broker does not answer"
            except Refusal as refusal:
                trouble = f"the broker refuses ({refusal.code}): {refusal.text}"
        self._show_state(trouble)

    def _show_state(self, trouble: str) -> None:
        look = self._link.history.latest
        if self._link.state is LinkState.AWAY:
            since = f"; figures of {time_text(round(look.at_s * 1000))} UTC" if look else ""
            trouble = f"no broker answers at {self._link.address}, trying again{since}"
        self._banner.set_text(trouble)
        self._banner.set_visibility(bool(trouble))
        self._loading.set_visibility(look is None)
        self._content.set_visibility(look is not None)


def _header(link: DashboardLink, path: str) -> None:
    with ui.element("header").classes("top"):
        ui.link("tweetwire", "/").classes("brand")
        with ui.element("nav").classes("navigation").props('aria-label="pages"'):
            for number, (href, label, icon) in enumerate(NAVIGATION, start=1):
                is_here = path == href or (href != "/" and path.startswith(f"{href}/"))
                current = ' aria-current="page"' if is_here else ""
                with (
                    ui.link(target=href)
                    .classes("entry")
                    .props(f'title="{label} (key {number})" data-key="{number}"{current}')
                ):
                    ui.icon(icon)
                    ui.label(label)
        with ui.element("div").classes("who"):
            ui.label(link.address if not link.is_signed_in else f"{link.user} @ {link.address}").classes("address")
            ui.button(icon="contrast").props('flat dense round aria-label="light or dark" id=theme')
            if link.is_signed_in:
                with ui.element("form").props("method=post action=/sign-out"):
                    ui.button(icon="logout").props('flat dense round type=submit aria-label="sign out"')
