"""The ingester as a process: simulator, MongoDB, broker and people."""

import gzip
import json
import os
import random
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from pymongo.database import Database

from sse_ingest import serve as serve_module
from sse_ingest.settings import IngestSettings
from sse_ingest.simulator.tweets import Timeline
from tests.sse_ingest.programs import Person, Program
from tests.sse_ingest.samples import envelope, status, write_lines
from tests.sse_ingest.stored import assert_counts_are_exact
from tests.support.processes import BrokerProcess
from tests.support.recordings import RECORDINGS, SAMPLES, invented, recorded
from tests.support.resets import reset_while_stopped
from tests.support.scripted_http import OK, Peer, ScriptedServer, chunk, response
from tests.support.waiting import until
from tweetwire import SyncClient
from tweetwire.protocol.errors import StartError

pytestmark = [pytest.mark.stack, pytest.mark.timeout(120)]


def ingester(folder: Path, mongo_url: str, database: Database[dict[str, Any]], *flags: object) -> Program:
    return Program("sse_ingest", folder, "--mongo-url", mongo_url, "--database", database.name, *flags)


def simulator(folder: Path, *flags: object) -> Program:
    return Program("sse_ingest.simulator", folder, *flags)


def both(server: Program) -> list[str]:
    return [flag for route in (1, 2) for flag in ("--source", f"http://127.0.0.1:{server.port}/tweets/{route}")]


def balance(program: Program) -> dict[str, dict[str, Any]]:
    """Return the account of each source at the end, and check that its numbers add up."""
    assert not program.logged("shutdown timed out")
    accounts = {entry["source"]: entry for entry in program.logged("account")}
    for account in accounts.values():
        assert account["in_flight"] == 0, account
        settled = account["stored"] + account["already_there"] + account["notices"] + account["rejected"]
        assert account["read"] + account["nested"] == settled
    return accounts


def test_everything_a_simulator_sends_is_stored_once_and_the_program_ends_with_the_source(
    tmp_path: Path, mongo_url: str, database: Database[dict[str, Any]]
) -> None:
    with simulator(tmp_path, "--count", 600, "--seed", 7, "--panic-every", 50) as server:
        with ingester(tmp_path, mongo_url, database, *both(server), "--until-end") as program:
            assert program.wait() == 0
        accounts = balance(program)
        assert [account["read"] for account in accounts.values()] == [612, 612]
        assert [(account["panics"], account["crashes"]) for account in accounts.values()] == [(12, 0), (12, 0)]
        assert sum(account["stored"] for account in accounts.values()) == database.tweets.count_documents({})
        assert database.rejected_tweets.count_documents({"raw": '{"message": panic}'}) == 24
        assert_counts_are_exact(database)
        hashtags = json.loads((tmp_path / "hashtag_stats.json").read_text())
        assert list(hashtags.values()) == sorted(hashtags.values(), reverse=True)
        assert sum(hashtags.values()) == sum(len(tweet["hashtags"]) for tweet in database.tweets.find())


def test_killed_at_random_under_load_and_started_again_every_tweet_counts_once(
    tmp_path: Path, mongo_url: str, database: Database[dict[str, Any]]
) -> None:
    dice = random.Random(3)
    with simulator(tmp_path, "--count", 600, "--rate", 600, "--seed", 8) as server:
        program = ingester(tmp_path, mongo_url, database, *both(server), "--until-end", "--batch-size", 20)
        for _ in range(3):
            with program:
                time.sleep(dice.random() * 0.9)  # a kill at a random moment
                program.kill()
                assert_counts_are_exact(database)
        with program:
            assert program.wait() == 0
    statuses = [Timeline(8, route).status(number) for route in (1, 2) for number in range(600)]
    nested = [one[member] for one in statuses for member in ("retweeted_status", "quoted_status") if member in one]
    assert set(database.tweets.distinct("_id")) == {one["id_str"] for one in (*statuses, *nested)}
    assert_counts_are_exact(database)


