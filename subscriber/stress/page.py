"""A run's report as one self-contained HTML page: figures, and plots of rates and latencies."""

from html import escape

from subscriber.stress.report import StressReport
from tweetwire.protocol.errors import StartError

__all__ = ["document", "page", "table"]

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1000px; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; } td, th { padding: .2rem .8rem; border-bottom: 1px solid #ddd; text-align: right; }
td:first-child, th:first-child { text-align: left; } .wrong { color: #b00020; } .right { color: #12703b; }
"""


def page(report: StressReport, title: str) -> str:
    """Return the page of a final report. Raises StartError if plotly is not installed."""
    verdict = '<p class="right">all was right</p>' if report.is_right else '<p class="wrong">something was wrong</p>'
    return document(
        title,
        f"""{verdict}
{table([("", "value"), *_figures(report)])}
{table(_topics(report))}
{_plots(report)}""",
    )


def document(title: str, body: str) -> str:
    """Return a whole page with that body."""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{escape(title)}</title><style>{_STYLE}</style></head><body>
<h1>{escape(title)}</h1>{body}
</body></html>
"""


def table(rows: list[tuple[str, ...]]) -> str:
    """Return a table whose first row is the head."""
    head, *body = rows
    cells = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in body)
    return f"<table><tr>{''.join(f'<th>{escape(name)}</th>' for name in head)}</tr>{cells}</table>"


def _figures(report: StressReport) -> list[tuple[str, ...]]:
    latency, load, faults = report.latency_ms, report.load, report.faults
    rows: list[tuple[str, object]] = [
        ("seconds", report.seconds),
        ("deliveries", f"{report.events:,} ({report.per_second:,.0f}/s)"),
        ("latency p50 / p95 / p99 / max (ms)", f"{latency.p50} / {latency.p95} / {latency.p99} / {latency.max}"),
        ("out of order", report.disordered),
        ("stored twice", report.twice),
    ]
    if load is not None:
        confirm = load.confirm_ms
        rows += [
            ("offered", f"{load.rate:,.0f}/s"),
            ("due / sent / confirmed", f"{load.due:,} / {load.sent:,} / {load.confirmed:,}"),
            ("sending late at the worst (ms)", load.late_ms),
            ("due to confirmed p50 / p99 / max (ms)", f"{confirm.p50} / {confirm.p99} / {confirm.max}"),
            ("confirmed and not arrived", report.not_arrived),
        ]
    if faults is not None:
        rows.append(
            ("refused / not answered / dropped on purpose", f"{faults.nacked} / {faults.stalled} / {faults.vanished}")
        )
    return [(name, str(value)) for name, value in rows]


def _topics(report: StressReport) -> list[tuple[str, ...]]:
    names = ("topic", "subscription", "received", "settled", "redelivered", "doubled", "lost", "pending", "dead")
    return [names, *(tuple(str(getattr(topic, name)) for name in names) for topic in report.topics)]


def _plots(report: StressReport) -> str:
    try:
        from plotly import graph_objects  # noqa: PLC0415 — large, and only wanted for a page
        from plotly.subplots import make_subplots  # noqa: PLC0415
    except ImportError as error:
        raise StartError("--html needs plotly; install it with the extra tweetwire[stress]") from error
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, subplot_titles=("events a second", "latency (ms)"))
    seconds = [one.second for one in report.series]
    for row, names in ((1, ("due", "sent", "confirmed", "received")), (2, ("p50", "p99", "max"))):
        for name in names:
            values = [getattr(one, name) for one in report.series]
            figure.add_trace(
                graph_objects.Scatter(x=seconds, y=values, name=name, mode="lines+markers"), row=row, col=1
            )
    figure.update_xaxes(title_text="second of the run", row=2, col=1)
    figure.update_layout(height=700, template="plotly_white")
    plots: str = figure.to_html(full_html=False, include_plotlyjs=True)
    return plots
