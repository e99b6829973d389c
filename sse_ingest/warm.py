"""Imported by the server that workers are forked from, so that a replaced worker starts with everything loaded.

With a panic message in a hundred at 1000 tweets/s ten workers a second are replaced: a fork costs milliseconds, an
import of the lexicon a hundred times that.
"""

import gc

import sse_ingest.worker
from sse_ingest.scoring import vader_scorer

__all__ = ["sse_ingest"]

vader_scorer()
# What is loaded here lives as long as any worker: no collection need look at it, and its pages stay shared.
gc.freeze()
