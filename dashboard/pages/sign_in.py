"""The sign-in page: a plain form that is posted to the server, so that no token is ever part of a page's state."""

from fastapi import Request
from nicegui import ui

from dashboard.link import LinkState
from dashboard.pages.frame import head
from dashboard.sessions import Sessions

__all__ = ["register"]

REFUSALS = {
    "unknown": "The broker knows no such name and token.",
    "away": "The broker does not answer; try again in a moment.",
    "busy": "Too many people are signing in; try again in a moment.",
}


def register(sessions: Sessions) -> None:
    """Register the page."""

    @ui.page("/sign-in", title="Sign in · tweetwire")
    def page(request: Request) -> None:
        sessions.open.look()
        head(request)
        with ui.element("main").classes("page sign-in"), ui.element("form").props("method=post action=/sign-in"):
            with ui.element("h1").classes("title"):
                ui.label("Sign in")
            ui.label("with a name and a token of the broker's users").classes("hint")
            refused = REFUSALS.get(request.query_params.get("refused", ""))
            if refused:
                ui.label(refused).classes("banner").props("role=alert")
            elif sessions.open.state is LinkState.THERE:
                ui.label("This broker has no users, so everyone may look.").classes("hint")
            _field("user", "name", "text", "username")
            _field("token", "token", "password", "current-password")
            hidden = ui.element("input").props("type=hidden name=then")
            hidden.props["value"] = request.query_params.get("then", "/")
            ui.button("Sign in").props("type=submit unelevated no-caps")


def _field(name: str, label: str, kind: str, autocomplete: str) -> None:
    with ui.element("label").classes("field"):
        ui.label(label)
        ui.element("input").props(f"name={name} type={kind} autocomplete={autocomplete} required")
