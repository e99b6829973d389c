"""A run's results as one self-contained HTML page: tables, and plots of figures, percentiles and growth."""

import statistics
from typing import Any

from plotly import graph_objects
from plotly.subplots import make_subplots

from bench.results import Results
from bench.row import BenchRow, Growth
from bench.table import figure
from subscriber.stress.page import document, table

__all__ = ["page"]

_PLOT_HEIGHT = 420


def page(results: Results) -> str:
    """Return the HTML page that shows a run's results."""
    head = (
        f"{results.began:%Y-%m-%d %H:%M} UTC, {results.seconds:.0f} s{'' if results.is_complete else ', interrupted'}"
    )
    facts = (results.machine | results.versions | results.settings).items()
    body = f"""
{table([("row", "what", "median", "lowest", "highest", "rounds", "goal", "", "compared with"), *map(_cells, results.rows)])}
<h2>Medians and their goals: 1 is the goal, more is better; lines from the worst round to the best</h2>
{_plot(_goals([row for row in results.rows if row.goal is not None and row.figures]), is_first=True)}
<h2>Latencies (ms)</h2>{_plot(_latencies([row for row in results.rows if row.unit == "ms" and row.figures]))}
<h2>What an event costs (µs), by multiples of the work</h2>
{table([("row", "what", "costs", "spread", "", "why not"), *map(_growth_cells, results.growths)])}
{_plot(_growths([growth for growth in results.growths if growth.costs_us]))}
<h2>The machine, the versions, the settings</h2>{table([("", "value"), *facts])}"""
    return document(f"tweetwire bench, {head}", body)


def _cells(row: BenchRow) -> tuple[str, ...]:
    ends = (min(row.figures), max(row.figures)) if row.figures else (None, None)
    figures = (figure(value, row.unit) for value in (row.median, *ends))
    note = "; ".join(filter(None, (row.reason, row.beside)))
    return (row.name, row.what, *figures, str(len(row.figures)), figure(row.goal, row.unit), row.verdict, note)


def _growth_cells(growth: Growth) -> tuple[str, ...]:
    costs = zip(growth.scales, growth.costs_us, strict=True)
    spread = "" if growth.spread is None else f"{growth.spread:.0%}"
    words = ", ".join(f"{cost:,.2f} at {scale:g} ×" for scale, cost in costs)
    return (growth.name, growth.what, words, spread, growth.verdict, growth.reason)


def _goals(rows: list[BenchRow]) -> graph_objects.Figure:
    """Draw each row's median as a share of its goal, or the goal as a share of the median if less is better."""
    shares = [[_share(row, one) for one in row.figures] for row in rows]
    medians = [statistics.median(values) for values in shares]
    drawn = graph_objects.Figure(
        graph_objects.Bar(
            x=[f"{row.name} {row.what}"[:48] for row in rows],
            y=medians,
            marker_color=["#12703b" if row.verdict == "met" else "#c77700" for row in rows],
            error_y={
                "array": [max(values) - median for values, median in zip(shares, medians, strict=True)],
                "arrayminus": [median - min(values) for values, median in zip(shares, medians, strict=True)],
            },
        )
    )
    drawn.add_hline(y=1, line_dash="dot")
    drawn.update_yaxes(type="log", title_text="of the goal")
    return drawn


def _share(row: BenchRow, value: float) -> float:
    goal = row.goal or 1.0
    # A measured loss may be zero or negative, but the plot's logarithmic axis needs a positive value.
    return value / goal if row.is_more_better else goal / max(value, goal / 100)


def _latencies(rows: list[BenchRow]) -> graph_objects.Figure:
    drawn = graph_objects.Figure()
    for what in dict.fromkeys(row.what.rpartition(", p")[0] for row in rows if ", p" in row.what):
        own = [row for row in rows if row.what.rpartition(", p")[0] == what]
        medians = [statistics.median(row.figures) for row in own]
        drawn.add_trace(
            graph_objects.Scatter(
                name=f"{own[0].name} {what}",
                x=["p" + row.what.rpartition(", p")[2] for row in own],
                y=medians,
                error_y={
                    "array": [max(row.figures) - median for row, median in zip(own, medians, strict=True)],
                    "arrayminus": [median - min(row.figures) for row, median in zip(own, medians, strict=True)],
                },
            )
        )
    drawn.update_yaxes(type="log", title_text="ms")
    return drawn


def _growths(growths: list[Growth]) -> graph_objects.Figure:
    drawn = make_subplots(rows=1, cols=max(1, len(growths)), subplot_titles=[growth.name for growth in growths])
    for column, growth in enumerate(growths, 1):
        line = graph_objects.Scatter(x=growth.scales, y=growth.costs_us, name=growth.name, mode="lines+markers")
        drawn.add_trace(line, row=1, col=column)
    drawn.update_xaxes(type="log")
    drawn.update_yaxes(rangemode="tozero")
    return drawn


def _plot(drawn: Any, *, is_first: bool = False) -> str:
    drawn.update_layout(height=_PLOT_HEIGHT, template="plotly_white")
    html: str = drawn.to_html(full_html=False, include_plotlyjs=is_first)
    return html
