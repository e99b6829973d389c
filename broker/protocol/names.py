"""Names of topics, subscriptions, clients and producers: safe as a word of a line and as the name of a folder."""

import re
from functools import lru_cache

from broker.errors import Refusal

__all__ = ["check_name", "topic_name"]

_NAME = re.compile(r"[A-Za-z0-9_\-][A-Za-z0-9_.\-]{0,127}")


def check_name(name: str) -> str:
    """Return `name`. Raises Refusal ``bad_name`` where it is none."""
    if _NAME.fullmatch(name) is None:
        raise Refusal("bad_name", f"{name[:40]!a}: 1-128 of A-Z a-z 0-9 _ . - and no dot first")
    return name


@lru_cache(maxsize=65536)
def topic_name(raw: bytes) -> str:
    """Return the name that `raw` is; kept, since the same few stand in every line. Raises Refusal ``bad_name``."""
    return check_name(raw.decode("ascii", "replace"))
