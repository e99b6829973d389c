"""The options of the HTTP gateway."""

import ssl
from collections.abc import Callable
from dataclasses import dataclass

from broker.executor import Limits
from tweetwire.runtime.admission import AdmissionLimits

__all__ = ["HttpOptions"]


@dataclass(frozen=True)
class HttpOptions:
    """The address and limits of the gateway.

    - `promise`: the promise of the broker's confirmations, such as ``synced``.
    - `names`: the host names by which clients may reach it, in lower case. IP addresses are always allowed.
    - `origins`: the origins of foreign pages that may use it from a browser, such as ``https://shop.example``.
    - `context`: returns the current TLS context, None without TLS.
    """

    host: str
    port: int
    promise: str
    limits: Limits
    admission: AdmissionLimits
    names: frozenset[str]
    origins: frozenset[str]
    body_bytes_max: int
    context: Callable[[], ssl.SSLContext | None]
