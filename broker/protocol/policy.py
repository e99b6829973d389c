"""How a subscription treats what its consumers do not settle."""

from typing import Any, Final

import msgspec
from msgspec import Struct

from broker.errors import Refusal
from broker.failures import CAUSES, Cause
from broker.protocol.options import Options
from broker.units import parse_seconds

__all__ = ["DEFAULT_POLICY", "Policy", "read_policy_change"]

_DAY_MS = 86_400_000


class Policy(Struct, frozen=True, omit_defaults=True):
    """Durations in milliseconds.

    An event in flight has `timeout_ms` until it fails; `tries` failures whose cause is in `strikes` make it a dead letter;
    the n-th try comes after `backoff_ms` × 2^(n - 2); one that has waited longer than `max_wait_ms` goes first whatever
    its priority (0: never). With `qos` 2, events are settled by the exactly-once handshake, too.
    """

    timeout_ms: int = 30_000
    tries: int = 5
    strikes: tuple[Cause, ...] = CAUSES
    backoff_ms: int = 0
    max_wait_ms: int = 60_000
    qos: int = 1

    def changed(self, change: dict[str, Any]) -> "Policy":
        """Return the policy with some members replaced."""
        return msgspec.structs.replace(self, **change) if change else self

    def pause_ms(self, failures: int) -> int:
        """Return how long an event waits after its n-th failure, a day at most."""
        return min(self.backoff_ms << min(failures - 1, 40), _DAY_MS) if failures else 0


DEFAULT_POLICY: Final = Policy()
"""One for all who ask for nothing else."""


def read_policy_change(options: Options) -> dict[str, Any]:
    """Take the policy's options of a ``sub`` line; what is left out is not in the result."""
    change: dict[str, Any] = {}
    for name, member in (("timeout", "timeout_ms"), ("backoff", "backoff_ms"), ("max_wait", "max_wait_ms")):
        text = options.text(name)
        if text is not None:
            change[member] = _milliseconds(name, text)
    if change.get("timeout_ms") == 0:
        raise Refusal("bad_arguments", "timeout is more than 0s")
    tries = options.number("tries", 0, 1, 1_000_000)
    if tries:
        change["tries"] = tries
    qos = options.number("qos", 0, 1, 2)
    if qos:
        change["qos"] = qos
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
        raise Refusal("bad_arguments", f"{name} is a day at most")
    return value


def _cause(word: str) -> Cause:
    for cause in CAUSES:
        if word == cause:
            return cause
    raise Refusal("bad_arguments", f"strikes are some of {','.join(CAUSES)}, or none")
