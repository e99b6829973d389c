"""Ingest event streams of tweets into MongoDB: readers, worker processes, scores, transactions. ``python -m sse_ingest``."""

__all__: list[str] = []
