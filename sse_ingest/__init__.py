"""From event streams of tweets to MongoDB: readers, worker processes, scores, transactions. ``python -m sse_ingest``."""

__all__: list[str] = []
