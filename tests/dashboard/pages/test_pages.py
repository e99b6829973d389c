"""The pages in a real browser, with a real broker, and a service whose handler fails."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from playwright.sync_api import Browser, expect

from tests.dashboard.billing import Billing, billing_of
from tests.dashboard.programs import DashboardProcess
from tests.dashboard.samples import publish_cluster, publish_stack
from tests.dashboard.visitor import PATIENCE_MS, Visitor, visiting
from tests.support.processes import BrokerProcess
from tests.support.users import entry
from tweetwire import Event, SyncClient

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]

PAGES = {
    "/": "Overview",
    "/topics": "Topics",
    "/subscriptions": "Subscriptions",
    "/dead-letters": "Dead letters",
    "/tweets": "Tweets",
    "/pipeline": "Pipeline",
    "/cluster": "Cluster",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("pages") / "broker") as process:
        yield process


@pytest.fixture(scope="module")
def billing(broker: BrokerProcess) -> Iterator[Billing]:
    with billing_of(broker.address) as billing:
        yield billing


@pytest.fixture(scope="module")
def dashboard(broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DashboardProcess]:
    with DashboardProcess(broker.address, tmp_path_factory.mktemp("dashboard") / "dashboard.log") as process:
        yield process


@pytest.fixture
def visitor(browser: Browser, dashboard: DashboardProcess) -> Iterator[Visitor]:
    with visiting(browser, dashboard.url, color_scheme="light") as visitor:
        yield visitor


def test_a_failed_event_is_seen_to_die_with_its_trace_and_a_click_settles_it(
    visitor: Visitor, broker: BrokerProcess, billing: Billing
) -> None:
    visitor.go("/dead-letters").sees("there are no dead letters")
    with SyncClient(broker.address, name="shop") as client:
        client.publish("orders", Event(id="o-1", priority=3, msg={"customer": "<b>Ada</b>"}))
        client.publish("invoices", Event(id="i-1", parent="o-1", msg={"of": "o-1"}))
    visitor.sees("no such customer: <b>Ada</b>").click()
    visitor.sees(re.compile("Traceback .*LookupError: no such customer: <b>Ada</b>", re.DOTALL))
    visitor.page.get_by_label("choose orders @0").click()
    billing.is_mended.set()
    visitor.presses("Redrive 1")
    visitor.presses("Redrive 1 event")
    visitor.sees("there are no dead letters")
    visitor.go("/topics/orders/0").sees("settled")
    visitor.sees("o-1", ".members")
    # The page draws the events that this event caused; each is a link, which a keyboard can follow, too.
    visitor.page.get_by_role("link", name="invoices @0 i-1").click()
    expect(visitor.page).to_have_url(re.compile("/topics/invoices/0$"), timeout=PATIENCE_MS)
    visitor.sees("the topic has no subscriptions")


def test_six_pages_show_a_running_stack_by_the_keyboard(
    visitor: Visitor, broker: BrokerProcess, billing: Billing
) -> None:
    with SyncClient(broker.address, name="stack") as client:
        publish_stack(client)
    visitor.go("/").sees("billing")
    visitor.sees("logger_stats")
    visitor.page.keyboard.press("2")
    visitor.sees("tweets_stats", "table").click()
    visitor.sees("@2", "table")
    visitor.page.keyboard.press("3")
    visitor.sees("billing", "table").click()
    visitor.sees("everything is settled")
    visitor.page.keyboard.press("5")
    visitor.sees("597 tweets of about 471 users")
    visitor.sees("@rosa_022")
    expect(visitor.page.get_by_role("img", name="tweets a second")).to_be_visible(timeout=PATIENCE_MS)
    visitor.page.keyboard.press("6")
    visitor.sees("20,223")
    visitor.sees("cdc.rtp_sse_db.tweets")
    visitor.page.keyboard.press("4")
    expect(visitor.page).to_have_url(re.compile("/dead-letters$"), timeout=PATIENCE_MS)
    visitor.sees("Export")
    visitor.page.keyboard.press("/")
    expect(visitor.page.get_by_label("filter")).to_be_focused(timeout=PATIENCE_MS)


def test_a_log_is_browsed_by_offset_and_text(visitor: Visitor, broker: BrokerProcess) -> None:
    with SyncClient(broker.address, name="shop") as client:
        client.publish_many("browsed", (Event(id=f"b-{n}", msg={"word": f"w{n}w"}) for n in range(120)))
    visitor.go("/topics/browsed").sees("@119")
    visitor.fills("offset or time", "@3")
    visitor.page.keyboard.press("Enter")
    visitor.sees("from @3 on")
    visitor.sees("@3", "table")
    visitor.fills("offset or time", "earliest limit=1")
    visitor.page.keyboard.press("Enter")
    visitor.sees("write an offset like", "body")
    visitor.fills("offset or time", "")
    visitor.fills("id or text", "W77W")
    visitor.presses("Search")
    visitor.sees("1 found among 120 events")
    visitor.sees("b-77").locator("xpath=ancestor::tr").get_by_role("link").click()
    visitor.sees("w77w", ".trace")


def test_the_marks_of_a_topic_are_shown_with_their_lag(visitor: Visitor, broker: BrokerProcess) -> None:
    with SyncClient(broker.address, name="bridge") as client:
        client.publish_many("carried", (Event(id=f"c-{n}", msg=n) for n in range(40)))
        visitor.go("/topics/carried").sees("@39")
        visitor.does_not_see("no mark is made yet")
        client.mark("carried", "central", 17, excepted=[3])
        client.confirm("carried", after="central", within_s=2)
        visitor.sees("publishers wait up to 2s for central")
        visitor.sees("central", "table")
        visitor.sees("@17", "table")
        visitor.sees("23", "table")


def test_the_brokers_of_a_cluster_are_shown_with_their_state(visitor: Visitor, broker: BrokerProcess) -> None:
    visitor.go("/cluster").sees("no bridge of this broker has seen a central engine")
    with SyncClient(broker.address, name="bridge") as client:
        publish_cluster(client)
        visitor.sees("redis://centre:6379", "table")
        visitor.sees("berlin:8000", "table")
        visitor.sees("this broker; last heartbeat")
        visitor.sees("no heartbeat for 2 min: the broker or its bridge is down")
        visitor.sees("<b>orders</b>", "table")


def test_a_subscription_without_a_name_shows_its_figures_alone(visitor: Visitor, broker: BrokerProcess) -> None:
    with SyncClient(broker.address, name="shop") as client:
        client.subscribe("watched", create=True)
        (name,) = client.stats()["topics"]["watched"]["subscriptions"]
        visitor.go(f"/subscriptions/watched/{name}").sees("only its own connection can read details")
        client.publish("watched", Event(id="w-1", msg=1))
        visitor.sees("1 in flight")
        visitor.go("/topics/watched/0").sees("the topic has no subscriptions")


def test_the_page_waits_for_a_broker_that_goes_away(visitor: Visitor, broker: BrokerProcess) -> None:
    visitor.go("/topics").sees("dead_letters")
    broker.kill()
    visitor.sees("no broker answers at")
    visitor.sees("dead_letters")
    broker.start()
    with SyncClient(broker.address, name="shop") as client:
        client.publish("afterwards", Event(id="a-1", msg=1))
    visitor.sees("afterwards")
    visitor.does_not_see("no broker answers at")


def test_every_page_fits_a_phone_and_knows_light_and_dark(
    browser: Browser, dashboard: DashboardProcess, billing: Billing
) -> None:
    phone = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True, "color_scheme": "dark"}
    is_dark = "document.body?.classList.contains('body--dark')"
    with visiting(browser, dashboard.url, **phone) as visitor:
        for path, title in PAGES.items():
            visitor.go(path).sees(title, "h1")
            overhang = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert visitor.page.evaluate(overhang) == 0, path
            visitor.page.wait_for_function(is_dark)
        visitor.page.get_by_role("button", name="light or dark").click()
        visitor.page.wait_for_function(f"{is_dark} === false")


# With users


def sign_in(visitor: Visitor, name: str, token: str) -> None:
    visitor.fills("name", name)
    visitor.fills("token", token)
    visitor.presses("Sign in")


def test_where_there_are_users_one_signs_in_and_only_administrators_act(browser: Browser, tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    users.write_text(entry("guest", "g-secret", "admin = false") + entry("boss", "b-secret", "admin = true"))
    with (
        BrokerProcess(tmp_path / "broker", "--users", str(users), "--topic", "orders") as broker,
        DashboardProcess(broker.address, tmp_path / "dashboard.log") as dashboard,
    ):
        with visiting(browser, dashboard.url) as guest:
            guest.go("/topics/orders").sees("Sign in", "h1")
            sign_in(guest, "guest", "b-secret")
            guest.sees("The broker knows no such name and token.")
            guest.go("/topics/orders")
            sign_in(guest, "guest", "g-secret")
            guest.sees("no description yet")
            assert not guest.page.get_by_role("button", name="Comment").is_visible()
            assert "g-secret" not in guest.page.content()
            assert guest.page.evaluate("document.cookie") == ""
            (cookie,) = guest.page.context.cookies()
            assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
            assert "g-secret" not in cookie["value"]
            guest.go("/").sees("only administrators see who is connected")
        with visiting(browser, dashboard.url) as boss:
            boss.go("/topics/orders")
            sign_in(boss, "boss", "b-secret")
            boss.fills("text", "mind the <i>gap</i>")
            boss.presses("Comment")
            boss.sees("mind the <i>gap</i>")
            word = boss.page.context.cookies()
            boss.presses("sign out")
            boss.sees("Sign in", "h1")
            boss.page.context.add_cookies(cast(Any, word))
            boss.go("/").sees("Sign in", "h1")
            assert dashboard.terminate() == 0
        log = dashboard.log_path.read_text() + broker.log_path.read_text()
        assert "secret" not in log
        assert "Traceback" not in log
