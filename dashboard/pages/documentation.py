"""The documentation of a topic, to read and, for administrators, to edit."""

from collections.abc import Callable
from typing import Any

import msgspec
from nicegui import ui

from dashboard.link import Away, DashboardLink
from dashboard.pages.widgets import card, notify
from dashboard.words import pretty, time_text
from tweetwire.protocol.errors import Refusal

__all__ = ["DocumentationPage"]


class DocumentationPage:
    """Description, schema and comments of one topic; empty if the broker does not store documentation."""

    def __init__(self, link: DashboardLink, topic: str) -> None:
        self._link = link
        self._topic = topic
        self._shown: Any = None
        with card("DocumentationPage") as self._card:
            self._description = ui.label()
            with ui.expansion("Schema").classes("wide-expansion") as self._schema_box:
                self._schema = ui.label().classes("trace").props('tabindex=0 aria-label="schema"')
            self._comments = ui.element("div")
            with ui.element("div").classes("tools") as self._tools:
                self._text = ui.input("text").props("dense outlined").classes("grow")
                ui.button("Comment", on_click=lambda: self._write("comment")).props("unelevated no-caps")
                ui.button("Describe", on_click=lambda: self._write("describe")).props("outline no-caps")
                ui.button("Set schema", on_click=lambda: self._write("schema", _one_line_json)).props("outline no-caps")
        self._card.set_visibility(False)

    async def refresh(self) -> None:
        """Update the texts. Raises Away, Refusal."""
        self._card.set_visibility("describe" in self._link.verbs)
        self._tools.set_visibility(self._link.is_admin)
        if "describe" not in self._link.verbs:
            return
        found = await self._link.report(f"describe {self._topic}")
        if found != self._shown:
            self._shown = found
            self._show(found or {})

    def _show(self, found: dict[str, Any]) -> None:
        self._description.set_text(found.get("description") or "no description yet")
        self._schema_box.set_visibility("schema" in found)
        self._schema.set_text(pretty(found["schema"]) if "schema" in found else "")
        self._comments.clear()
        with self._comments:
            for comment in reversed(found.get("comments") or []):
                with ui.element("article").classes("comment"):
                    ui.label(f"{comment['client']} · {time_text(comment['at'])} UTC").classes("hint")
                    ui.label(comment["text"])

    async def _write(self, verb: str, shaped: Callable[[str], str] = lambda text: " ".join(text.split())) -> None:
        text = shaped(self._text.value or "")
        if not text:
            notify("write something first", is_bad=True)
            return
        try:
            await self._link.command(f"{verb} {self._topic} {text}")
        except (Refusal, Away) as error:
            notify(str(error), is_bad=True)
            return
        self._text.value = ""
        notify("kept")
        await self.refresh()


def _one_line_json(text: str) -> str:
    """Return JSON as one line; other text unchanged, so that the broker reports its error."""
    try:
        return msgspec.json.encode(msgspec.json.decode(text)).decode()
    except msgspec.MsgspecError:
        return " ".join(text.split())
