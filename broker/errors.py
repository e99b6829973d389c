"""What can go wrong, named by who refused or failed."""

from pathlib import Path
from typing import Literal

__all__ = [
    "BrokerError",
    "BrokerLost",
    "BrokerUnreachable",
    "Code",
    "HandshakeFailed",
    "Refusal",
    "SpoolTaken",
    "SpoolUnusable",
    "StartError",
    "TlsFailed",
    "TlsFileUnusable",
]

Code = Literal[
    "unknown_command",
    "bad_arguments",
    "bad_name",
    "bad_json",
    "bad_event",
    "bad_utf8",
    "too_long",
    "unknown_topic",
    "not_subscribed",
    "no_event",
    "stale",
    "schema",
    "out_of_sequence",
    "unauthenticated",
    "forbidden",
    "busy",
    "disk",
    "too_many",
    "shutting_down",
]
"""The closed list of what a broker refuses with; the first word after ``-ERR``."""

RETRYABLE: frozenset[str] = frozenset({"busy", "disk", "too_many", "shutting_down"})


class BrokerError(Exception):
    """Any failure of the broker or of the way to it."""


class Refusal(BrokerError):
    """The broker refused one command and lives on. `code` is one of `Code`; `text` says what to do.

    Inside the broker, `line` is the event that was refused, for those who keep it.
    """

    def __init__(self, code: str, text: str, line: bytes = b"") -> None:
        super().__init__(f"{code} {text}" if text else code)
        self.code = code
        self.text = text
        self.line = line

    @property
    def is_retryable(self) -> bool:
        """Whether the same command may go well later, unchanged."""
        return self.code in RETRYABLE


class BrokerUnreachable(BrokerError):
    """No broker answered at `address` in time."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"no broker answers at {address} ({reason}); start one with: python -m broker")
        self.address = address


class TlsFailed(BrokerError):
    """Something answers at `address`, but it and this client do not agree on TLS, and will not by themselves.

    `setting` is what decides about that here: ``tls``, ``tls-ca`` or ``tls-cert``.
    """

    def __init__(self, address: str, why: str, setting: Literal["tls", "tls-ca", "tls-cert"]) -> None:
        super().__init__(f"the broker at {address} {why}")
        self.address = address
        self.setting = setting

    def with_remedy(self, prefix: str) -> str:
        """Say it with the flag to see, for a program whose flags of TLS begin with `prefix`."""
        return f"{self}; see {prefix}{self.setting}"


class BrokerLost(BrokerError):
    """The connection ended while a command was waiting for its reply; it may or may not have been carried out."""

    def __init__(self, address: str) -> None:
        super().__init__(f"the connection to the broker at {address} was lost")
        self.address = address


class HandshakeFailed(BrokerError):
    """A step of an exactly-once handshake was said `tries` times in vain; what it is about is kept on this side's disk."""

    def __init__(self, step: str, tries: int, why: str) -> None:
        super().__init__(
            f"gave up {step} after {tries} tries ({why}); it is kept, and goes on when this client starts again"
        )
        self.step = step


class SpoolTaken(BrokerError):
    """Another process has the file in which a client keeps its exactly-once handshakes."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"another process uses {path}; give this client a name or a spool of its own")


class SpoolUnusable(BrokerError):
    """The file in which a client keeps its exactly-once handshakes cannot be written."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(f"cannot use {path}: {error.strerror}")


class StartError(Exception):
    """A program cannot start or go on for a reason outside it; its text is the one sentence a person sees."""


class TlsFileUnusable(StartError):
    """A file that TLS needs does not do. `setting` is where it is named: ``ca``, ``cert`` or ``key``."""

    def __init__(self, setting: Literal["ca", "cert", "key"], why: str) -> None:
        super().__init__(f"--tls-{setting}: {why}")
        self.setting = setting
        self.why = why
