"""Metrics that are computed when they are read."""

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import REGISTRY
from prometheus_client.registry import Collector

__all__ = ["registered"]


@contextmanager
def registered(collector: Collector) -> Iterator[None]:
    """Let the metrics port show a collector until the end of the block."""
    REGISTRY.register(collector)
    try:
        yield
    finally:
        REGISTRY.unregister(collector)
