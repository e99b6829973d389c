"""Convert series and lists to the options of a chart, in colours that suit a light and a dark background."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dashboard.history import Series

__all__ = ["bars", "busiest", "lines", "moods", "tree"]

COLOURS: Final = ("#1c7ed6", "#e8590c", "#2f9e44", "#ae3ec9", "#f08c00", "#0c8599", "#e03131", "#846358")
_GREY: Final = "#868e96"
MOODS: Final = ("#2f9e44", _GREY, "#e03131")
_FAINT: Final = "rgba(134,142,150,0.25)"
_SPLIT: Final = {"lineStyle": {"color": _FAINT}}


def lines(series: Series) -> dict[str, Any]:
    """Return a chart of values over time."""
    return _base() | {
        "legend": _legend(),
        "series": [
            {
                "name": name,
                "type": "line",
                "showSymbol": len(points) == 1,
                "data": [[at, round(value, 3)] for at, value in points],
            }
            for name, points in series.items()
        ],
    }


def moods(series: Series) -> dict[str, Any]:
    """Return a stacked chart of the positive, neutral and negative parts of a whole over time, in this order."""
    chart = lines(series) | {"color": list(MOODS)}
    for one in chart["series"]:
        one |= {"stack": "all", "areaStyle": {"opacity": 0.5}}
    return chart


def bars(counts: Sequence[tuple[str, float]]) -> dict[str, Any]:
    """Return a bar chart of a list, the first entry at the top."""
    names = [name for name, _ in counts]
    return {
        "animation": False,
        "color": list(COLOURS),
        "grid": {"left": 8, "right": 24, "top": 8, "bottom": 8, "containLabel": True},
        "tooltip": {"trigger": "axis", "confine": True},
        "xAxis": {"type": "value", "axisLabel": {"color": _GREY}, "splitLine": _SPLIT},
        "yAxis": {"type": "category", "data": names, "inverse": True, "axisLabel": {"color": _GREY}},
        "series": [{"type": "bar", "data": [count for _, count in counts], "barMaxWidth": 18}],
    }


def tree(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a drawing of a tree, with its root at the left."""
    label = {
        "position": "bottom",
        "verticalAlign": "top",
        "distance": 8,
        "lineHeight": 14,
        "fontSize": 11,
        "color": _GREY,
    }
    return {
        "animation": False,
        "tooltip": {"trigger": "item", "confine": True},
        "series": [
            {
                "type": "tree",
                "data": [data],
                "left": 90,
                "right": 130,
                "top": 20,
                "bottom": 20,
                "symbol": "circle",
                "symbolSize": 12,
                "initialTreeDepth": -1,
                "expandAndCollapse": False,
                "lineStyle": {"color": _GREY},
                "label": label,
                "leaves": {"label": label},
            }
        ],
    }


def busiest(series: Series, most: int = len(COLOURS)) -> Series:
    """Return the series with the largest last values, as many as there are colours, in the order of their names."""
    last = {name: points[-1][1] if points else 0.0 for name, points in series.items()}
    chosen = sorted(series, key=lambda name: (-last[name], name))[:most]
    return {name: series[name] for name in sorted(chosen)}


def _base() -> dict[str, Any]:
    return {
        "animation": False,
        "color": list(COLOURS),
        "grid": {"left": 8, "right": 16, "top": 40, "bottom": 8, "containLabel": True},
        "tooltip": {"trigger": "axis", "confine": True},
        "xAxis": {"type": "time", "axisLabel": {"color": _GREY, "hideOverlap": True}, "splitLine": {"show": False}},
        "yAxis": {
            "type": "value",
            "axisLabel": {"color": _GREY},
            "splitLine": _SPLIT,
        },
    }


def _legend() -> dict[str, Any]:
    return {"type": "scroll", "top": 0, "textStyle": {"color": _GREY}}
