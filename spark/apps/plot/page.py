"""Combine the picture, figures and lists into one self-contained HTML page."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from html import escape

from tweetwire.statistics import KeyCount, TopUser, TweetsWindow, UsersWindow, Window

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


def page(tweets: Sequence[TweetsWindow], users: Sequence[UsersWindow], svg: str, title: str, at: datetime) -> str:
    """Return the page around the drawing `svg`."""
    lists = {
        **{f"{name.capitalize()} (windows' top 10, added)": _counted(tweets, name) for name in _COUNTED},
        **{f"Users by {name} in a window": _best_users(users, name) for name in ("tweets", "engagement", "followers")},
    }
    figures = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in _figures(tweets, users))
    # The drawing's XML declaration is not allowed inside a page.
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


def _figures(tweets: Sequence[TweetsWindow], users: Sequence[UsersWindow]) -> Rows:
    windows: list[Window] = [*tweets, *users]
    spans = [one.window for one in windows]
    first = min(span.start_at for span in spans).strftime("%H:%M:%S") if spans else "–"
    last = max(span.end_at for span in spans).strftime("%H:%M:%S") if spans else "–"
    return [
        ("from – to", f"{first} – {last}"),
        ("windows of tweets / users", f"{len(tweets):,} / {len(users):,}"),
        ("tweets", f"{sum(window.tweets for window in tweets):,}"),
        ("late", f"{sum(window.late for window in tweets):,}"),
        ("new users", f"{sum(window.new_users for window in users):,}"),
        *_totals("tweets", tweets),
        *_totals("new_users", users),
    ]


def _totals(name: str, windows: Sequence[Window]) -> Rows:
    totals = windows[-1].totals if windows else None
    if totals is None:
        return []
    since = datetime.fromisoformat(totals.since)
    return [(f"{name.replace('_', ' ')} since {since:%Y-%m-%d %H:%M}", f"{getattr(totals, name):,}")]


def _counted(windows: Sequence[TweetsWindow], member: str) -> Rows:
    counts: Counter[str] = Counter()
    for window in windows:
        entries: list[KeyCount] = getattr(window, member)
        for entry in entries:
            counts[entry.key] += entry.count
    best = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:_ROWS]
    return [(key, f"{count:,}") for key, count in best]


def _best_users(windows: Sequence[UsersWindow], measure: str) -> Rows:
    best: dict[str, tuple[float, str]] = {}
    for window in windows:
        entries: list[TopUser] = getattr(window, f"top_by_{measure}")
        for entry in entries:
            value = getattr(entry, measure)
            # Spark writes the NaN and Infinity of a document as text, which cannot be ranked.
            found = (value if isinstance(value, int | float) else 0, entry.name)
            best[entry.key] = max(found, best.get(entry.key, found))
    ranked = sorted(best.values(), key=lambda one: (-one[0], one[1]))[:_ROWS]
    return [(name, f"{value:,.4g}" if isinstance(value, float) else f"{value:,}") for value, name in ranked]


def _table(name: str, rows: Rows) -> str:
    cells = "".join(f"<tr><td>{escape(text)}</td><td>{value}</td></tr>" for text, value in rows)
    return f"<section><h2>{escape(name)}</h2><table>{cells}</table></section>"
