"""Users, foreign web pages and TLS: the gateway refuses requests that have no right."""

import os
import signal
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from broker.gateways.http.credentials import Credentials, read_credentials
from tests.broker.gateways.http.serving import HttpBroker, basic, http_broker, lines_of
from tests.support.certificates import files_of, make_certificates
from tests.support.users import entry
from tweetwire.protocol.errors import Refusal

TOKEN = "a-token-for-the-tests"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpBroker]:
    folder = tmp_path_factory.mktemp("guarded")
    users = folder / "users.toml"
    users.write_text(
        entry("ann", TOKEN, publish='["web"]', subscribe='["web"]') + entry("bob", TOKEN, publish="[]", subscribe="[]")
    )
    origin = "https://shop.example"
    with http_broker(folder / "broker", "--users", users, "--http-allow-origin", origin) as broker:
        yield broker


@pytest.mark.parametrize("header", [basic("ann", TOKEN), {"authorization": f"Bearer ann:{TOKEN}"}])
def test_a_user_may_do_what_the_users_file_says(guarded: HttpBroker, header: dict[str, str]) -> None:
    with guarded.client(headers=header) as client:
        assert client.post("/topics/web", json={"msg": 1}).status_code == 200
        assert client.get("/topics/web").status_code == 200
        assert client.post("/topics/other", json={"msg": 1}).json()["error"]["code"] == "forbidden"


@pytest.mark.parametrize(
    "header",
    [
        {},
        basic("ann", "wrong"),
        basic("nobody", TOKEN),
        {"authorization": "Basic !!!"},
        {"authorization": "Bearer ann"},
        {"authorization": "Digest ann"},
        {"authorization": "Bearer " + "x" * 2000},
    ],
)
def test_without_a_right_name_and_token_a_request_is_refused_and_the_connection_closed(
    guarded: HttpBroker, header: dict[str, str]
) -> None:
    with guarded.client() as client:
        answer = client.get("/topics/web", headers=header)
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "unauthenticated"
        assert answer.headers["www-authenticate"].startswith("Basic")
        assert answer.headers["connection"] == "close"


def test_credentials_are_read_with_every_character_of_a_token() -> None:
    assert read_credentials("bearer ann:to:k en") == Credentials("ann", "to:k en")
    with pytest.raises(Refusal):
        read_credentials("Bearer a b:token")


def test_a_removed_user_is_refused_after_a_reload(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    users.write_text(entry("ann", TOKEN) + entry("bob", TOKEN))
    with (
        http_broker(tmp_path / "broker", "--users", users) as broker,
        broker.client(headers=basic("ann", TOKEN)) as ann,
    ):
        assert ann.post("/topics/web", json={"msg": 1}).status_code == 200
        users.write_text(entry("bob", TOKEN))
        os.kill(broker.pid, signal.SIGHUP)
        deadline = time.monotonic() + 20
        while ann.get("/topics/web").status_code != 401:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_host_name_that_is_not_ours_is_refused(client: httpx.Client) -> None:
    assert client.get("/topics/x", headers={"host": "evil.example"}).status_code == 403
    assert client.get("/topics/x", headers={"host": "localhost:1"}).status_code == 404


@pytest.mark.parametrize(
    "headers",
    [{"origin": "https://evil.example"}, {"origin": "null"}, {"origin": "http://["}, {"sec-fetch-site": "cross-site"}],
)
def test_a_foreign_page_can_neither_publish_nor_read(client: httpx.Client, headers: dict[str, str]) -> None:
    assert client.post("/topics/page", json={"msg": 1}, headers=headers).status_code == 403
    assert client.get("/topics/page", headers=headers).status_code == 403
    assert client.get("/topics/page").status_code == 404


def test_a_page_of_an_allowed_origin_may_use_the_gateway(guarded: HttpBroker) -> None:
    with guarded.client(headers={"origin": "https://shop.example"}) as client:
        asked = client.options("/topics/web", headers={"access-control-request-method": "POST"})
        assert asked.status_code == 204
        assert "Authorization" in asked.headers["access-control-allow-headers"]
        answer = client.post("/topics/web", json={"msg": 1}, headers=basic("ann", TOKEN))
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == "https://shop.example"
        refused = client.post("/topics/web", json={"msg": 1})
        assert refused.headers["access-control-allow-origin"] == "https://shop.example"


def test_the_gateway_uses_the_certificate_of_the_broker(tmp_path: Path) -> None:
    files = make_certificates(tmp_path)
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    with http_broker(tmp_path / "broker", *files_of(files, "server")[:2]) as broker:
        address = broker.url.replace("http:", "https:")
        with httpx.Client(base_url=address, verify=context, trust_env=False) as client:
            assert client.post("/topics/web", json={"msg": 1}).status_code == 200
            assert len(lines_of(client.get("/topics/web"))) == 1
        with pytest.raises(httpx.TransportError):
            httpx.get(broker.url, trust_env=False)
