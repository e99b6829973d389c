"""Write the report's HTML page with inline drawings, for light and dark screens, without scripts."""

from collections.abc import Callable
from datetime import datetime, timedelta
from html import escape

from sse_ingest.report.figures import Curves, ReportFigures, Row

__all__ = ["page"]

WIDTH, HEIGHT, LEFT, BOTTOM = 900, 220, 48, 24

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #6b7280; --line: #d5d9e0; --back: #ffffff; --mark: #2563eb; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8eb; --soft: #9aa3af; --line: #3a414b; --back: #14171b; --mark: #6ea8fe; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back); max-width: 960px; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.05rem; margin: 2rem 0 .5rem; } p, text { color: var(--soft); fill: var(--soft); }
dl { display: flex; flex-wrap: wrap; gap: .5rem 2.5rem; } dt { color: var(--soft); } dd { margin: 0; font-size: 1.5rem; }
svg { width: 100%; height: auto; } svg path { fill: none; stroke: var(--mark); stroke-width: 1.6; }
svg line { stroke: var(--line); } svg text { font-size: 12px; } .lists { display: grid; gap: 0 3rem;
  grid-template-columns: repeat(auto-fit, minmax(260px, 1fr)); } table { width: 100%; border-collapse: collapse; }
td { padding: .15rem .4rem .15rem 0; border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
td:last-child { text-align: right; font-variant-numeric: tabular-nums; }
"""


def page(figures: ReportFigures, title: str, at: datetime) -> str:
    """Return the whole page."""
    totals = {
        "tweets": f"{figures.tweets:,}",
        "authors": f"{figures.users:,}",
        "rejected": f"{figures.rejected:,}",
        "mean sentiment": "–" if figures.sentiment is None else f"{figures.sentiment:+.3f}",
    }
    lists = {
        "Hashtags": figures.hashtags,
        "Authors": figures.authors,
        "Languages": figures.languages,
        "Kinds": figures.kinds,
        "Sources": figures.sources,
        "Why events were rejected": figures.reasons,
    }
    curves = figures.curves
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{escape(title)}</title><style>{_STYLE}</style></head><body>
<h1>{escape(title)}</h1><p>made {at:%Y-%m-%d %H:%M:%S} UTC</p>
<dl>{"".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in totals.items())}</dl>
<h2>Tweets stored per second</h2>{_chart(curves, list(curves.per_second), 0.0, max(curves.per_second, default=0.0))}
<h2>Mean sentiment, −1 … 1</h2>{_chart(curves, curves.sentiment, -1.0, 1.0)}
<div class="lists">{"".join(_table(name, rows) for name, rows in lists.items() if rows)}</div>
</body></html>
"""


def _table(name: str, rows: list[Row]) -> str:
    cells = "".join(f"<tr><td>{escape(text)}</td><td>{value:,}</td></tr>" for text, value in rows)
    return f"<section><h2>{name}</h2><table>{cells}</table></section>"


def _chart(curves: Curves, values: list[float | None] | list[float], least: float, most: float) -> str:
    if not curves.times:
        return "<p>nothing is stored</p>"
    span = (most - least) or 1.0
    width = (WIDTH - LEFT) / max(len(values) - 1, 1)

    def x(place: int) -> float:
        return LEFT + place * width

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (value - least) / span * (HEIGHT - BOTTOM - 10)

    levels = "".join(
        f'<line x1="{LEFT}" x2="{WIDTH}" y1="{y(level):.1f}" y2="{y(level):.1f}"/>'
        f'<text x="{LEFT - 6}" y="{y(level) + 4:.1f}" text-anchor="end">{_number(level)}</text>'
        for level in (least, (least + most) / 2, most)
    )
    form = "%H:%M:%S" if curves.times[-1] - curves.times[0] < timedelta(days=1) else "%Y-%m-%d %H:%M"
    ends = "".join(
        f'<text x="{x(place):.1f}" y="{HEIGHT - 4}" text-anchor="{anchor}">{curves.times[place]:{form}}</text>'
        for place, anchor in ((0, "start"), (len(values) - 1, "end"))
    )
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{levels}{ends}<path d="{_path(values, x, y)}"/></svg>'


def _number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}"


def _path(values: list[float | None] | list[float], x: Callable[[int], float], y: Callable[[float], float]) -> str:
    """Return an SVG path through the values, with a gap at each None; an isolated value is a short stroke."""
    steps: list[str] = []
    is_drawing = False
    for place, value in enumerate(values):
        if value is not None:
            steps.append(f"{'L' if is_drawing else 'M'}{x(place):.1f} {y(value):.1f}{'' if is_drawing else 'h1'}")
        is_drawing = value is not None
    return "".join(steps)
