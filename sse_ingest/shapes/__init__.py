"""Shapes: pure functions that turn the events of each kind of source into tweets."""

from collections.abc import Callable
from typing import Literal

from sse_ingest.found import Found
from sse_ingest.shapes import mastodon, twitter, wikimedia

__all__ = ["SHAPES", "Shape", "Unwrap"]

Shape = Literal["twitter", "mastodon", "wikimedia"]
Unwrap = Callable[[str, bytes, str], list[Found]]
"""Converts an event's type and data to its contents. The third argument is the origin that makes its ids unique."""

SHAPES: dict[Shape, Unwrap] = {
    "twitter": twitter.unwrap,
    "mastodon": mastodon.unwrap,
    "wikimedia": wikimedia.unwrap,
}
