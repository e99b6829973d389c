"""OpenTelemetry spans around each try, where it is installed; without it, the ``traceparent`` is handed on as it came.

W3C's trace context is one header, ``traceparent``, which an event carries among its `headers`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Final

from msgspec import UNSET

from broker import StoredEvent

__all__ = ["TRACEPARENT", "span_of", "traceparent_now"]

TRACEPARENT: Final = "traceparent"
_IS_INSTALLED: Final = find_spec("opentelemetry") is not None


@contextmanager
def span_of(event: StoredEvent, subscription: str) -> Iterator[None]:
    """Have the block be a span, a child of the event's; what the block raises is recorded in it and goes on."""
    if not _IS_INSTALLED:
        yield
        return
    from opentelemetry import trace  # noqa: PLC0415 — optional
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

    headers = event.headers if event.headers is not UNSET else {}
    context = TraceContextTextMapPropagator().extract(headers)
    attributes: dict[str, str | int] = {
        "messaging.system": "tweetwire",
        "messaging.operation.type": "process",
        "messaging.destination.name": event.topic,
        "messaging.consumer.group.name": subscription,
        "messaging.message.id": event.id,
        "tweetwire.offset": event.offset,
        "tweetwire.try": event.attempt,
    }
    tracer = trace.get_tracer("tweetwire.subscriber")
    with tracer.start_as_current_span(
        f"process {event.topic}", context, kind=trace.SpanKind.CONSUMER, attributes=attributes
    ):
        yield


def traceparent_now() -> str | None:
    """Return the ``traceparent`` of the span that runs here, None where there is none."""
    if not _IS_INSTALLED:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415 — optional

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get(TRACEPARENT)