@pytest.mark.parametrize(
    ("path", "counts"),
    [
        *invented("tweets/stream.jsonl", (14, 4, 4, 0)),
        *recorded("tweets/stream-2016-minute-with-deletes.jsonl", (3093, 849, 890, 0)),
    ],
)
def test_a_file_that_is_read_twice_is_stored_once_and_accounted_for(
    tmp_path: Path, mongo_url: str, database: Database[dict[str, Any]], path: Path, counts: tuple[int, ...]
) -> None:
    flags = ("--source", f"replay:{path}", "--until-end")
    with ingester(tmp_path, mongo_url, database, *flags) as program:
        assert program.wait() == 0
    (first,) = balance(program).values()
    assert (first["read"], first["nested"], first["notices"], first["rejected"]) == counts
    with ingester(tmp_path, mongo_url, database, *flags) as program:
        assert program.wait() == 0
    again = program.logged("account")[-1]
    assert (again["stored"], again["already_there"]) == (0, first["stored"] + first["already_there"])
    assert database.tweets.count_documents({}) == first["stored"]
    assert_counts_are_exact(database)


@pytest.mark.parametrize(
    ("path", "read", "rejected"),
    [
        *invented("tweets/shapes.jsonl", 11, 1),
        *invented("rtp-server/stream.sse", 4, 1),
        *recorded("tweets/shapes-2006-2018.jsonl", 569, 3),
        *recorded("tweets/escaped-2014.jsonl", 100, 0),
        *recorded("tweets/extended-2016.jsonl", 28, 0),
        *recorded("tweets/control-messages.jsonl", 200, 0),
        *recorded("rtp-server/stream.sse", 7, 2),
    ],
)
def test_every_line_of_a_file_is_accounted_for_and_rejected_ones_have_a_reason(
    tmp_path: Path, mongo_url: str, database: Database[dict[str, Any]], path: Path, read: int, rejected: int
) -> None:
    with ingester(tmp_path, mongo_url, database, "--source", f"replay:{path}", "--until-end") as program:
        assert program.wait() == 0
    (account,) = balance(program).values()
    assert (account["read"], account["rejected"]) == (read, rejected)
    assert all(one["error"] and one["raw"] and one["at"] for one in database.rejected_tweets.find())
    assert database.rejected_tweets.count_documents({}) == rejected
    assert_counts_are_exact(database)


def test_bad_input_is_kept_and_stops_nothing(
    tmp_path: Path, mongo_url: str, database: Database[dict[str, Any]]
) -> None:
    lines = [
        "garbage",
        '{"message": panic}',
        envelope(status(1)),
        status(2, user=None),
        "[1]",
        {"delete": {}},
        status(3),
    ]
    path = write_lines(tmp_path / "lines.jsonl", lines)
    with ingester(tmp_path, mongo_url, database, "--source", f"replay:{path}", "--until-end") as program:
        assert program.wait() == 0
    (account,) = balance(program).values()
    assert (account["stored"], account["notices"], account["rejected"]) == (2, 1, 4)
    assert (account["panics"], account["crashes"]) == (1, 0)
    assert {one["error"].split(":")[0] for one in database.rejected_tweets.find()} == {
        "not JSON",
        "a panic message killed its worker",
        "a tweet without a user",
        "not a tweet",
    }


