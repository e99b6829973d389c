"""Draw the panels as an SVG or PNG picture with matplotlib."""

import math
from collections.abc import Sequence
from datetime import UTC
from io import BytesIO
from typing import Any, Literal

from spark.apps.plot.panels import TWEETS_PANELS, USERS_PANELS, Panel, series_of
from tweetwire.protocol.errors import StartError
from tweetwire.statistics import TweetsWindow, UsersWindow, Window

__all__ = ["draw"]

_COLUMNS = 2
_PANEL_INCHES = (6.4, 2.3)


def draw(
    tweets: Sequence[TweetsWindow], users: Sequence[UsersWindow], form: Literal["svg", "png"], title: str | None = None
) -> bytes:
    """Draw the windows of both topics. Raises StartError if matplotlib is not installed."""
    try:
        # matplotlib is large and used only here. pyplot is not used, because it would look for a screen.
        from matplotlib import rc_context  # noqa: PLC0415
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter  # noqa: PLC0415
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as error:
        raise StartError("the plot needs matplotlib; install it with the extra tweetwire[plot]") from error
    panels: list[tuple[Panel, Sequence[Window]]] = [
        *((panel, tweets) for panel in TWEETS_PANELS),
        *((panel, users) for panel in USERS_PANELS),
    ]
    rows = math.ceil(len(panels) / _COLUMNS)
    # These settings keep text as text elements, and make the output depend on the windows only.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "tweetwire", "font.size": 8}):
        figure = Figure(figsize=(_PANEL_INCHES[0] * _COLUMNS, _PANEL_INCHES[1] * rows))
        # A computed layout takes five times as long as the drawing.
        figure.subplots_adjust(left=0.05, right=0.99, bottom=0.03, top=0.94, hspace=0.45, wspace=0.12)
        if title is not None:
            figure.suptitle(title)
        for axes, (panel, windows) in zip(figure.subplots(rows, _COLUMNS).flat, panels, strict=True):
            if windows:
                locator = AutoDateLocator(tz=UTC)  # type: ignore[no-untyped-call]  # matplotlib.dates has no types
                axes.xaxis.set_major_locator(locator)
                axes.xaxis.set_major_formatter(
                    ConciseDateFormatter(locator, tz=UTC)  # type: ignore[no-untyped-call]  # as above
                )
            _draw_panel(axes, panel, windows)
        picture = BytesIO()
        figure.savefig(picture, format=form, dpi=110, metadata={"Date": None} if form == "svg" else None)
    return picture.getvalue()


def _draw_panel(axes: Any, panel: Panel, windows: Sequence[Window]) -> None:
    axes.set_title(panel.title, loc="left")
    axes.grid(alpha=0.3)
    axes.margins(x=0.01)
    if not windows:
        axes.text(0.5, 0.5, "no windows", ha="center", va="center", transform=axes.transAxes)
        axes.set_xticks([])
        return
    for name, path in panel.curves.items():
        series = series_of(windows, path)
        values = [math.nan if value is None else value for value in series.values]
        axes.plot(series.times, values, label=name, linewidth=1.2, marker=".", markersize=3)
    if panel.is_from_zero:
        axes.set_ylim(0, axes.get_ylim()[1] * 1.05)
    if len(panel.curves) > 1:
        axes.legend(loc="lower right", bbox_to_anchor=(1, 0.98), ncols=len(panel.curves), frameon=False)
