"""What the events of each kind of source look like, and how they become tweets: pure functions from their data."""

from collections.abc import Callable
from typing import Literal

from sse_ingest.found import Found
from sse_ingest.shapes import mastodon, twitter, wikimedia

__all__ = ["SHAPES", "Shape", "Unwrap"]

Shape = Literal["twitter", "mastodon", "wikimedia"]
Unwrap = Callable[[str, bytes, str], list[Found]]
"""Takes an event's type, its data, and the origin that makes its ids unique."""

SHAPES: dict[Shape, Unwrap] = {
    "twitter": twitter.unwrap,
    "mastodon": mastodon.unwrap,
    "wikimedia": wikimedia.unwrap,
}
