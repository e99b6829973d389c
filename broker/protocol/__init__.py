"""The words of the wire: lines ⇄ commands and replies. Bytes in, bytes out; no socket, no clock, no logger."""

from broker.protocol.commands import Command
from broker.protocol.lines import GREETING_LIMIT, TOO_LONG, LineSplitter, is_foreign_protocol
from broker.protocol.names import check_name
from broker.protocol.parser import parse_lines

__all__ = [
    "GREETING_LIMIT",
    "TOO_LONG",
    "Command",
    "LineSplitter",
    "check_name",
    "is_foreign_protocol",
    "parse_lines",
]
