"""Names of topics, subscriptions, clients and producers: safe as a word of a line and as the name of a folder."""

import re
from functools import lru_cache

from tweetwire.protocol.errors import Refusal

__all__ = ["check_name", "is_name", "topic_name"]

_NAME = re.compile(r"[A-Za-z0-9_\-][A-Za-z0-9_.\-]{0,127}")


def is_name(name: str) -> bool:
    """Whether `name` can name a topic, subscription, client or producer."""
    return _NAME.fullmatch(name) is not None


def check_name(name: str) -> str:
    """Return `name`. Raises Refusal ``bad_name`` if it cannot be a name."""
    if not is_name(name):
        raise Refusal(
            "bad_name", f"{name[:40]!a} is not a name; use 1-128 of A-Z a-z 0-9 _ . - and no dot at the start"
        )
    return name


@lru_cache(maxsize=65536)
def topic_name(raw: bytes) -> str:
    """Return a topic's name from its bytes; results are cached, since most lines repeat a few names. Raises Refusal."""
    return check_name(raw.decode("ascii", "replace"))
