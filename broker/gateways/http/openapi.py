"""The OpenAPI document of the gateway, which is made from the table of routes, and a page that shows it without a network."""

import re
from collections.abc import Iterator
from html import escape
from typing import Any, Final

import msgspec

from broker.gateways.http.answers import STATUSES, Answer
from broker.gateways.http.call import Call
from broker.gateways.http.routes import Action, Route
from tweetwire.version import VERSION

__all__ = ["document_of", "page_of", "serve_document", "serve_page"]

_POLICY: Final = ("content-security-policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
_STYLE: Final = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color-scheme: light dark }
h2 { font-size: 1rem; margin: 2rem 0 0; padding-top: .5rem; border-top: 1px solid #8886 }
code { font-family: ui-monospace, monospace } table { border-collapse: collapse } td { padding: .1rem 1rem .1rem 0 }
"""


def document_of(routes: tuple[Route, ...]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of the routes."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    error = {
        "type": "object",
        "properties": {
            "error": {
                "type": "object",
                "properties": {"code": {"enum": sorted(STATUSES)}, "message": {"type": "string"}},
            }
        },
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "tweetwire broker", "version": VERSION},
        "paths": paths,
        "components": {
            "schemas": {"Error": error},
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer", "description": "Bearer USER:TOKEN"},
            },
        },
        "security": [{}, {"basic": []}, {"bearer": []}],
    }


def serve_document(document: dict[str, Any]) -> Action:
    """Return the action that answers with the document."""
    body = msgspec.json.encode(document) + b"\n"

    async def serve(call: Call) -> Answer:
        return Answer(200, body)

    return serve


def serve_page(routes: tuple[Route, ...]) -> Action:
    """Return the action that answers with the page."""
    body = page_of(routes).encode()

    async def serve(call: Call) -> Answer:
        return Answer(200, body, "text/html; charset=utf-8", (_POLICY,))

    return serve


def page_of(routes: tuple[Route, ...]) -> str:
    """Return a page with all routes. It loads nothing."""
    return "".join(_page(routes))


def _operation(route: Route) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)\}", route.path)
    ]
    parameters += [
        {"name": one.name, "in": one.place, "description": one.text, "schema": {"type": "string"}}
        for one in route.parameters
    ]
    errors = {
        "description": "an error",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
    operation: dict[str, Any] = {
        "summary": route.summary,
        "parameters": parameters,
        "responses": {"200": {"description": "done", "content": {route.produces: {}}}, "default": errors},
    }
    if route.accepts is not None:
        operation["requestBody"] = {"content": {one: {} for one in route.accepts}}
    return operation


def _page(routes: tuple[Route, ...]) -> Iterator[str]:
    yield f'<!doctype html><html lang="en"><meta charset="utf-8"><title>tweetwire broker</title><style>{_STYLE}</style>'
    yield f'<h1>tweetwire broker {escape(VERSION)}</h1><p>The same as an OpenAPI document: <a href="openapi.json">'
    yield "openapi.json</a></p>"
    for route in routes:
        yield f"<h2><code>{route.method} {escape(route.path)}</code></h2><p>{escape(route.summary)}</p>"
        if route.parameters:
            yield "<table>"
            for one in route.parameters:
                yield f"<tr><td><code>{escape(one.name)}</code><td>{escape(one.text)}</tr>"
            yield "</table>"
    yield "</html>\n"
