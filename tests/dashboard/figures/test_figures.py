"""Answers of the broker are converted to rows, numbers and charts."""

import json
from typing import Any

import msgspec
import pytest

from dashboard.figures import charts
from dashboard.figures.chain import tree_data, tree_of
from dashboard.figures.dead_letters import chosen, dead_rows, failure_rows, redrive_lines, written
from dashboard.figures.overview import tiles
from dashboard.figures.pipeline import batch_rows, change_rows, ingest_rows, ingest_series, percentiles
from dashboard.figures.programs import client_rows, program_rows
from dashboard.figures.statistics import named, ranks, user_rows, windows
from dashboard.figures.subscriptions import standing_rows, subscription_rows
from dashboard.figures.topics import (
    confirmation_text,
    event_members,
    event_rows,
    is_place,
    mark_rows,
    matches,
    topic_rows,
)
from dashboard.history import History
from dashboard.words import age, cut, number, rate, time_text
from tests.dashboard import samples
from tweetwire.protocol.events import StoredEvent, decode_stored
from tweetwire.runtime.wording import policy_text
from tweetwire.statistics import TweetsWindow, UsersWindow

NOW_MS = 1795830180000
POLICY = {
    "timeout_ms": 30000,
    "tries": 5,
    "strikes": ["nack", "timeout"],
    "backoff_ms": 0,
    "max_wait_ms": 60000,
}


def stored(topic: str, offset: int, msg: Any = None, *, timestamp: int = NOW_MS, **members: Any) -> StoredEvent:
    event = {"topic": topic, "offset": offset, "timestamp": timestamp, "id": f"{topic}-{offset}", "priority": 0}
    return decode_stored(msgspec.json.encode(event | {"msg": msg} | members))


def subscription(**figures: Any) -> dict[str, Any]:
    nothing = dict.fromkeys(("consumers", "pending", "delayed", "in_flight", "settled", "redelivered", "dead"), 0)
    return nothing | {"durable": True, "policy": POLICY} | figures


def stats(**subscriptions: dict[str, Any]) -> dict[str, Any]:
    topic = {"earliest": 10, "next": 110, "bytes": 2048, "subscriptions": subscriptions}
    return {"connections": 3, "commands": 1234, "delivered": 0, "acked": 0, "topics": {"orders": topic}}


def dead(offset: int, name: str = "billing", topic: str = "orders", **last: Any) -> dict[str, Any]:
    errors = [
        {"at": NOW_MS - 1000, "cause": "timeout", "client": "b-1"},
        {"at": NOW_MS + offset, "cause": "nack", "client": "b-2", "message": "no such user", "code": 404} | last,
    ]
    place = {"topic": topic, "offset": offset, "subscription": name, "dead_letter": offset, "priority": 0}
    return place | {"tries": 2, "first_at": NOW_MS - 1000, "last_at": NOW_MS + offset, "errors": errors}


def test_numbers_and_times_are_written_for_people() -> None:
    assert [number(value) for value in (0, 1234567, 12.34, 0.0123, 250.7, None)] == [
        *("0", "1,234,567", "12.3", "0.012", "251", "–"),
    ]
    assert rate(1500.4) == "1,500/s"
    assert [age(seconds) for seconds in (-1, 59, 60, 7200, 200000)] == ["0 s", "59 s", "1 min", "2 h", "2 d"]
    assert time_text(NOW_MS) == "2026-11-28 01:43:00.000"
    assert (cut("abcdef", 4), cut("abcd", 4)) == ("abc…", "abcd")


def test_the_first_page_counts_all_subscriptions_and_marks_the_dead() -> None:
    history = History()
    found = stats(a=subscription(pending=7, in_flight=2, dead=1), b=subscription(pending=5))
    history.note(1.0, found)
    by_label = {tile.label: tile for tile in tiles(found, history)}
    assert (by_label["pending"].value, by_label["in flight"].value, by_label["dead"].value) == ("12", "2", "1")
    assert by_label["dead"].is_bad
    assert not {tile.label: tile for tile in tiles(stats(), history)}["dead"].is_bad


