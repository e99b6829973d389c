"""``make screenshots``: the pages of a demo that has run for a while, with a handler that fails, as pictures in the docs."""

import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from broker import Event, SyncClient
from tests.dashboard.billing import billing_of
from tests.dashboard.programs import NO_BROWSER, find_chromium, open_browser
from tests.dashboard.visitor import Visitor, visiting

FOLDER = Path(__file__).parents[2] / "docs" / "screenshots"
WINDOWS = 20
WITHIN_S = 600.0
PHONE = {"viewport": {"width": 390, "height": 800}, "color_scheme": "dark"}
DESK = {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"}


@contextmanager
def demo(folder: Path) -> Iterator[tuple[str, str]]:
    """Run the demo; gives the addresses of its broker and of its dashboard."""
    log_path = folder / "demo.log"
    command = [sys.executable, "-m", "demo", "--free-ports", "--data-dir", str(folder / "data"), "--window", "5s"]
    with log_path.open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        pattern = re.compile(r'demo ready on ([^\s"]+).*dashboard: (http[^\s"]+)', re.DOTALL)
        wait_until(lambda: process.poll() is not None or pattern.search(log_path.read_text()) is not None)
        found = pattern.search(log_path.read_text())
        if found is None:
            sys.exit(log_path.read_text())
        yield found[1], found[2]
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait, but not for ever."""
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"not within {WITHIN_S:g} s")
        time.sleep(0.5)


def publish_orders(client: SyncClient) -> None:
    """Publish orders that billing cannot handle, and what they cause."""
    for number, customer in enumerate(("ada", "grace", "edsger")):
        client.publish("orders", Event(id=f"o-{number}", priority=3, key=customer, msg={"customer": customer}))
        client.publish("invoices", Event(id=f"i-{number}", parent=f"o-{number}", msg={"of": f"o-{number}"}))
        for copy in range(2):
            mail = {"to": f"{customer}@mail.example", "copy": copy}
            client.publish("mails", Event(id=f"m-{number}-{copy}", parent=f"i-{number}", msg=mail))
    client.command("describe orders What customers have ordered; billing turns each into an invoice.")
    client.command("comment orders Priority 3 is for orders that are paid.")


def pictures(visitor: Visitor, names: dict[str, tuple[str, str]]) -> None:
    """Take a picture of each page, when it shows what it should."""
    for name, (path, text) in names.items():
        visitor.go(path).sees(text)
        # Charts are drawn anew every two seconds; the second drawing has all that the first had not.
        visitor.page.wait_for_timeout(4000)
        visitor.page.screenshot(path=str(FOLDER / f"{name}.png"))


def main() -> None:
    """Run a demo and take the pictures."""
    browser_path = find_chromium() or sys.exit(NO_BROWSER)
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, demo(Path(folder)) as (broker, url), billing_of(broker):
        with SyncClient(broker, name="shop") as client:
            publish_orders(client)
            wait_until(lambda: client.stats()["topics"]["tweets_stats"]["next"] >= WINDOWS)
        with open_browser(browser_path) as browser:
            with visiting(browser, url, **DESK) as desk:
                desk.go("/dead-letters").sees("no such customer: edsger").click()
                desk.sees("LookupError: no such customer: edsger")
                desk.page.screenshot(path=str(FOLDER / "dead-letters.png"))
                pictures(
                    desk,
                    {
                        "overview": ("/", "running"),
                        "topic": ("/topics/orders", "What customers have ordered"),
                        "event": ("/topics/invoices/0", "this one"),
                        "subscriptions": ("/subscriptions", "billing"),
                        "tweets": ("/tweets", "last window:"),
                        "pipeline": ("/pipeline", "cdc."),
                    },
                )
            with visiting(browser, url, **PHONE) as phone:
                pictures(phone, {"phone": ("/topics/orders/0", "dead: dead_letters")})


if __name__ == "__main__":
    main()