def test_several_people_at_once_start_watch_and_stop_it(
    tmp_path: Path, mongo_url: str, database: Database[dict[str, Any]]
) -> None:
    flags = ("--workers-min", 1, "--flush-every", "200ms")
    with (
        simulator(tmp_path, "--rate", 200) as server,
        ingester(tmp_path, mongo_url, database, *both(server), *flags) as program,
        Person(program.port) as first,
        Person(program.port) as second,
    ):
        assert "help" in first.greeting
        assert first.ask("status").startswith("not ingesting")
        first.type("twitter")
        second.type("TWITTER")
        shown = [person.line() for person in (first, second)]
        assert all(line.startswith("tweet: 127.0.0.1:") for line in shown), shown
        assert first.ask("stop") == "ingesting continues: 1 watching"
        until(lambda: database.tweets.count_documents({}) > 50)
        assert second.ask("status").startswith("ingesting; 1 watching")
        assert re.search(
            r"/tweets/1: \d+ workers, \d+ wanted \(1–\d+\);.* crashes$", second.ask("workers"), re.MULTILINE
        )
        # Wait, since a tweet is in MongoDB shortly before its hashtags are counted.
        until(lambda: "#" in second.ask("hashtags 1"))
        assert second.ask("nonsense").startswith("error: no command 'nonsense'")
        assert second.ask("stop") == "ingesting stopped"
        assert first.ask("status").startswith("not ingesting")
        first.type("twitter")
        assert first.ask("status").startswith("ingesting; 1 watching")
        assert first.ask("quit") == "bye"
        assert program.terminate() == 0
        balance(program)


def test_a_tweet_is_stored_within_the_flush_time_also_when_few_arrive(
    tmp_path: Path, mongo_url: str, database: Database[dict[str, Any]]
) -> None:
    with (
        simulator(tmp_path, "--rate", 5, "--panic-every", 0) as server,
        ingester(tmp_path, mongo_url, database, *both(server), "--autostart", "--flush-every", "300ms") as program,
    ):
        until(lambda: database.tweets.count_documents({}) >= 20)
        assert program.terminate() == 0
    balance(program)


def reports_of_work(client: SyncClient) -> list[dict[str, Any]]:
    """Return the statistics of the intervals in which tweets were scored and stored."""
    reports: list[dict[str, Any]] = [event.decode() for event in client.read("logger_stats", "earliest").events]
    return [report for report in reports if report["worker_ms"]["p75"] is not None and report["events"]["stored"]]


def test_statistics_reach_the_broker_also_when_it_starts_late(
    tmp_path: Path, mongo_url: str, database: Database[dict[str, Any]], broker: BrokerProcess
) -> None:
    broker.kill()
    flags = ("--autostart", "--broker", broker.address, "--stats-every", "300ms", "--flush-every", "200ms")
    with (
        simulator(tmp_path, "--rate", 200) as server,
        ingester(tmp_path, mongo_url, database, *both(server), *flags) as program,
    ):
        until(lambda: program.logged("broker unreachable, statistics paused"), 30, program.log)
        broker.start()
        with SyncClient(broker.address, name="test") as client:
            until(
                lambda: any(topic.topic == "logger_stats" and topic.next >= 3 for topic in client.topics()),
                30,
                program.log,
            )
            # On a busy machine, no tweet may be scored between two reports.
            event = until(lambda: reports_of_work(client), 30, program.log)[-1]
        assert set(event) == {
            "workers",
            "panics",
            "crashes",
            "events",
            "worker_ms",
            "tweets_write_ms",
            "users_write_ms",
        }
        assert event["events"]["stored"] > 0
        assert all(event["worker_ms"][name] > 0 for name in ("p75", "p85", "p95"))
        assert len(program.logged("broker unreachable, statistics paused")) == 1
        assert program.terminate() == 0


REFUSALS = """
import json, sys
from tweetwire.runtime.program import run
from sse_ingest.serve import serve
from sse_ingest.settings import IngestSettings
for flags in json.load(sys.stdin):
    assert run(IngestSettings, serve, ["--metrics-port", "0", "--port", "0", *flags]) == 2, flags
"""


