"""Load everything that workers need. The fork server imports this module, so that a new worker starts at once.

Each kill message (`Panic`) ends a worker. If one message in a hundred is one, 1000 tweets/s mean ten new workers a second. A
fork takes milliseconds; importing the lexicon takes a hundred times as long.
"""

import gc

import sse_ingest.worker
from sse_ingest.scoring import vader_scorer

__all__ = ["sse_ingest"]

vader_scorer()
# Objects loaded here live as long as the workers. Frozen, they are skipped by collections and their pages stay shared.
gc.freeze()
