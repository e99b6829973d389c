"""The wire protocol: it converts lines to commands and replies, and back.

It takes bytes and returns bytes. It opens no socket, reads no clock and writes no log.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tweetwire.protocol.lines import GREETING_LIMIT, TOO_LONG, LineSplitter, is_foreign_protocol
    from tweetwire.protocol.names import check_name
    from tweetwire.protocol.parser import parse_lines
    from tweetwire.protocol.verbs.verb import Command

__all__ = [
    "GREETING_LIMIT",
    "TOO_LONG",
    "Command",
    "LineSplitter",
    "check_name",
    "is_foreign_protocol",
    "parse_lines",
]

_MODULES: Final = dict.fromkeys(__all__, "tweetwire.protocol.lines") | {
    "Command": "tweetwire.protocol.verbs.verb",
    "check_name": "tweetwire.protocol.names",
    "parse_lines": "tweetwire.protocol.parser",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: the parser imports all verbs, which a client does not need."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