def test_a_program_runs_while_it_is_connected_and_its_events_are_fresh() -> None:
    clients: list[dict[str, Any]] = [
        {"client": name, "peer": "p", "subscriptions": [], "in_flight": 0}
        for name in ("sse_ingest", "spark", "subscriber-0", "subscriber-1")
    ]
    newest = {"logger_stats": NOW_MS - 3000, "tweets": NOW_MS - 3_600_000, "tweets_stats": NOW_MS - 300_000}
    rows = {row["program"]: row for row in program_rows(stats(), clients, newest, NOW_MS)}
    states = {name: row["state"] for name, row in rows.items()}
    assert states == {
        "broker": "running",
        "sse_ingest": "running",
        "change_stream": "away",
        "subscriber": "running",
        "spark": "quiet",
    }
    assert rows["subscriber"]["detail"] == "2 connections"
    assert rows["change_stream"]["detail"] == "last event of tweets 1 h ago"


def test_without_a_list_of_clients_the_topics_are_the_only_sign() -> None:
    rows = {row["program"]: row for row in program_rows(stats(), None, {"tweets": NOW_MS - 5000}, NOW_MS)}
    assert rows["change_stream"]["state"] == "running"
    assert rows["sse_ingest"]["state"] == "not seen"
    assert rows["subscriber"]["state"] == "unknown"


def test_clients_of_one_name_are_one_row() -> None:
    rows = client_rows(
        [
            {"client": "b", "peer": "1", "subscriptions": [["t", "s"]], "in_flight": 2},
            {"client": "a", "peer": "2", "subscriptions": [], "in_flight": 0},
            {"client": "b", "peer": "3", "subscriptions": [["t", "s"], ["u", "s"]], "in_flight": 3},
        ]
    )
    assert rows == [
        {"client": "a", "connections": 1, "in_flight": 0, "of": ""},
        {"client": "b", "connections": 2, "in_flight": 5, "of": "t · s, u · s"},
    ]


def test_topics_and_subscriptions_are_rows_and_the_fullest_subscription_is_first() -> None:
    found = stats(a=subscription(pending=1), b=subscription(pending=3, in_flight=4, dead=2))
    (topic,) = topic_rows(found, History())
    assert (topic["events"], topic["size"], topic["dead"], topic["href"]) == (100, "2.0 KiB", 2, "/topics/orders")
    rows = subscription_rows(found, History())
    assert [row["subscription"] for row in rows] == ["b", "a"]
    assert rows[0]["href"] == "/subscriptions/orders/b"
    assert policy_text(POLICY) == "timeout=30s tries=5 strikes=nack,timeout backoff=0s max_wait=1m"


def test_marks_are_rows_and_the_slowest_is_first() -> None:
    fast, slow = ({"offset": 110 - lag, "lag": lag, "excepted": 1, "overtaken": 0} for lag in (0, 7))
    report = {"marks": {"fast": fast, "slow": slow}}
    assert [(row["mark"], row["offset"], row["lag"]) for row in mark_rows(report)] == [
        ("slow", "@103", 7),
        ("fast", "@110", 0),
    ]
    assert confirmation_text(report) == ""
    wanted = report | {"confirm": {"after": ["fast", "slow"], "within_ms": 500}}
    assert confirmation_text(wanted) == "publishers wait up to 500ms for fast and slow"


def test_events_are_rows_with_the_beginning_of_their_payload() -> None:
    event = stored("orders", 7, {"text": "x" * 1000}, key="k", parent="p-1", headers={"a": "b"})
    (row,) = event_rows([event])
    assert (row["event"], row["key"], row["href"]) == ("@7", "k", "/topics/orders/7")
    assert len(row["msg"]) == 160
    members = dict(event_members(event))
    assert members["parent"] == "p-1"
    assert json.loads(members["headers"]) == {"a": "b"}
    assert "producer" not in members


@pytest.mark.parametrize(
    ("words", "is_found"), [("ORDERS-7", True), ("needle", True), ("the-key", True), ("absent", False)]
)
def test_words_are_searched_in_id_key_and_payload(words: str, is_found: bool) -> None:
    assert matches(stored("orders", 7, {"text": "a Needle"}, key="the-key"), words) is is_found


@pytest.mark.parametrize("text", ["0", "1042", "earliest", "latest", "2026-11-27T20:00:00Z"])
def test_a_place_in_a_log_is_known_by_its_form(text: str) -> None:
    assert is_place(text)


@pytest.mark.parametrize("text", ["", "o-1", "1 limit=9", "1\nping", "9" * 50, "latest "])
def test_a_text_that_is_more_than_a_place_is_refused(text: str) -> None:
    assert not is_place(text)


