"""The settings of the tier, as the broker's flags give them."""

from typing import Literal, NamedTuple

__all__ = ["Fence", "TierOptions"]

Fence = Literal["refuse", "warn"]
"""The consequence when another broker has taken over: refuse publishes, or only stop uploading and warn."""


class TierOptions(NamedTuple):
    """The place of the tier, and how it is used.

    Attributes:
        url: The place, for example ``s3://bucket/prefix``.
        after_s: How long (s) an event may wait before its segment is ended and uploaded.
        verify: ``read`` or ``head``, see `broker.tiers.segment_upload.Verify`.
        fence: The consequence of a lost chain.
    """

    url: str
    after_s: float = 600.0
    verify: Literal["read", "head"] = "read"
    fence: Fence = "refuse"