def test_an_error_at_the_start_is_reported_in_one_sentence(tmp_path: Path, mongo_url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        wikimedia = ["--source", "wikimedia"]
        expected = {
            "no source is given": [],
            "is not a source": ["--source", "gopher:x"],
            "cannot replay": ["--source", "replay:nowhere.jsonl"],
            "needs --emotion-values": ["--scorer", "lexicon"],
            "cannot use the emotion values": [*wikimedia, "--scorer", "lexicon", "--emotion-values", "nowhere"],
            "--flush-every": ["--flush-every", "3"],
            "no MongoDB answers": [
                *wikimedia,
                "--mongo-url",
                "mongodb://someone:secret@127.0.0.1:9",
                "--mongo-timeout",
                "300ms",
            ],
            f"port {port} on 127.0.0.1 is in use": [*wikimedia, "--port", port, "--mongo-url", mongo_url],
        }
        done = subprocess.run(
            [sys.executable, "-c", REFUSALS],
            input=json.dumps(list(expected.values())),
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert "secret" not in done.stderr
    said = done.stderr.strip().splitlines()
    assert len(said) == len(expected), said
    for part, sentence in zip(expected, said, strict=True):
        assert part in sentence


def test_a_signal_ends_the_wait_for_mongodb(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        url = f"mongodb://127.0.0.1:{silent.getsockname()[1]}"
        words = (
            "--mongo-url",
            url,
            "--mongo-timeout",
            "10m",
            "--source",
            "wikimedia",
            "--port",
            "0",
            "--metrics-port",
            "0",
        )
        with subprocess.Popen([sys.executable, "-m", "sse_ingest", *words], cwd=tmp_path) as process:
            try:
                silent.accept()[0].close()
                process.terminate()
                assert process.wait(30) == 0
            finally:
                process.kill()


def test_the_lexicon_scorer_takes_the_servers_word_list(
    tmp_path: Path, mongo_url: str, database: Database[dict[str, Any]]
) -> None:
    path = write_lines(tmp_path / "lines.jsonl", [status(1, text="abandon all happy hope")])
    with simulator(tmp_path) as server:
        words = f"http://127.0.0.1:{server.port}/emotion_values"
        flags = ("--source", f"replay:{path}", "--until-end", "--scorer", "lexicon", "--emotion-values", words)
        with ingester(tmp_path, mongo_url, database, *flags) as program:
            assert program.wait() == 0
    tweet = database.tweets.find_one()
    assert tweet is not None
    assert tweet["sentiment"] == pytest.approx((-2 + 3 + 2) / 4, abs=0.5)
    assert tweet["sentiment"] * 4 == int(tweet["sentiment"] * 4)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (response("200 OK", "Content-Encoding: gzip, gzip", body=b"x"), "Content-Encoding is 'gzip, gzip'"),
        (response("200 OK", "Content-Encoding: gzip", body=gzip.compress(b"x" * (4 << 20))), "more than 1000 bytes"),
        (response("200 OK", "Content-Encoding: gzip", body=b"no gzip"), "not in its Content-Encoding"),
        (response("302 Found", "Location: /"), "redirects"),
        (response("200 OK", body=b"x" * (1 << 10)), "more than 1000 bytes"),
        (response("404 Not Found"), "404"),
    ],
)
async def test_a_word_list_that_is_too_large_or_cannot_be_had_is_reported_in_one_sentence(
    answer: bytes, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve_module, "WORD_LIST_BYTES_MAX", 1000)
    with ScriptedServer(*[lambda peer: peer.send(answer)] * 20) as server:
        flags = ["--scorer", "lexicon", "--emotion-values", server.url()]
        settings = IngestSettings(_cli_parse_args=flags)
        with pytest.raises(StartError, match=reason):
            await serve_module._emotion_values(settings)


def test_no_process_is_left_behind_by_a_kill(
    tmp_path: Path, mongo_url: str, database: Database[dict[str, Any]]
) -> None:
    def group() -> list[int]:
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    if (
                        os.getsid(int(entry)) == session
                        and f"/{entry}/"
                        and Path(f"/proc/{entry}/cmdline").read_bytes()
                    ):
                        found.append(int(entry))
                except OSError:
                    continue
        return found

    with (
        simulator(tmp_path, "--rate", 100) as server,
        ingester(tmp_path, mongo_url, database, *both(server), "--autostart", "--flush-every", "100ms") as program,
    ):
        session = program.pid
        until(lambda: database.tweets.count_documents({}) > 0)
        assert len(group()) > 1
        program.kill()
        until(lambda: not group(), 10, lambda: str(group()))


def changes_of(first: int, last: int) -> list[bytes]:
    """Pieces of a stream of Wikimedia's changes, with ids."""
    return [
        chunk(
            b'id: [{"offset":%d}]\ndata: {"meta":{"id":"change-%d","dt":"2025-08-29T06:45:17Z"},"title":"T","user":"U"}\n\n'
            % (number, number)
        )
        for number in range(first, last)
    ]


@pytest.mark.parametrize("end", ["terminate", "kill"])
def test_a_source_with_ids_continues_after_the_last_stored_event_also_after_a_restart(
    tmp_path: Path, mongo_url: str, database: Database[dict[str, Any]], end: str
) -> None:
    def first(peer: Peer) -> None:
        peer.send(OK, *changes_of(0, 50))
        peer.hang()

    with ScriptedServer(first) as server:
        flags = ("--source", f"wikimedia:{server.url()}", "--autostart", "--flush-every", "100ms")
        with ingester(tmp_path, mongo_url, database, *flags) as program:
            until(lambda: database.positions.find_one({"last_event_id": '[{"offset":49}]'}), 30, program.log)
            assert database.tweets.count_documents({}) == 50
            if end == "terminate":
                assert program.terminate() == 0
            else:
                program.kill()
    with ScriptedServer(lambda peer: peer.send(OK, *changes_of(50, 60), b"0\r\n\r\n")) as server:
        source = f"wikimedia:{server.url()}"
        with ingester(tmp_path, mongo_url, database, "--source", source, "--until-end") as program:
            assert program.wait() == 0
        assert server.peers[0].headers["last-event-id"] == '[{"offset":49}]'
    assert database.tweets.count_documents({}) == 60
    (user,), (position,) = database.users.find(), database.positions.find()
    assert user["tweets_seen"] == 60
    assert position["last_event_id"] == '[{"offset":59}]'


def test_a_server_that_does_not_know_our_last_id_is_read_from_its_newest_events(
    tmp_path: Path, mongo_url: str, database: Database[dict[str, Any]]
) -> None:
    database.positions.insert_one({"_id": "wikimedia", "last_event_id": "long ago"})
    steps = (
        lambda peer: peer.send(response("410 Gone")),
        lambda peer: peer.send(OK, *changes_of(7, 9), b"0\r\n\r\n"),
    )
    with ScriptedServer(*steps) as server:
        flags = ("--source", f"wikimedia:{server.url()}", "--until-end", "--reconnect-pause", "10ms")
        with ingester(tmp_path, mongo_url, database, *flags) as program:
            assert program.wait() == 0
        assert [peer.headers.get("last-event-id") for peer in server.peers[:2]] == ["long ago", None]
        assert balance(program)["wikimedia"]["gaps"] == 1
    assert database.tweets.count_documents({}) == 2
    assert program.logged("source rejected the last id, continuing with its newest events")


@pytest.mark.parametrize(
    ("toots", "changes", "count"),
    [
        *invented("mastodon/user.sse", SAMPLES / "wikimedia/recentchange.sse", 4),
        *recorded(
            "mastodon/recorded_test_stream_user_direct__user.sse", RECORDINGS / "wikimedia/recentchange-2025.sse", 9
        ),
    ],
)
def test_mastodon_and_wikimedia_streams_are_stored(
    tmp_path: Path, mongo_url: str, database: Database[dict[str, Any]], toots: Path, changes: Path, count: int
) -> None:
    body = chunk(toots.read_bytes())
    with ScriptedServer(lambda peer: peer.send(OK, body, b"0\r\n\r\n")) as server:
        sources = ("--source", f"mastodon:{server.url('')}", "--source", f"replay-wikimedia:{changes}")
        with ingester(tmp_path, mongo_url, database, *sources, "--until-end") as program:
            assert program.wait() == 0
        assert server.peers[0].path == "/api/v1/streaming/public"
    accounts = balance(program)
    assert [(account["rejected"], account["gaps"]) for account in accounts.values()] == [(0, 0), (0, 0)]
    assert database.tweets.count_documents({"_id": {"$regex": "^127.0.0.1:"}}) > 0
    assert database.tweets.count_documents({"_id": {"$regex": "^wikimedia:"}}) == count
    assert_counts_are_exact(database)


def test_only_an_invalid_source_fails_and_it_logs_a_reason(
    tmp_path: Path, mongo_url: str, database: Database[dict[str, Any]]
) -> None:
    path = write_lines(tmp_path / "lines.jsonl", [status(1)])
    with simulator(tmp_path) as server:
        wrong = f"http://127.0.0.1:{server.port}/nothing"
        flags = ("--source", wrong, "--source", f"replay:{path}", "--until-end")
        with ingester(tmp_path, mongo_url, database, *flags) as program:
            assert program.wait() == 1
    assert "404" in program.logged("source cannot be read")[0]["reason"]
    assert database.tweets.count_documents({}) == 1


def test_text_from_servers_cannot_command_a_terminal(
    tmp_path: Path, mongo_url: str, database: Database[dict[str, Any]]
) -> None:
    tweet = json.dumps(status(1, entities={"hashtags": [{"text": "a\x1b[2J\nb"}]})).encode()
    names = [b"event: \x1b[2J%d\ndata: x\n\n" % number for number in range(300)]

    def talking(peer: Peer) -> None:
        peer.send(OK, chunk(b"".join([*names, b"data: ", tweet, b"\n\n"])), b"0\r\n\r\n")

    with ScriptedServer(talking) as server, ScriptedServer(lambda peer: peer.send(response("404 \x1b[2J"))) as wrong:
        flags = ("--source", server.url(), "--source", wrong.url(), "--autostart", "--flush-every", "100ms")
        with ingester(tmp_path, mongo_url, database, *flags) as program, Person(program.port) as person:
            until(lambda: program.logged("all sources ended"), 30, program.log)
            told = person.ask("status")
            assert person.ask("hashtags ²").splitlines()[0] == "      1 #a [2J b"
            assert program.terminate() == 1
    assert "HTTP 404" in told
    assert "200 other" in told
    assert all(line.isprintable() for line in told.splitlines())


def test_metrics_agree_with_the_account(tmp_path: Path, mongo_url: str, database: Database[dict[str, Any]]) -> None:
    lines = [status(1), status(2, retweeted_status=status(1)), "garbage", {"delete": {}}]
    path = write_lines(tmp_path / "lines.jsonl", lines)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    flags = ("--source", f"replay:{path}", "--source", f"replay:{path}", "--autostart", "--metrics-port", port)
    with ingester(tmp_path, mongo_url, database, *flags) as program:
        until(lambda: program.logged("all sources ended"), 30, program.log)
        exported = httpx.get(f"http://127.0.0.1:{port}/metrics").text
        assert program.terminate() == 0
    figures = dict(line.rsplit(" ", 1) for line in exported.splitlines() if line.startswith("tweetwire_ingest"))
    accounts = balance(program)
    assert list(accounts) == ["replay:lines.jsonl", "replay:lines.jsonl (2)"]
    for source, account in accounts.items():
        for member in ("read", "nested", "stored", "already_there", "notices", "rejected"):
            assert float(figures[f'tweetwire_ingest_{member}_total{{source="{source}"}}']) == account[member], member
    assert float(figures["tweetwire_ingest_mongodb_takes_batches"]) == 1


def test_connections_that_are_reset_before_they_are_accepted_end_neither_ingester_nor_simulator(
    tmp_path: Path, mongo_url: str, database: Database[dict[str, Any]]
) -> None:
    with simulator(tmp_path) as server, ingester(tmp_path, mongo_url, database, *both(server)) as program:
        for _ in range(3):
            reset_while_stopped(server.pid, server.port)
            reset_while_stopped(program.pid, program.port)
        with Person(program.port) as person:
            assert person.ask("stop") == "ingesting stopped"
        assert httpx.get(f"http://127.0.0.1:{server.port}/").status_code == 200
        assert "Traceback" not in server.log() + program.log()
