"""OpenTelemetry spans around each try, if OpenTelemetry is installed; else the ``traceparent`` is passed on unchanged.

W3C's trace context is one header, ``traceparent``, which an event carries in its `headers`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any, Final

from msgspec import UNSET

from subscriber.handlers.failures import error_text, reason_of
from tweetwire import StoredEvent

__all__ = ["TRACEPARENT", "span_of", "traceparent_now"]

TRACEPARENT: Final = "traceparent"
_IS_INSTALLED: Final = find_spec("opentelemetry") is not None


@contextmanager
def span_of(event: StoredEvent, subscription: str) -> Iterator[None]:
    """Run the block in a span that is a child of the event's; an exception of the block is recorded and raised."""
    if not _IS_INSTALLED:
        yield
        return
    from opentelemetry import trace  # noqa: PLC0415 — optional

    headers = event.headers if event.headers is not UNSET else {}
    context = _propagator().extract(headers)
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
        f"process {event.topic}",
        context,
        kind=trace.SpanKind.CONSUMER,
        attributes=attributes,
        # OpenTelemetry would read the error's text, which may raise, and would ignore errors that are not an Exception.
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield
        except BaseException as error:
            reason = reason_of(error)
            attributes = {"exception.type": reason.code, "exception.message": reason.message}
            span.add_event("exception", {**attributes, "exception.stacktrace": reason.trace})
            span.set_status(trace.StatusCode.ERROR, error_text(error))
            raise


def traceparent_now() -> str | None:
    """Return the ``traceparent`` of the current span, None if there is no span."""
    if not _IS_INSTALLED:
        return None
    carrier: dict[str, str] = {}
    _propagator().inject(carrier)
    return carrier.get(TRACEPARENT)


@cache
def _propagator() -> Any:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415 — optional

    return TraceContextTextMapPropagator()