def test_an_explanation_is_a_row_that_says_where_and_why() -> None:
    common = {"topic": "orders", "offset": 7, "subscription": "billing", "failed_tries": 2, "tries": 5, "errors": []}
    states: list[dict[str, Any]] = [
        {"state": "in_flight", "client": "b-1", "peer": "1.2.3.4:5"},
        {"state": "in_flight", "client": None, "peer": None},
        {"state": "waiting", "behind": 1200, "because": "no connection has this subscription"},
        {"state": "delayed", "until": NOW_MS, "for_ms": 61000},
        {"state": "dead", "dead_letter": 3},
        {"state": "dead", "dead_letter": None},
        {"state": "before_start"},
        {"state": "behind_retention", "earliest": 90, "overtaken": 3},
        {"state": "settled", "errors": dead(1)["errors"]},
    ]
    rows = standing_rows([common | state for state in states])
    assert [row["why"] for row in rows] == [
        "in flight with b-1 (1.2.3.4:5)",
        "in flight",
        "waits behind 1,200 others: no connection has this subscription",
        "waits 61s more after a failed try, until 2026-11-28T01:43:00.000Z",
        "dead, its letter is dead_letters @3",
        "dead",
        "older than the subscription, which began after it",
        "removed by retention or a purge; the log begins at @90",
        "settled",
    ]
    assert (rows[0]["state"], rows[0]["tries"], rows[0]["last"]) == ("in flight", "2 of 5", "")
    assert rows[-1]["last"] == "nack: 404 no such user"


def test_the_dead_are_rows_by_their_death_and_can_be_filtered() -> None:
    rows = dead_rows([dead(1), dead(5, topic="mails", message="Bounced"), dead(3, "archive", code=None, message=None)])
    assert [row["offset"] for row in rows] == [5, 3, 1]
    assert [row["message"] for row in rows] == ["404 Bounced", "", "404 no such user"]
    assert [row["offset"] for row in chosen(rows, topic="orders", subscription=None, words="")] == [3, 1]
    assert [row["offset"] for row in chosen(rows, topic=None, subscription="archive", words="")] == [3]
    assert [row["offset"] for row in chosen(rows, topic=None, subscription=None, words=" bounced ")] == [5]


def test_tries_are_listed_the_latest_first_with_the_consumers_words() -> None:
    rows = failure_rows(dead(0, trace="Traceback")["errors"])
    assert [(row["number"], row["cause"], row["code"], row["trace"]) for row in rows] == [
        (2, "nack", "404", "Traceback"),
        (1, "timeout", "", ""),
    ]


def test_a_redrive_is_a_command_for_each_subscription_of_a_bounded_length() -> None:
    rows = dead_rows([*(dead(offset) for offset in range(401)), dead(9, "archive"), dead(7, topic="mails")])
    lines = redrive_lines(rows)
    assert lines[0] == "redrive mails as=billing @7"
    assert lines[1] == "redrive orders as=archive @9"
    assert [line.count("@") for line in lines[2:]] == [200, 200, 1]
    assert lines[2].startswith("redrive orders as=billing @0 @1 @2 ")


def test_the_export_has_the_rows_shown_in_the_brokers_words() -> None:
    found = [dead(1), dead(2, "archive")]
    rows = chosen(dead_rows(found), topic=None, subscription="archive", words="")
    assert [json.loads(line) for line in written(found, rows).splitlines()] == [found[1]]


def test_windows_are_in_the_order_of_time_and_each_once() -> None:
    events = [
        stored("tweets_stats", 0, samples.tweets_window(5)),
        stored("tweets_stats", 1, samples.tweets_window(0)),
        stored("tweets_stats", 2, samples.tweets_window(5, tweets=600)),
        stored("tweets_stats", 3, "not a window"),
        stored("tweets_stats", 4, {"window": "neither"}),
    ]
    found = windows(events, TweetsWindow)
    assert [window.tweets for window in found] == [597, 600]
    series = named(found, mean=["sentiment", "mean"], none=["sentiment", "missing"], text=["window", "start"])
    assert series == {"mean": [(1795830185000, -0.016), (1795830190000, -0.016)], "none": [], "text": []}
    assert ranks(found[0].hashtags) == [("NowPlaying", 109), ("Tech", 16)]


