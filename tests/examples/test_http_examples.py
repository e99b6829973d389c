"""The examples in `examples/http` do what they say, where their programs are installed."""

import functools
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.broker.gateways.http.serving import HttpBroker, http_broker
from tests.dashboard.programs import find_chromium, open_browser
from tests.support.paths import ROOT

FOLDER = ROOT / "examples" / "http"
NEEDED = os.environ.get("TWEETWIRE_TEST_LANGUAGES") == "needed"
LIMIT_S = 200


@pytest.fixture(scope="module")
def pages() -> Iterator[str]:
    """The origin of a web server for the example page."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 — the name is the base class's
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(FOLDER)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, pages: str) -> Iterator[HttpBroker]:
    with http_broker(tmp_path_factory.mktemp("http") / "broker", "--http-allow-origin", pages) as broker:
        yield broker


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["bash", "work.sh"], "from bash"),
        (["node", "work.mjs"], "from Node"),
        (["go", "run", "work.go"], "from Go"),
        (["java", "Work.java"], "from Java"),
    ],
    ids=lambda word: word[0] if isinstance(word, list) else "",
)
def test_an_example_publishes_takes_and_acks(command: list[str], said: str, broker: HttpBroker, tmp_path: Path) -> None:
    if not shutil.which(command[0]) and not NEEDED:
        pytest.skip(f"{command[0]} is not installed")
    name = command[0]
    done = subprocess.run(
        [*command, broker.url],
        cwd=FOLDER,
        env=os.environ | {"GOCACHE": str(tmp_path), "GOFLAGS": "-mod=mod", "GO111MODULE": "off"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert '"promise":"synced"' in done.stdout
    assert said in done.stdout
    with broker.client() as client:
        figures = client.get("/topics/jobs/stats").json()["topics"]["jobs"]["subscriptions"][name]
        assert (figures["pending"], figures["in_flight"]) == (0, 0)
        assert figures["settled"] >= 1


@pytest.mark.timeout(240)
def test_the_page_shows_events_as_they_come(broker: HttpBroker, pages: str) -> None:
    path = find_chromium()
    if path is None:
        if os.environ.get("TWEETWIRE_TEST_BROWSER") == "needed":
            pytest.fail("no Chromium is installed")
        pytest.skip("no Chromium is installed")
    with broker.client() as client, open_browser(path) as browser:
        client.post("/topics/shown", json={"msg": "before"})
        page = browser.new_page()
        page.goto(f"{pages}/follow.html?url={broker.url}&topic=shown")
        page.get_by_text('0 "before"').wait_for()
        client.post("/topics/shown", json={"msg": "after"})
        page.get_by_text('1 "after"').wait_for()
