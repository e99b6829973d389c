"""Decide which reply can answer a line: each reply begins with fixed words, and repeats some words of the line."""

from typing import Final

__all__ = ["answers"]


def answers(request: bytes, reply: bytes) -> bool:
    """Whether `reply`, which is not a refusal, can answer the line `request`. The first words of a reply name its command."""
    words = request.split(None, _WORDS_MAX)
    verb, count = _REPLIES.get(words[0].lower(), (b"", 0))
    if not verb:
        return reply.startswith(b"+")
    expected = b" ".join([verb, *words[1 : 1 + count]])
    return reply == expected or reply.startswith(expected + b" ")


# The beginning of the reply to each verb: its fixed words, and the number of words that it repeats from the line.
_REPLIES: Final = {
    b"hello": (b"+OK hello", 1),
    b"sub": (b"+OK sub", 1),
    b"unsub": (b"+OK unsub", 1),
    b"ack": (b"+OK ack", 1),
    b"nack": (b"+OK nack", 1),
    b"extend": (b"+OK extend", 1),
    b"begin": (b"+OK begin", 1),
    b"read": (b"+OK read", 1),
    b"last": (b"+OK last", 2),
    b"checkpoint": (b"+OK checkpoint", 2),
    b"claim": (b"+OK claim", 2),
    b"create": (b"+OK create", 1),
    b"drop": (b"+OK drop", 1),
    b"purge": (b"+OK purge", 1),
    b"seek": (b"+OK seek", 2),
    b"pause": (b"+OK pause", 2),
    b"resume": (b"+OK resume", 2),
    b"discard": (b"+OK discard", 1),
    b"pub": (b"+OK pub", 1),
    b"request": (b"+OK request", 1),
    b"pub2": (b"+REC", 1),
    b"pubrel": (b"+COMP", 2),
    b"pubrec": (b"+REL", 2),
    b"pubcomp": (b"+OK comp", 2),
    b"mark": (b"+OK mark", 1),
    b"unmark": (b"+OK unmark", 1),
    b"marks": (b"+OK marks", 1),
    b"confirm": (b"+OK confirm", 1),
    b"topics": (b"+OK topics", 0),
    b"stats": (b"+OK stats", 0),
    b"ping": (b"+PONG", 0),
    b"quit": (b"+OK bye", 0),
}
_WORDS_MAX: Final = 3
