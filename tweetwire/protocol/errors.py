"""The errors of the library, named by the side that refused or failed."""

from pathlib import Path
from typing import Literal, Self

__all__ = [
    "BrokerError",
    "BrokerLost",
    "BrokerUnreachable",
    "ClientClosed",
    "Code",
    "HandshakeFailed",
    "NoReply",
    "ProtocolError",
    "Refusal",
    "SpoolTaken",
    "SpoolUnusable",
    "StartError",
    "SubscriptionEnded",
    "TlsFailed",
    "TlsFileUnusable",
    "internal",
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
    "fenced",
    "unauthenticated",
    "forbidden",
    "busy",
    "disk",
    "too_many",
    "shutting_down",
    "internal",
]
"""The closed list of codes in a broker's refusals; a code is the first word after ``-ERR``."""

_SHOWN_BYTES = 80

RETRYABLE: frozenset[str] = frozenset({"busy", "disk", "too_many", "shutting_down"})


class BrokerError(Exception):
    """Any failure of the broker or of the connection to it."""


class Refusal(BrokerError):
    """The broker refused one command; the connection stays open.

    Attributes:
        code: One of `Code`. ``internal`` means a bug of the broker; the refusal's `__cause__` is its exception.
        text: The fault, and what to do about it.
        line: Inside the broker, the refused event, so that it can be kept in ``rejected_lines``.
        topic: Inside the broker, the topic of an event that was refused before it was parsed.
    """

    def __init__(self, code: str, text: str, line: bytes = b"", topic: str = "") -> None:
        super().__init__(f"{code} {text}" if text else code)
        self.code = code
        self.text = text
        self.line = line
        self.topic = topic

    @property
    def is_retryable(self) -> bool:
        """Whether the same command may succeed later."""
        return self.code in RETRYABLE

    def bare(self) -> Self:
        """Return this refusal without its traceback.

        A frame of the traceback may hold a list with the refusal, which would be a reference cycle.
        """
        self.__traceback__ = self.__cause__ = self.__context__ = None
        return self


def internal(error: BaseException) -> Refusal:
    """Return the refusal of a command that raised an unexpected exception."""
    refusal = Refusal("internal", "a bug of the broker stopped this command; the broker's log has the details")
    refusal.__cause__ = error
    return refusal


class BrokerUnreachable(BrokerError):
    """No broker answered at `address` in time."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"no broker answers at {address} ({reason}); start one with: tweetwire broker")
        self.address = address


class TlsFailed(BrokerError):
    """A server answers at `address`, but it and this client do not agree on TLS. Trying again does not help.

    `setting` names the setting of this client to check: ``tls``, ``tls-ca`` or ``tls-cert``.
    """

    def __init__(self, address: str, why: str, setting: Literal["tls", "tls-ca", "tls-cert"]) -> None:
        super().__init__(f"the broker at {address} {why}")
        self.address = address
        self.setting = setting

    def with_remedy(self, prefix: str) -> str:
        """Return the text with the flag to check, for a program whose TLS flags begin with `prefix`."""
        return f"{self}; see {prefix}{self.setting}"


class BrokerLost(BrokerError):
    """The connection ended before a command had its reply. The broker may or may not have carried the command out."""

    def __init__(self, address: str, text: str = "") -> None:
        super().__init__(text or f"the connection to the broker at {address} was lost")
        self.address = address


class NoReply(BrokerError):
    """No reply to a request came in time. The request is stored, and a responder may still handle it."""

    def __init__(self, topic: str, id_: str) -> None:
        super().__init__(
            f"no reply to the request {id_!r:.80} of {topic} in time; it is stored, and may still be handled"
        )
        self.topic = topic
        self.id = id_


class SubscriptionEnded(BrokerError):
    """The broker ended a subscription of this client. `reason` comes from its notice ``!ended``.

    Iterating over the subscription raises this. The connection and the client's other subscriptions continue.
    """

    def __init__(self, topic: str, name: str, reason: str) -> None:
        super().__init__(f"the subscription {name} to {topic} ended: {reason}")
        self.topic = topic
        self.name = name
        self.reason = reason


class ClientClosed(BrokerLost):
    """A client was used after it was closed, or after its ``with`` block ended."""

    def __init__(self, address: str) -> None:
        super().__init__(address, f"this client of the broker at {address} is closed; make another one")


class ProtocolError(BrokerError):
    """A broker sent a line that is not part of the protocol. `why` names the fault.

    The client closes the connection. The broker may or may not have carried out the commands that had no reply yet.
    """

    def __init__(self, why: str, line: bytes = b"") -> None:
        shown = f": {line[:_SHOWN_BYTES]!r}" if line else ""
        super().__init__(f"the broker sent a line that is not part of the protocol: {why}{shown}")
        self.why = why


class HandshakeFailed(BrokerError):
    """The client sent a step of an exactly-once handshake `tries` times without success. Its disk keeps the message."""

    def __init__(self, step: str, tries: int, why: str) -> None:
        super().__init__(
            f"gave up {step} after {tries} tries ({why}); its handshake is kept, and continues when this client starts again"
        )
        self.step = step


class SpoolTaken(BrokerError):
    """Another process uses the file in which a client keeps its exactly-once handshakes."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"another process uses {path}; give this client another name or another spool")


class SpoolUnusable(BrokerError):
    """The file in which a client keeps its exactly-once handshakes cannot be written."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(f"cannot use {path}: {error.strerror}")


class StartError(Exception):
    """A program cannot start or continue, for a reason outside it. The user sees its text as one sentence."""


class TlsFileUnusable(StartError):
    """A file that TLS needs is unusable. `setting` names its flag: ``ca``, ``cert`` or ``key``."""

    def __init__(self, setting: Literal["ca", "cert", "key"], why: str) -> None:
        super().__init__(f"--tls-{setting}: {why}")
        self.setting = setting
        self.why = why
