"""I1: measure the ingester from an event stream to MongoDB, and compare it with scoring alone and writing alone."""

import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from multiprocessing import get_context
from typing import Any, Final, NamedTuple

import msgspec
from pymongo import MongoClient
from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

from bench.programs import folder, program
from bench.settings import BenchSettings
from demo.mongod import ReplicaSet
from sse_ingest.simulator.tweets import Timeline
from sse_ingest.simulator.wire import chunks, message

__all__ = ["IngestRun", "ingest"]

CORES: Final = 2
BATCH: Final = 2000
"""The number of tweets in a transaction: ten times the default, because a backlog is measured."""

TASK: Final = 1000
"""The number of events in a worker's task: five times the default, because a backlog is measured."""

_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class IngestRun(NamedTuple):
    """Tweets per second in three runs.

    - `stored`: the whole ingester, on `CORES` cores.
    - `scored`: vaderSentiment alone, on the same number of cores.
    - `inserted`: ``insert_many`` of MongoDB alone.
    """

    stored: float
    scored: float
    inserted: float


def ingest(settings: BenchSettings) -> IngestRun:
    """Serve invented tweets of about 3 KB as fast as possible, and time from the first stored one to the last."""
    timeline = Timeline(seed=1, route=1)
    tweets = [timeline.tweet(number) for number in range(max(5000, settings.events // 20))]
    scored = _scored_alone([msgspec.json.decode(tweet)["text"] for tweet in tweets])
    with (
        folder() as home,
        ReplicaSet(home / "mongod") as replica_set,
        MongoClient[dict[str, Any]](replica_set.url) as mongo,
        _stream(tweets) as port,
    ):
        inserted = _inserted_alone(mongo, tweets)
        source = ("--source", f"http://127.0.0.1:{port}/tweets/1", "--until-end", "--workers-max", CORES)
        size = ("--workers-min", CORES, "--batch-size", BATCH, "--worker-events", TASK, "--inbox-size", 4 * TASK)
        files = ("--hashtags-file", home / "hashtags.json")
        words = ("--mongo-url", replica_set.url, "--port", 0, "--metrics-port", 0, *source, *size, *files)
        with program(home / "log", "sse_ingest", *words) as (_, process):
            looks: list[tuple[float, int]] = []
            while process.poll() is None:
                looks.append((time.perf_counter(), mongo.rtp_sse_db.tweets.estimated_document_count()))
                time.sleep(0.1)
        first = next(look for look in looks if look[1])
        last = next(look for look in looks if look[1] == looks[-1][1])
        return IngestRun((last[1] - first[1]) / (last[0] - first[0]), scored, inserted)


@contextmanager
def _stream(tweets: list[bytes]) -> Iterator[int]:
    """Serve a prepared stream once from a separate process, which costs almost no time; a second request gets no content."""
    body = b"".join(chunks(message(tweet, time.time())) for tweet in tweets) + b"0\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        process = get_context("fork").Process(target=_answer, args=(listener, _HEAD + body), daemon=True)
        process.start()
        yield int(listener.getsockname()[1])
        process.kill()
        process.join()


def _answer(listener: socket.socket, body: bytes) -> None:
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(body)
        body = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"


@cache
def _vader() -> SentimentIntensityAnalyzer:
    return SentimentIntensityAnalyzer()


def _scored_alone(texts: list[str]) -> float:
    _vader()  # load the lexicon before the fork, so that the processes share it
    # The pool ends its processes with SIGTERM, which must end them without a message.
    with get_context("fork").Pool(CORES, signal.signal, (signal.SIGTERM, signal.SIG_DFL)) as pool:
        pool.map(_score, [texts[:1]] * CORES)
        began = time.perf_counter()
        pool.map(_score, [texts[start : start + BATCH] for start in range(0, len(texts), BATCH)], chunksize=1)
        return len(texts) / (time.perf_counter() - began)


def _score(texts: list[str]) -> None:
    for text in texts:
        _vader().polarity_scores(text)


def _inserted_alone(mongo: MongoClient[dict[str, Any]], tweets: list[bytes]) -> float:
    documents = [msgspec.json.decode(tweet) for tweet in tweets]
    began = time.perf_counter()
    for start in range(0, len(documents), BATCH):
        mongo.bench.tweets.insert_many(documents[start : start + BATCH])
    took = time.perf_counter() - began
    mongo.drop_database("bench")
    return len(documents) / took
