"""The lines of the exactly-once handshakes: ``pub2``, ``pubrel``, ``pubrec`` and ``pubcomp``."""

from collections.abc import Callable
from typing import Final

from broker.errors import Refusal
from broker.protocol.commands import Pub2, Pubcomp, Pubrec, Pubrel
from broker.protocol.event_lines import parse_event
from broker.protocol.names import check_name
from broker.protocol.words import ref_of, words_of

__all__ = ["HANDSHAKE_VERBS"]


def _pub2(rest: bytes) -> Pub2:
    topic, _, raw = rest.strip().partition(b" ")
    if not raw:
        raise Refusal("bad_arguments", "usage: pub2 <topic> <event>")
    event = parse_event(raw)
    if event.id.split() != [event.id]:
        raise Refusal("bad_event", "an id that pubrel can name has no white space")
    return Pub2(check_name(topic.decode("ascii", "replace")), event)


def _pubrel(rest: bytes) -> Pubrel:
    topic, id_ = words_of(rest, "pubrel <topic> <id>", 2, 2)
    return Pubrel(check_name(topic), id_)


def _pubrec(rest: bytes) -> Pubrec:
    topic, ref = words_of(rest, "pubrec <topic> <ref>", 2, 2)
    return Pubrec(check_name(topic), ref_of(ref), ref)


def _pubcomp(rest: bytes) -> Pubcomp:
    topic, ref = words_of(rest, "pubcomp <topic> <ref>", 2, 2)
    return Pubcomp(check_name(topic), ref_of(ref), ref)


HANDSHAKE_VERBS: Final[dict[str, Callable[[bytes], Pub2 | Pubrel | Pubrec | Pubcomp]]] = {
    "pub2": _pub2,
    "pubrel": _pubrel,
    "pubrec": _pubrec,
    "pubcomp": _pubcomp,
}
