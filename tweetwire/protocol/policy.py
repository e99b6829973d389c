"""The policy of a subscription for events that its consumers do not settle."""

from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.failures import CAUSES, Cause
from tweetwire.protocol.options import Options
from tweetwire.protocol.units import parse_seconds

__all__ = ["DEFAULT_POLICY", "Ordered", "Policy", "read_policy_change"]

Ordered: TypeAlias = Literal["none", "key"]
"""Which events of a subscription are delivered in order: none, or those of each key."""

_DAY_MS = 86_400_000


class Policy(Struct, frozen=True, omit_defaults=True):
    """The settings of a subscription. Durations are in milliseconds.

    Attributes:
        timeout_ms: A try fails if the event has been in flight for this long.
        tries: This many failures with a cause in `strikes` make the event a dead letter.
        strikes: The causes of failure that count towards `tries`.
        backoff_ms: The n-th try comes after `backoff_ms` × 2^(n - 2), at most a day.
        max_wait_ms: An event that has waited longer than this goes first, whatever its priority; 0 means never.
        qos: With 2, the exactly-once handshake settles events, too.
        ordered: With ``key``, the events of one key are in flight with one consumer at a time, in the order of their offsets.
    """

    timeout_ms: int = 30_000
    tries: int = 5
    strikes: tuple[Cause, ...] = CAUSES
    backoff_ms: int = 0
    max_wait_ms: int = 60_000
    qos: int = 1
    ordered: Ordered = "none"

    def changed(self, change: dict[str, Any]) -> "Policy":
        """Return a copy with the members of `change` replaced."""
        return msgspec.structs.replace(self, **change) if change else self

    def pause_ms(self, failures: int) -> int:
        """Return how long an event waits after its n-th failure, at most a day."""
        return min(self.backoff_ms << min(failures - 1, 40), _DAY_MS) if failures else 0


DEFAULT_POLICY: Final = Policy()
"""The policy of a subscription that was made without options."""


def read_policy_change(options: Options) -> dict[str, Any]:
    """Take the options of a policy from a ``sub`` line. The result holds only the options that are given."""
    change: dict[str, Any] = {}
    for name, member in (("timeout", "timeout_ms"), ("backoff", "backoff_ms"), ("max_wait", "max_wait_ms")):
        text = options.text(name)
        if text is not None:
            change[member] = _milliseconds(name, text)
    if change.get("timeout_ms") == 0:
        raise Refusal("bad_arguments", "timeout must be more than 0s")
    tries = options.number("tries", 0, 1, 1_000_000)
    if tries:
        change["tries"] = tries
    qos = options.number("qos", 0, 1, 2)
    if qos:
        change["qos"] = qos
    ordered = options.text("ordered")
    if ordered not in {None, "key", "none"}:
        raise Refusal("bad_arguments", "ordered is key or none")
    if ordered is not None:
        change["ordered"] = ordered
    strikes = options.text("strikes")
    if strikes is not None:
        change["strikes"] = tuple(_cause(word) for word in strikes.split(",") if word != "none")
    return change


def _milliseconds(name: str, text: str) -> int:
    try:
        value = round(parse_seconds(text) * 1000)
    except ValueError as error:
        raise Refusal("bad_arguments", f"{name}: {error}") from None
    if value > _DAY_MS:
        raise Refusal("bad_arguments", f"{name} must be at most a day (1d)")
    return value


def _cause(word: str) -> Cause:
    for cause in CAUSES:
        if word == cause:
            return cause
    raise Refusal("bad_arguments", f"strikes must be some of {','.join(CAUSES)}, or none")
