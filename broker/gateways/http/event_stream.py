"""``GET /topics/{topic}/events``: Server-Sent Events. `id` is the offset, and `data` the line of the event.

Without `as`, a stream reads the log, and needs no subscription: it waits in ``read … wait=``, so an idle stream is a small
session. With `as`, it delivers the events of a durable subscription, and a client settles them.
"""

from typing import Final

from broker.gateways.http.answers import error_of
from broker.gateways.http.call import Call
from broker.gateways.http.errand import Errand, Gone
from broker.gateways.http.holder import Ended, offset_of
from broker.gateways.http.holders import Holders
from broker.gateways.http.queueing import POLICY
from broker.gateways.http.reading import Page, ask_page
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.words import OFFSET_MAX, whole_number

__all__ = ["EventStream", "format_events"]

HEARTBEAT: Final = b":\n\n"
HEARTBEAT_S: Final = 25
PART_BYTES: Final = 64 << 10
PREFETCH: Final = "100"


class EventStream:
    """The action of event streams."""

    def __init__(self, holders: Holders) -> None:
        self._holders = holders

    async def serve(self, call: Call) -> None:
        """Send events until the client leaves or the broker ends."""
        call.check_query("from", "as", "prefetch", "ack", *POLICY)
        if call.word("as") is None:
            await self._read(call)
        else:
            await self._deliver(call)

    async def _read(self, call: Call) -> None:
        for name in ("prefetch", "ack", *POLICY[1:]):
            if call.word(name) is not None:
                raise Refusal("bad_arguments", f"{name} is for a subscription: add as=<name>")
        with call.errand() as errand:
            call.protocol.when_lost = errand.leave
            line = f"read {call.topic} {{}} bytes={PART_BYTES}{{}}"
            page = await ask_page(errand, line.format(_start_of(call), ""))
            await call.begin("text/event-stream")
            try:
                await _send_pages(call, errand, line, page)
            except Gone:
                await _leave(call)
            except Refusal as refusal:
                await _end(call, refusal)

    async def _deliver(self, call: Call) -> None:
        has_ack = call.word("ack")
        if has_ack not in {None, "sent"}:
            raise Refusal("bad_arguments", "ack is sent: the events are settled when they were sent")
        prefetch = whole_number(call.word("prefetch") or PREFETCH, OFFSET_MAX)
        async with self._holders.stream(call) as holder:
            call.protocol.when_lost = holder.leave
            await holder.attach(prefetch or 0, call.words(*POLICY))
            await call.begin("text/event-stream")
            try:
                while True:
                    lines = await holder.next_events(HEARTBEAT_S)
                    await call.send_part(format_events(b"".join(lines)) if lines else HEARTBEAT)
                    if lines and has_ack:
                        await holder.command(f"ack {call.topic} " + " ".join(f"@{offset_of(line)}" for line in lines))
                    if holder.session.is_leaving:
                        raise Gone
            except Gone:
                await _leave(call)
            except Ended as ended:
                await _end(call, Refusal("not_subscribed", f"the subscription has ended: {ended}"))
            except Refusal as refusal:
                await _end(call, refusal)


async def _send_pages(call: Call, errand: Errand, line: str, page: Page) -> None:
    while True:
        await call.send_part(format_events(page.lines) if page.lines else HEARTBEAT)
        if errand.session.is_leaving:
            raise Gone
        page = await ask_page(errand, line.format(page.next, f" wait={HEARTBEAT_S}s"))


async def _leave(call: Call) -> None:
    """End a stream whose user was removed, or whose broker ends. Raises Gone if the client has left."""
    if call.protocol.transport.is_closing():
        raise Gone
    await call.end()


async def _end(call: Call, refusal: Refusal) -> None:
    """End a stream. A client connects again by itself, so an error that may pass is not reported."""
    if not refusal.is_retryable:
        await call.send_part(b"event: error\ndata: %b\n\n" % error_of(refusal).body.strip())
    await call.end()


def _start_of(call: Call) -> str:
    last = call.headers.get("last-event-id")
    if last is None:
        return call.word("from", "latest") or ""
    offset = whole_number(last, OFFSET_MAX - 1)
    if offset is None:
        raise Refusal("bad_arguments", f"Last-Event-ID is an offset, not {last[:40]!r}")
    return str(offset + 1)


def format_events(lines: bytes) -> bytes:
    """Return stored lines as events of a stream."""
    return b"".join(b"id: %d\ndata: %b\n\n" % (offset_of(line), line) for line in lines.split(b"\n") if line)
