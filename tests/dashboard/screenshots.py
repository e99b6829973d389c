"""``make screenshots``: take the documentation's pictures of the dashboard, from a running demo with a handler that fails."""

import re
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from anyio.from_thread import start_blocking_portal

from tests.dashboard.programs import NO_BROWSER, find_chromium, open_browser
from tests.dashboard.visitor import Visitor, visiting
from tests.support.paths import ROOT
from tests.support.waiting import until
from tweetwire import Client, Event, StoredEvent, SyncClient

FOLDER = ROOT / "docs" / "screenshots"
WINDOWS = 20
WITHIN_S = 1200.0
PHONE = {"viewport": {"width": 390, "height": 800}, "color_scheme": "dark"}
DESK = {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"}


@contextmanager
def demo(folder: Path) -> Iterator[tuple[str, str]]:
    """Run the demo. Yields the addresses of its broker and of its dashboard."""
    log_path = folder / "demo.log"
    command = [
        sys.executable,
        "-m",
        "demo",
        "--free-ports",
        "--data-dir",
        str(folder / "data"),
        "--window",
        "5s",
        "--rate",
        "100",
    ]
    with log_path.open("wb") as log:
        process = subprocess.Popen([*command, "--data-dir", str(folder / "data")], stdout=log, stderr=log)
    try:
        pattern = re.compile(r'demo ready on ([^\s"]+).*dashboard: (http[^\s"]+)', re.DOTALL)
        until(
            lambda: process.poll() is not None or pattern.search(log_path.read_text()) is not None,
            WITHIN_S,
            pause_s=0.5,
        )
        found = pattern.search(log_path.read_text())
        if found is None:
            sys.exit(log_path.read_text())
        yield found[1], found[2]
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


async def bill(broker: str) -> None:
    """Nack every order with the reason."""
    async with Client(broker, name="billing") as client:
        subscription = await client.subscribe("orders", as_="billing", from_="earliest", tries=2, create=True)
        async for events in subscription:
            for event in events:
                try:
                    customer_of(event)
                except LookupError as error:
                    trace = "".join(traceback.format_exception(error)).replace(f"{FOLDER.parents[1]}/", "")
                    await subscription.nack(event, str(error), code="LookupError", trace=trace)


def customer_of(event: StoredEvent) -> None:
    """Look up a customer who does not exist."""
    raise LookupError(f"no such customer: {event.decode()['customer']}")


def publish_orders(client: SyncClient) -> None:
    """Publish orders that billing cannot handle, and the events that they cause."""
    for number, customer in enumerate(("ada", "grace", "edsger")):
        client.publish("orders", Event(id=f"o-{number}", priority=3, key=customer, msg={"customer": customer}))
        client.publish("invoices", Event(id=f"i-{number}", parent=f"o-{number}", msg={"of": f"o-{number}"}))
        for copy in range(2):
            mail = {"to": f"{customer}@mail.example", "copy": copy}
            client.publish("mails", Event(id=f"m-{number}-{copy}", parent=f"i-{number}", msg=mail))
    client.command("describe orders What customers have ordered; billing turns each into an invoice.")
    client.command("comment orders Priority 3 is for orders that are paid.")


def pictures(visitor: Visitor, names: dict[str, tuple[str, str]]) -> None:
    """Take a picture of each page, once it shows the expected text."""
    for name, (path, text) in names.items():
        visitor.go(path).sees(text)
        # The page redraws its charts every two seconds; the second drawing is complete.
        visitor.page.wait_for_timeout(4000)
        visitor.page.screenshot(path=str(FOLDER / f"{name}.png"))


def main() -> None:
    """Run a demo and take the pictures."""
    browser_path = find_chromium() or sys.exit(NO_BROWSER)
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        demo(Path(folder)) as (broker, url),
        start_blocking_portal() as portal,
    ):
        billing = portal.start_task_soon(bill, broker)
        with SyncClient(broker, name="shop") as client:
            publish_orders(client)
            until(lambda: client.stats()["topics"]["tweets_stats"]["next"] >= WINDOWS, WITHIN_S, pause_s=0.5)
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
        billing.cancel()


if __name__ == "__main__":
    main()
