"""The picture and what stands beside it as one HTML page that needs nothing else."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from html import escape

from spark.windows import Window, start_of

__all__ = ["page"]

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1b1f24; background: #fff; max-width: 1200px; margin: 2rem auto;
  padding: 0 1rem; } h1 { font-size: 1.5rem; } h2 { font-size: 1.05rem; margin: 1.5rem 0 .5rem; } p, dt { color: #6b7280; }
dl { display: flex; flex-wrap: wrap; gap: .5rem 2.5rem; } dd { margin: 0; font-size: 1.5rem; }
svg { width: 100%; height: auto; }
.lists { display: grid; gap: 0 3rem; grid-template-columns: repeat(auto-fit, minmax(260px, 1fr)); }
table { width: 100%; border-collapse: collapse; } td { border-bottom: 1px solid #d5d9e0; overflow-wrap: anywhere; }
td:last-child { text-align: right; font-variant-numeric: tabular-nums; }
"""
_ROWS = 15

Rows = list[tuple[str, str]]


def page(tweets: Sequence[Window], users: Sequence[Window], svg: str, title: str, at: datetime) -> str:
    """Return the page around the drawing `svg`."""
    lists = {
        **{f"{name.capitalize()} (windows' top 10, added)": _counted(tweets, name) for name in _COUNTED},
        **{f"Users by {name} in a window": _best_users(users, name) for name in ("tweets", "engagement", "followers")},
    }
    figures = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in _figures(tweets, users))
    # The drawing has a head for files of its own, which has no place in a page.
    drawing = svg[svg.index("<svg") :]
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{escape(title)}</title><style>{_STYLE}</style></head><body>
<h1>{escape(title)}</h1><p>made {at:%Y-%m-%d %H:%M:%S} UTC; times are UTC</p>
<dl>{figures}</dl>
{drawing}
<div class="lists">{"".join(_table(name, rows) for name, rows in lists.items() if rows)}</div>
</body></html>
"""


_COUNTED = ("hashtags", "mentions", "languages")


def _figures(tweets: Sequence[Window], users: Sequence[Window]) -> Rows:
    spans = [*tweets, *users]
    first = min(map(start_of, spans)).strftime("%H:%M:%S") if spans else "–"
    last = max(datetime.fromisoformat(one["window"]["end"]) for one in spans).strftime("%H:%M:%S") if spans else "–"
    return [
        ("from – to", f"{first} – {last}"),
        ("windows of tweets / users", f"{len(tweets):,} / {len(users):,}"),
        ("tweets", f"{sum(window['tweets'] for window in tweets):,}"),
        ("late", f"{sum(window['late'] for window in tweets):,}"),
        ("new users", f"{sum(window['new_users'] for window in users):,}"),
        *_totals("tweets", tweets),
        *_totals("new_users", users),
    ]


def _totals(name: str, windows: Sequence[Window]) -> Rows:
    totals = windows[-1].get("totals") if windows else None
    if not totals:
        return []
    since = datetime.fromisoformat(totals["since"])
    return [(f"{name.replace('_', ' ')} since {since:%Y-%m-%d %H:%M}", f"{totals[name]:,}")]


def _counted(windows: Sequence[Window], member: str) -> Rows:
    counts: Counter[str] = Counter()
    for window in windows:
        for entry in window[member]:
            counts[entry["key"]] += entry["count"]
    best = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:_ROWS]
    return [(key, f"{count:,}") for key, count in best]


def _best_users(windows: Sequence[Window], measure: str) -> Rows:
    best: dict[str, tuple[float, str]] = {}
    for window in windows:
        for entry in window[f"top_by_{measure}"]:
            # Of a document in which somebody has written NaN or Infinity, Spark writes the word, and a word is no rank.
            value = entry[measure] if isinstance(entry[measure], int | float) else 0
            found = (value, entry["screen_name"] or entry["key"])
            best[entry["key"]] = max(found, best.get(entry["key"], found))
    ranked = sorted(best.values(), key=lambda one: (-one[0], one[1]))[:_ROWS]
    return [(name, f"{value:,.4g}" if isinstance(value, float) else f"{value:,}") for value, name in ranked]


def _table(name: str, rows: Rows) -> str:
    cells = "".join(f"<tr><td>{escape(text)}</td><td>{value}</td></tr>" for text, value in rows)
    return f"<section><h2>{escape(name)}</h2><table>{cells}</table></section>"
