"""A worker process: takes events, unwraps and scores them, hands them back, and dies of what it cannot bear.

A kill message, or an exception that no shape foresees, ends the process, after it has handed back what it had done and
said what it died of. It knows nothing of the network and of MongoDB; its stream's end is its own.
"""

import os
import signal
import socket
import traceback
from datetime import UTC, datetime
from functools import lru_cache
from time import perf_counter

import bson
from msgspec import Struct

from sse_ingest.documents import profile_document, tweet_document
from sse_ingest.found import Notice, Panic, Tweet, Unusable
from sse_ingest.handover import LENGTH, Finding, NoticeFound, RawEvent, Rejected, Reply, Scored, decode_task, frame
from sse_ingest.scoring import Scorer, ScorerName, engagement, lexicon_scorer, vader_scorer
from sse_ingest.shapes import SHAPES, Shape

__all__ = ["Job", "find", "scorer_of", "work"]

TEXTS_REMEMBERED = 10_000
CHARACTERS_REMEMBERED = 1000
"""Longer texts are rare, and thousands of very long ones would fill the memory; they are scored each time."""

NICENESS = 5
"""What is scored ahead waits for MongoDB anyway; so where cores are few MongoDB and the ingester go first."""

DOCUMENT_BYTES_MAX = 1 << 18
"""A document has a few KB; with much more its change event would not fit a line of the broker's (1 MiB)."""


class Job(Struct, frozen=True):
    """What a worker does with each event; `emotion_values` is for the scorer ``lexicon``."""

    shape: Shape
    origin: str
    source: str
    scorer: ScorerName = "vader"
    emotion_values: dict[str, float] | None = None


def scorer_of(job: Job) -> Scorer:
    """Return the function that scores a text; it remembers the newest texts, since what is retweeted comes again and again."""
    scorer = vader_scorer() if job.scorer == "vader" else lexicon_scorer(job.emotion_values or {})
    remembered = lru_cache(TEXTS_REMEMBERED)(scorer)
    return lambda text: remembered(text) if len(text) <= CHARACTERS_REMEMBERED else scorer(text)


def work(job: Job, pipe: socket.socket) -> None:
    """Serve tasks from `pipe` until it ends, in a process of its own."""
    # Ctrl-C and a supervisor's SIGTERM reach the whole group; workers end when the ingester has drained them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.nice(NICENESS)
    score = scorer_of(job)
    with pipe, pipe.makefile("rb") as incoming:
        while len(head := incoming.read(LENGTH)) == LENGTH:
            reply = carry_out(decode_task(incoming.read(int.from_bytes(head, "big"))).events, job, score)
            pipe.sendall(frame(reply))
            if reply.failure is not None:
                os._exit(1)


def carry_out(events: list[RawEvent], job: Job, score: Scorer) -> Reply:
    """Return what the events hold, up to the first that kills."""
    reply = Reply([], [])
    for event in events:
        began = perf_counter()
        try:
            reply.findings.append(find(event, job, score, datetime.now(UTC)))
        except Exception as error:  # noqa: BLE001 — whatever it is, the worker dies of it and the event is set aside
            reply.failure = _last_words(error)
            break
        reply.seconds.append(perf_counter() - began)
    return reply


def find(event: RawEvent, job: Job, score: Scorer, now: datetime) -> list[Finding]:
    """Unwrap and score one event. Raises `Panic`, or what a defect raises."""
    if event.fault is not None:
        return [Rejected(event.fault)]
    findings: list[Finding] = []
    for found in SHAPES[job.shape](event.type, event.data, job.origin):
        match found:
            case Tweet():
                findings.append(_scored(found, job, score, now))
            case Notice():
                findings.append(NoticeFound(found.name))
            case Unusable():
                findings.append(Rejected(found.error, found.raw))
    return findings


def _scored(tweet: Tweet, job: Job, score: Scorer, now: datetime) -> Scored | Rejected:
    reached = engagement(tweet.favorite_count, tweet.retweet_count, tweet.user.followers_count)
    document = bson.encode(
        tweet_document(tweet, sentiment=score(tweet.text), engagement=reached, source=job.source, ingested_at=now)
    )
    profile = bson.encode(profile_document(tweet.user))
    for name, made in (("the tweet's", document), ("its author's", profile)):
        if len(made) > DOCUMENT_BYTES_MAX:
            return Rejected(f"{name} document has {len(made)} bytes, more than {DOCUMENT_BYTES_MAX}")
    return Scored(
        id=tweet.id,
        user_id=tweet.user.id,
        document=document,
        profile=profile,
        engagement=reached,
        hashtags=tweet.hashtags,
    )


def _last_words(error: Exception) -> str:
    if isinstance(error, Panic):
        return "a panic message killed its worker"
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {place.name}, line {place.lineno}: {error}"[:2000]
