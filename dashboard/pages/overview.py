"""The overview: rates, backlogs, programs, clients."""

import time

from nicegui import ui

from dashboard.figures import charts
from dashboard.figures.overview import tiles
from dashboard.figures.programs import SIGNS, client_rows, program_rows
from dashboard.link import DashboardLink
from dashboard.pages.frame import Refresh
from dashboard.pages.widgets import Chart, RowsTable, card

__all__ = ["build"]


class Tiles:
    """The figures at the top."""

    def __init__(self, link: DashboardLink) -> None:
        self._link = link
        self._labels: dict[str, ui.label] = {}
        self._box = ui.element("div").classes("tiles")

    def show(self) -> None:
        """Show the current figures."""
        for tile in tiles(self._link.latest, self._link.history):
            if tile.label not in self._labels:
                with self._box, ui.element("div").classes("tile"):
                    self._labels[tile.label] = ui.label().classes("figure")
                    ui.label(tile.label)
            self._labels[tile.label].set_text(tile.value)
            self._labels[tile.label].classes(**{"add" if tile.is_bad else "remove": "bad"})


def build(link: DashboardLink) -> Refresh:
    """Build the page and return the function that updates it."""
    figures = Tiles(link)
    with ui.element("div").classes("halves"):
        with card("Events a second, by topic"):
            rates = Chart("events a second by topic")
        with card("Pending and in flight, by subscription"):
            backlogs = Chart("events pending and in flight by subscription", empty="there are no subscriptions")
    with card("Programs"):
        programs = RowsTable(
            [("program", "program", "text"), ("state", "state", "state"), ("detail", "evidence", "text")],
            key="program",
            empty="",
            label="programs",
        )
    with card("Clients"):
        clients = RowsTable(
            [
                ("client", "client", "text"),
                ("connections", "connections", "number"),
                ("in_flight", "in flight", "number"),
                ("of", "consumes", "text", True),
            ],
            key="client",
            empty="only administrators see who is connected",
            label="clients",
        )

    async def refresh() -> None:
        figures.show()
        rates.show(charts.lines(charts.busiest(link.history.topic_rates())))
        backlogs.show(charts.lines(charts.busiest(link.history.backlogs())))
        newest = {
            sign.topic: events[-1].timestamp
            for sign in SIGNS
            if sign.topic and (events := await link.newest(sign.topic))
        }
        programs.show(program_rows(link.latest, link.clients, newest, round(time.time() * 1000)))
        clients.show(client_rows(link.clients or []))

    return refresh
