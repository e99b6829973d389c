"""``GET /topics/{topic}``: read a part of a topic's log as JSON Lines."""

from typing import Final, NamedTuple
from urllib.parse import urlencode

from broker.gateways.http.answers import Answer, lines_answer
from broker.gateways.http.call import Call
from broker.gateways.http.errand import Errand
from tweetwire.protocol.replies import refusal_of

__all__ = ["Page", "ask_page", "read_topic"]

PAGE_BYTES: Final = 1 << 20


class Page(NamedTuple):
    """A part of a log: the stored lines, and the offset after them."""

    lines: bytes
    next: int


async def ask_page(errand: Errand, line: str) -> Page:
    """Execute a ``read``. Raises Refusal."""
    reply = await errand.ask(line.encode())
    if reply.startswith(b"-"):
        raise refusal_of(reply.rstrip())
    head, _, lines = reply.partition(b"\n")
    return Page(lines, int(head.rpartition(b"next=")[2]))


async def read_topic(call: Call) -> Answer:
    """Answer with events from a position on. The header `Link` has the address of the next part."""
    call.check_query("from", "limit", "wait")
    topic, start = call.topic, call.word("from", "earliest")
    options = call.words("limit", "wait")
    with call.errand() as errand:
        call.protocol.when_lost = errand.leave
        page = await ask_page(errand, f"read {topic} {start} bytes={PAGE_BYTES}{options}")
    query = {"from": page.next} | {name: word for name in ("limit", "wait") if (word := call.word(name)) is not None}
    return lines_answer(page.lines, headers=(("link", f'</topics/{topic}?{urlencode(query)}>; rel="next"'),))
