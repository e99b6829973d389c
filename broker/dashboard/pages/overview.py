"""All at a glance: rates, backlogs, programs, clients."""

import time

from nicegui import ui

from broker.dashboard.figures import charts
from broker.dashboard.figures.overview import tiles
from broker.dashboard.figures.programs import SIGNS, client_rows, program_rows
from broker.dashboard.link import Link
from broker.dashboard.pages.frame import Refresh
from broker.dashboard.pages.widgets import Chart, Rows, card

__all__ = ["build"]


class Tiles:
    """The figures at the top."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._labels: dict[str, ui.label] = {}
        self._box = ui.element("div").classes("tiles")

    def show(self) -> None:
        """Show the figures of now."""
        for tile in tiles(self._link.latest, self._link.history):
            if tile.label not in self._labels:
                with self._box, ui.element("div").classes("tile"):
                    self._labels[tile.label] = ui.label().classes("figure")
                    ui.label(tile.label)
            self._labels[tile.label].set_text(tile.value)
            self._labels[tile.label].classes(**{"add" if tile.is_bad else "remove": "bad"})


def build(link: Link) -> Refresh:
    """Build the page; returns what brings it up to date."""
    figures = Tiles(link)
    with ui.element("div").classes("halves"):
        with card("Events a second, by topic"):
            rates = Chart("events a second by topic")
        with card("Pending and in flight, by subscription"):
            backlogs = Chart("events pending and in flight by subscription", empty="there are no subscriptions")
    with card("Programs"):
        programs = Rows(
            [("program", "program", "text"), ("state", "state", "state"), ("detail", "by which sign", "text")],
            key="program",
            empty="",
            label="programs",
        )
    with card("Clients"):
        clients = Rows(
            [
                ("client", "client", "text"),
                ("connections", "connections", "number"),
                ("in_flight", "in flight", "number"),
                ("of", "consumes", "text", True),
            ],
            key="client",
            empty="only administrators are told who is connected",
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
