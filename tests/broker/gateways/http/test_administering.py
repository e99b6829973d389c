"""Administration over HTTP, and the documents of the gateway."""

import re

import httpx
import pytest

from broker.gateways.http.holders import Holders
from broker.gateways.http.table import routes_of
from tests.support.paths import ROOT

OPERATIONS = {
    (route.method, route.path)
    for route in routes_of(Holders(None)).table  # type: ignore[arg-type]  # no request is served
}


def test_topics_figures_and_schemas_are_shown(client: httpx.Client) -> None:
    client.post("/topics/shown", json={"id": "a", "msg": 1})
    assert "shown" in [one["topic"] for one in client.get("/topics").json()]
    assert client.get("/topics/shown/stats").json()["topics"]["shown"]["next"] == 1
    assert client.get("/topics/shown/schema").json() is None
    assert client.get("/topics/shown/dead").json() == []


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/topics/absent/stats", 404, "unknown_topic"),
        ("/topics/absent/schema", 404, "unknown_topic"),
        ("/topics/shown/explain", 400, "bad_arguments"),
        ("/topics/shown/explain?ref=@9&as=none", 404, "not_subscribed"),
        ("/topics/shown/dead?limit=x", 400, "bad_arguments"),
        ("/topics?x=1", 400, "bad_arguments"),
    ],
)
def test_a_wrong_question_is_refused(client: httpx.Client, path: str, status: int, code: str) -> None:
    client.post("/topics/shown", json={"id": "a", "msg": 1})
    answer = client.get(path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def test_the_document_has_every_route_and_every_parameter_of_a_path(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    assert document["openapi"] == "3.1.0"
    found = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert found == {one for one in OPERATIONS if one[1] not in {"/", "/openapi.json"}}
    for path, methods in document["paths"].items():
        for operation in methods.values():
            named = {one["name"] for one in operation["parameters"] if one["in"] == "path"}
            assert named == set(re.findall(r"\{(\w+)\}", path))


def test_the_page_shows_every_route_and_loads_nothing(client: httpx.Client) -> None:
    answer = client.get("/")
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "src=" not in answer.text
    for method, path in OPERATIONS - {("GET", "/"), ("GET", "/openapi.json")}:
        assert f"{method} {path}<" in answer.text


def test_the_reference_names_every_path() -> None:
    page = (ROOT / "docs" / "reference" / "http.md").read_text()
    for _, path in OPERATIONS:
        assert path in page or f"…/{path.rpartition('/')[2]}" in page, path
