"""The figures of the tier, for the metrics. One task changes them; any thread may read them."""

from dataclasses import dataclass

__all__ = ["TierFigures"]


@dataclass
class TierFigures:
    """Counters since the start, and the present condition.

    Attributes:
        segments: Uploaded segments.
        bytes: The size of their lines in bytes.
        stored_bytes: The size of their objects in bytes, compressed.
        manifests: Written manifests.
        failures: Requests that failed and were repeated.
        waiting: Sealed segments that are not uploaded yet.
        manifest: The number of the newest manifest.
        covered_ms: The time (ms) up to which a restore has everything, 0 before the first manifest.
        is_fenced: Whether another broker has taken over the chain.
        is_away: Whether the store failed the last request.
        started_ms: When (ms) the process began to use the tier.
    """

    segments: int = 0
    bytes: int = 0
    stored_bytes: int = 0
    manifests: int = 0
    failures: int = 0
    waiting: int = 0
    manifest: int = 0
    covered_ms: int = 0
    is_fenced: bool = False
    is_away: bool = False
    started_ms: int = 0