def test_top_users_have_their_names_or_their_ids() -> None:
    window = msgspec.convert(samples.users_window(0), UsersWindow)
    assert user_rows(window, "tweets") == [{"place": 1, "user": "@rosa_022", "tweets": "31"}]
    assert user_rows(window, "followers") == [{"place": 1, "user": "@126517177", "followers": "91,378"}]


def test_the_ingesters_figures_are_rows_and_series() -> None:
    events = [stored("logger_stats", n, samples.ingester(n), timestamp=1000 * n) for n in range(2)]
    rows = {row["figure"]: row["value"] for row in ingest_rows(samples.ingester(20221))}
    assert rows["events stored"] == "20,221"
    assert rows["workers of replay"] == "1"
    assert rows["planned panics of the source (simulator or rtp-server)"] == "101"
    assert rows["workers that crashed"] == "0"
    assert ingest_series(events) == {"workers": [(0, 3.0), (1000, 3.0)]}
    assert percentiles(events, "tweets_write_ms")["p95"] == [(0, 38.261), (1000, 38.261)]
    assert percentiles(events, "users_write_ms") == {"p75": [], "p85": [], "p95": []}
    assert percentiles([stored("logger_stats", 0, [1])], "tweets_write_ms")["p75"] == []


def test_the_lag_of_a_change_stream_is_from_the_change_to_the_broker() -> None:
    at = samples.TWEET["at"]
    extras: list[dict[str, Any]] = [{}, {}, {}, {"op": "snapshot"}, {"at": None}]
    events = [
        stored("tweets", n, samples.TWEET | extra, timestamp=at + 10 * n, producer="cdc.db.tweets", sequence=n)
        for n, extra in enumerate(extras)
    ]
    (row,) = change_rows({"tweets": events, "users": [], "orders": [stored("orders", 0, {})]}, at + 5000)
    assert row == {
        "topic": "tweets",
        "producer": "cdc.db.tweets",
        "sequence": "4",
        "median": "10 ms",
        "most": "20 ms",
        "last": "5 s ago",
    }


def test_windows_published_in_one_of_sparks_batches_are_one_row() -> None:
    events = [
        stored("tweets_stats", n, samples.tweets_window(5 * n), timestamp=NOW_MS + n, producer="s", sequence=sequence)
        for n, sequence in enumerate((7 << 20, (7 << 20) + 1, 9 << 20))
    ]
    rows = batch_rows({"tweets_stats": events, "users_stats": []})
    assert [(row["batch"], row["windows"], row["tweets"], row["late"]) for row in rows] == [
        ("9", "1", "597", "2"),
        ("7", "2", "1,194", "4"),
    ]


def chain(unknown_parent: str | None = None, **asked: Any) -> dict[str, Any]:
    places = ((0, "orders", 4, "o"), (1, "invoices", 0, "i"), (2, "mails", 0, "m"), (1, "mails", 7, "n"))
    events = [{"depth": d, "topic": topic, "offset": offset, "id": i, "parent": None} for d, topic, offset, i in places]
    return {"asked": asked, "unknown_parent": unknown_parent, "is_whole": True, "events": events}


def test_a_chain_is_a_tree_with_a_mark_at_the_event_of_the_command() -> None:
    nodes = tree_of(chain(topic="invoices", offset=0))
    assert [(node.depth, node.place, node.is_asked) for node in nodes] == [
        (0, "orders @4", False),
        (1, "invoices @0", True),
        (2, "mails @0", False),
        (1, "mails @7", False),
    ]
    drawn = tree_data(nodes[0])
    assert [child["name"] for child in drawn["children"]] == ["i\ninvoices @0", "n\nmails @7"]
    assert drawn["children"][0]["children"][0]["value"] == "mails @0"


def test_a_cause_that_is_not_found_is_said_to_be_missing() -> None:
    nodes = tree_of(chain("lost", topic="orders", offset=4))
    assert [(node.depth, node.place) for node in nodes][:2] == [(0, "not found"), (1, "orders @4")]
    assert [child.id for child in nodes[0].children] == ["o"]


def test_only_as_many_lines_are_drawn_as_can_be_told_apart() -> None:
    series = {f"s{n}": [(0, float(n))] for n in range(20)} | {"empty": []}
    drawn = charts.lines(charts.busiest(series))
    names = [one["name"] for one in drawn["series"]]
    assert len(names) == len(charts.COLOURS) == len(set(names))
    assert "s19" in names
    assert "s0" not in names
