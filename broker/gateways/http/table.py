"""The table of the gateway's routes."""

from functools import partial
from typing import Final

from broker.gateways.http import administering
from broker.gateways.http.event_stream import EventStream
from broker.gateways.http.holders import Holders
from broker.gateways.http.openapi import document_of, serve_document, serve_page
from broker.gateways.http.publishing import Handshakes, publish
from broker.gateways.http.queueing import Queue
from broker.gateways.http.reading import read_topic
from broker.gateways.http.routes import Parameter, Route, Routes

__all__ = ["routes_of"]

JSON: Final = "application/json"
JSON_LINES: Final = "application/x-ndjson"
_FROM: Final = Parameter("from", "earliest, latest, an offset or a time")
_POLICY: Final = (
    Parameter("from", "where a new subscription begins: latest (the default), earliest, an offset or a time"),
    Parameter("timeout", "the time for an ack, 30s by default"),
    Parameter("tries", "the failed tries that make a dead letter, 5 by default"),
    Parameter("strikes", "the causes that count as a failed try: nack,timeout,disconnect"),
    Parameter("backoff", "the pause after a failed try"),
    Parameter("max_wait", "the waiting time after which an event goes first"),
    Parameter("ordered", "key, for order within a key"),
)
_REFS: Final = 'body: {"refs":[1042,"id"]}, offsets or ids'


def routes_of(holders: Holders) -> Routes:
    """Return all routes of the gateway."""
    table = (*_topics(holders), *_subscriptions(holders), *_administration())
    return Routes((*table, *_documents(table)))


def _topics(holders: Holders) -> tuple[Route, ...]:
    return (
        Route(
            "POST",
            "/topics/{topic}",
            "publish one event (JSON) or many (JSON Lines)",
            partial(publish, handshakes=Handshakes()),
            accepts=(JSON, JSON_LINES),
            parameters=(
                Parameter("Idempotency-Key", "the id of a single event; a repeated key stores nothing", "header"),
                Parameter("delay", "deliver the events this long after their arrival: 5m"),
                Parameter("at", "deliver the events at this time"),
                Parameter("expires", "do not deliver the events at or after this time or duration"),
                Parameter("after", "the marks that a receipt waits for, separated by commas, or none"),
                Parameter("within", "how long a receipt waits for marks: 5s"),
            ),
        ),
        Route(
            "GET",
            "/topics/{topic}",
            "read a part of the log",
            read_topic,
            produces=JSON_LINES,
            parameters=(
                Parameter("from", "earliest (the default), latest, an offset or a time"),
                Parameter("limit", "the most events, 1000 by default"),
                Parameter("wait", "how long to wait at the end of the log: 10s"),
            ),
        ),
        Route(
            "GET",
            "/topics/{topic}/events",
            "receive the events as Server-Sent Events",
            EventStream(holders).serve,
            produces="text/event-stream",
            parameters=(
                Parameter("Last-Event-ID", "continue after this offset", "header"),
                Parameter("as", "deliver the events of this durable subscription"),
                Parameter("prefetch", "with as: the most events in flight, 100 by default"),
                Parameter("ack", "with as: sent, to settle events when they were sent"),
                *_POLICY,
            ),
        ),
    )


def _subscriptions(holders: Holders) -> tuple[Route, ...]:
    queue, path = Queue(holders), "/subscriptions/{topic}/{name}"
    return (
        Route(
            "POST",
            f"{path}/take",
            "take events, which stay in flight until they are settled",
            queue.take,
            produces=JSON_LINES,
            parameters=(
                Parameter("max", "the most events, 1 by default"),
                Parameter("wait", "how long to wait for the first one: 10s"),
                *_POLICY,
            ),
        ),
        Route("POST", f"{path}/ack", f"settle events; {_REFS}", queue.ack, accepts=(JSON,)),
        Route("POST", f"{path}/nack", f"count a failed try; {_REFS}, and an error", queue.nack, accepts=(JSON,)),
        Route("POST", f"{path}/extend", f"restart the timeouts of events; {_REFS}", queue.extend, accepts=(JSON,)),
        Route(
            "POST",
            f"{path}/redrive",
            'deliver dead events again; body: {"refs":[1042],"rate":50}, without refs all',
            administering.redrive,
            accepts=(JSON,),
        ),
    )


def _administration() -> tuple[Route, ...]:
    return (
        Route("GET", "/topics", "list the topics", administering.list_topics),
        Route("GET", "/topics/{topic}/stats", "show the figures of a topic", administering.show_stats),
        Route("GET", "/topics/{topic}/schema", "show the JSON Schema of a topic, or null", administering.show_schema),
        Route(
            "GET",
            "/topics/{topic}/explain",
            "show the state of an event for a subscription",
            administering.show_event,
            parameters=(
                Parameter("ref", "the id of the event, or @ and its offset"),
                Parameter("as", "the subscription"),
            ),
        ),
        Route(
            "GET",
            "/topics/{topic}/dead",
            "list dead events, the newest first",
            administering.list_dead,
            parameters=(
                Parameter("as", "only of this subscription"),
                Parameter("limit", "the most events, 100 by default"),
            ),
        ),
    )


def _documents(table: tuple[Route, ...]) -> tuple[Route, ...]:
    return (
        Route(
            "GET",
            "/openapi.json",
            "this list as an OpenAPI document",
            serve_document(document_of(table)),
            is_public=True,
        ),
        Route("GET", "/", "this list as a page", serve_page(table), produces="text/html", is_public=True),
    )
