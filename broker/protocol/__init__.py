"""The words of the wire: lines ⇄ commands and replies. Bytes in, bytes out; no socket, no clock, no logger."""

from broker.protocol.commands import Command, Publish, parse
from broker.protocol.lines import GREETING_LIMIT, LineSplitter, TooLong, is_foreign_protocol
from broker.protocol.names import check_name

__all__ = [
    "GREETING_LIMIT",
    "Command",
    "LineSplitter",
    "Publish",
    "TooLong",
    "check_name",
    "is_foreign_protocol",
    "parse",
]
