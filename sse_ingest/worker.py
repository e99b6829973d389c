"""A worker process: it converts events to tweets, scores these, and returns them. An event that it cannot process ends it.

A kill message, or an exception that no shape expects, ends the process, after it has returned the earlier outcomes and the
cause. A worker uses neither the network nor MongoDB. It ends when the stream of its tasks ends.
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

from sse_ingest.documents import Scores, profile_document, tweet_document
from sse_ingest.found import Panic, Rejected, Tweet
from sse_ingest.handover import LENGTH, Outcome, RawEvent, Reply, ScoredTweet, decode_task, frame
from sse_ingest.scoring import CHARACTERS_SCORED, Scorer, ScorerName, engagement, lexicon_scorer, vader_scorer
from sse_ingest.shapes import SHAPES, Shape

__all__ = ["WorkerJob", "find", "scorer_of", "work"]

TEXTS_REMEMBERED = 10_000
CHARACTERS_REMEMBERED = 1000
"""The longest text whose score is cached. Longer texts are rare, and thousands of very long ones would fill the memory."""

NICENESS = 5
"""The priority of workers. On few cores, MongoDB and the ingester should run first, since they limit the rate."""

DOCUMENT_BYTES_MAX = 1 << 18
"""The largest document.

A document has a few KB; the change event of a much larger one would not fit in a line of the broker (1 MiB).
"""


class WorkerJob(Struct, frozen=True):
    """The processing of each event; `emotion_values` is for the scorer ``lexicon``."""

    shape: Shape
    origin: str
    source: str
    scorer: ScorerName = "vader"
    emotion_values: dict[str, float] | None = None


def scorer_of(job: WorkerJob) -> Scorer:
    """Return the function that scores a text; it caches recent texts, since retweets repeat them."""
    scorer = vader_scorer() if job.scorer == "vader" else lexicon_scorer(job.emotion_values or {})
    remembered = lru_cache(TEXTS_REMEMBERED)(scorer)
    return lambda text: remembered(text) if len(text) <= CHARACTERS_REMEMBERED else scorer(text)


def work(job: WorkerJob, pipe: socket.socket) -> None:
    """Serve tasks from `pipe` until it ends. Runs in a separate process."""
    # Ctrl-C and a supervisor's SIGTERM reach the whole group, but workers must live until the ingester has drained them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.nice(NICENESS)
    score = scorer_of(job)
    with pipe, pipe.makefile("rb") as incoming:
        while len(head := incoming.read(LENGTH)) == LENGTH:
            reply = score_events(decode_task(incoming.read(int.from_bytes(head, "big"))).events, job, score)
            pipe.sendall(frame(reply))
            if reply.failure is not None:
                os._exit(1)


def score_events(events: list[RawEvent], job: WorkerJob, score: Scorer) -> Reply:
    """Return the outcomes of events, up to the first event that kills the worker."""
    reply = Reply([], [])
    for event in events:
        began = perf_counter()
        try:
            reply.outcomes.append(find(event, job, score, datetime.now(UTC)))
        except MemoryError:
            # Memory is short on the machine, not in the event: die without a report, so that the events are tried again.
            raise
        except Exception as error:  # noqa: BLE001 — the worker must die of any error, and the event is rejected
            reply.failure, reply.is_panic = _last_words(error), isinstance(error, Panic)
            break
        reply.seconds.append(perf_counter() - began)
    return reply


def find(event: RawEvent, job: WorkerJob, score: Scorer, now: datetime) -> list[Outcome]:
    """Convert one event to tweets and score them. Raises `Panic`, or an unexpected exception of a shape."""
    if event.fault is not None:
        return [Rejected(event.fault)]
    return [
        _scored(found, job, score, now) if isinstance(found, Tweet) else found
        for found in SHAPES[job.shape](event.type, event.data, job.origin)
    ]


def _scored(tweet: Tweet, job: WorkerJob, score: Scorer, now: datetime) -> ScoredTweet | Rejected:
    if len(tweet.text) > DOCUMENT_BYTES_MAX:
        # Check this before the document is built; a character takes at least one byte.
        return Rejected(f"the tweet's text has {len(tweet.text)} characters, more than {DOCUMENT_BYTES_MAX}")
    reached = engagement(tweet.favorite_count, tweet.retweet_count, tweet.user.followers_count)
    scores = Scores(score(tweet.text[:CHARACTERS_SCORED]), reached)
    document = bson.encode(tweet_document(tweet, scores, source=job.source, ingested_at=now))
    profile = bson.encode(profile_document(tweet.user))
    for name, made in (("the tweet's", document), ("its author's", profile)):
        if len(made) > DOCUMENT_BYTES_MAX:
            return Rejected(f"{name} document has {len(made)} bytes, more than {DOCUMENT_BYTES_MAX}")
    return ScoredTweet(
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
