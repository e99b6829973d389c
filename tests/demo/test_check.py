"""The closing check passes for a complete run, and each kind of fault fails the row that it belongs to."""

from collections import Counter

import pytest
from msgspec.structs import replace

from demo.check import check, is_right
from demo.evidence import CountedWindow, Evidence, SubscriberAccount, TopicChange, window_start
from demo.programs import Death

ACCOUNT = SubscriberAccount(owed=3, acked=3, lost=0, doubled=0, unsettled=0, is_whole=True)


@pytest.fixture
def evidence() -> Evidence:
    windows = [CountedWindow(0, 2), CountedWindow(10_000, 1)]
    return Evidence(
        stored={"tweets": {"1": None, "2": None, "3": None}, "users": {"u": 3}},
        seen={"u": 3},
        brought={"tweets": Counter(["1", "2", "3"]), "users": Counter(["u"])},
        counted=Counter({0: 2, 10_000: 1}),
        windows={"tweets_stats": windows, "users_stats": list(windows)},
        accounts={"tweets": ACCOUNT},
        deaths={"broker": []},
    )


def wrong(evidence: Evidence) -> list[tuple[str, str]]:
    return [(row.what, row.faults) for row in check(evidence) if not row.is_right]


def test_a_whole_run_is_right(evidence: Evidence) -> None:
    assert is_right(check(evidence))
    assert [(row.wanted, row.found) for row in check(evidence)] == [
        (3, 3), (1, 1), (1, 1), (3, 3), (2, 2), (2, 2), (3, 3), (3, 3), (0, 0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("brought", "faults"),
    [
        (["1", "2"], "1 missing"),
        (["1", "2", "3", "3"], "1 doubled"),
        (["1", "2", "3", "9"], "1 unknown to mongodb"),
        (["1", "1", "9"], "2 missing, 1 doubled, 1 unknown to mongodb"),
    ],
)
def test_a_tweet_missing_doubled_or_unknown_is_found(evidence: Evidence, brought: list[str], faults: str) -> None:
    evidence.brought["tweets"] = Counter(brought)
    assert wrong(evidence) == [("tweets in MongoDB that are in the topic once", faults)]


def test_a_user_whose_last_change_did_not_come_is_found(evidence: Evidence) -> None:
    evidence.seen["u"] = 2
    assert wrong(evidence) == [("users whose last event is their state in MongoDB", "")]


@pytest.mark.parametrize(
    ("account", "faults"),
    [
        (replace(ACCOUNT, acked=2), ""),
        (replace(ACCOUNT, lost=1, acked=2), "1 lost"),
        (replace(ACCOUNT, doubled=1), "1 doubled"),
        (replace(ACCOUNT, unsettled=1, is_whole=False), "1 unsettled"),
        (replace(ACCOUNT, acked=2, dead=1), "1 dead"),
        (replace(ACCOUNT, dead=1, is_whole=False), "1 dead"),
    ],
)
def test_an_event_not_acked_once_is_found(evidence: Evidence, account: SubscriberAccount, faults: str) -> None:
    evidence.accounts["tweets"] = account
    assert wrong(evidence) == [("events of tweets acked by the subscriber once", faults)]


def test_a_killed_subscriber_leaves_it_to_the_broker(evidence: Evidence) -> None:
    evidence.accounts["tweets"] = replace(ACCOUNT, acked=1, is_whole=False)
    assert wrong(evidence) == []


def test_a_window_that_is_missing_is_found_by_its_start_and_by_its_tweets(evidence: Evidence) -> None:
    del evidence.windows["users_stats"][1]
    assert wrong(evidence) == [
        ("final windows of users_stats, each once", "1 missing"),
        ("tweets in the windows of users_stats", ""),
    ]


def test_a_window_that_came_twice_is_found(evidence: Evidence) -> None:
    evidence.windows["tweets_stats"].append(CountedWindow(0, 2))
    assert ("final windows of tweets_stats, each once", "1 doubled") in wrong(evidence)


def test_tweets_counted_in_the_wrong_window_are_found(evidence: Evidence) -> None:
    evidence.windows["tweets_stats"] = [CountedWindow(0, 1), CountedWindow(10_000, 2)]
    assert wrong(evidence) == [("tweets in the windows of tweets_stats", "1 windows with too many")]


def test_a_window_without_tweets_of_ours_is_found(evidence: Evidence) -> None:
    evidence.windows["tweets_stats"].append(CountedWindow(90_000, 4))
    assert ("final windows of tweets_stats, each once", "1 without tweets") in wrong(evidence)


def test_tweets_that_came_late_are_counted_as_late(evidence: Evidence) -> None:
    evidence.windows["tweets_stats"] = [CountedWindow(0, 1), CountedWindow(10_000, 1, late=1)]
    assert wrong(evidence) == []


def test_a_window_whose_tweets_all_came_late_may_be_missing(evidence: Evidence) -> None:
    evidence.windows["tweets_stats"] = [CountedWindow(10_000, 1, late=2)]
    assert wrong(evidence) == []


def test_a_restart_counts_as_right_only_with_a_cause_outside(evidence: Evidence) -> None:
    evidence.deaths["broker"].append(Death(0.0, -9, "was killed by SIGKILL", is_explained=True))
    assert wrong(evidence) == []
    evidence.deaths["spark"] = [Death(0.0, 1, "ended with status 1: boom", is_explained=False)]
    assert wrong(evidence) == [("restarts that have a cause outside the program", "spark ended with status 1: boom")]


def test_waiting_makes_sense_for_missing_events_and_not_for_doubled_events(evidence: Evidence) -> None:
    assert [row.to_come for row in check(evidence)] == [0] * 9
    evidence.brought["tweets"] = Counter(["1", "2", "2"])
    evidence.accounts["tweets"] = replace(ACCOUNT, acked=1, doubled=1)
    del evidence.windows["users_stats"][1]
    evidence.deaths["broker"].append(Death(0.0, 1, "ended with status 1", is_explained=False))
    assert [row.to_come for row in check(evidence)] == [1, 0, 0, 2, 0, 1, 0, 1, 0]


def test_only_inserts_and_snapshots_bring_a_document() -> None:
    assert [op for op in ("insert", "snapshot", "update", "delete", "gap") if TopicChange(op, "1", 0).is_new] == [
        "insert",
        "snapshot",
    ]


def test_windows_are_aligned_to_1970() -> None:
    assert [window_start(at, 10_000) for at in (0, 9_999, 10_000, 1_650_054_011_933)] == [
        0,
        0,
        10_000,
        1_650_054_010_000,
    ]
