"""The broker as a Spark source and sink, and live statistics of tweets."""

__all__: list[str] = []
