"""The broker as a Spark source and sink, and live statistics of the tweets."""

__all__: list[str] = []
