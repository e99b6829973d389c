"""``POST /subscriptions/{topic}/{name}/…``: a work queue by polling. Each worker takes events, and acks or nacks them."""

from typing import Any, Final

import anyio
import msgspec
from msgspec import Struct

from broker.gateways.http.answers import Answer, json_answer, lines_answer
from broker.gateways.http.call import Call
from broker.gateways.http.errand import Gone
from broker.gateways.http.holder import Ended, Holder
from broker.gateways.http.holders import Holders
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.units import parse_seconds
from tweetwire.protocol.words import OFFSET_MAX, whole_number

__all__ = ["POLICY", "Queue", "words_of_refs"]

POLICY: Final = ("from", "timeout", "tries", "strikes", "backoff", "max_wait", "ordered")
"""The options of ``sub`` that a take or an event stream may have."""
TAKE_MAX: Final = 10_000
WAIT_S_MAX: Final = 60.0
REFS_MAX: Final = 10_000
ID_CHARACTERS_MAX: Final = 256


class _Refs(Struct, forbid_unknown_fields=True):
    refs: list[int | str]
    error: Any = None


class Queue:
    """The actions of the work queue."""

    def __init__(self, holders: Holders) -> None:
        self._holders = holders

    async def take(self, call: Call) -> Answer:
        """Take events of a subscription. The body is empty if none comes in time."""
        call.check_query("max", "wait", *POLICY)
        most = whole_number(call.word("max") or "1", TAKE_MAX)
        if not most:
            raise Refusal("bad_arguments", f"max is a whole number from 1 to {TAKE_MAX}")
        wait_s = _wait_s(call.word("wait") or "0s")
        options = call.words(*POLICY)
        async with self._holders.taking(call) as holder:
            with anyio.CancelScope() as scope:
                # A client that has left must take no events.
                call.protocol.when_lost = scope.cancel
                try:
                    return lines_answer(b"".join(await holder.take(most, wait_s, options)))
                except Ended as ended:
                    holder.leave()
                    raise Refusal("not_subscribed", f"the subscription has ended: {ended}") from None
        raise Gone

    async def ack(self, call: Call) -> Answer:
        """Settle events by their refs."""
        body = await _refs_of(call, has_error=False)
        return json_answer({"acked": await self._each(call, f"ack {call.topic} {words_of_refs(body.refs)}")})

    async def extend(self, call: Call) -> Answer:
        """Restart the timeouts of events."""
        body = await _refs_of(call, has_error=False)
        return json_answer({"extended": await self._each(call, f"extend {call.topic} {words_of_refs(body.refs)}")})

    async def nack(self, call: Call) -> Answer:
        """Count a failed try of events."""
        body = await _refs_of(call, has_error=True)
        error = "" if body.error is None else " " + msgspec.json.encode(body.error).decode()
        nacked, stale = 0, Refusal("stale", "none of these events is in flight here")
        for ref in body.refs:
            try:
                nacked += await self._each(call, f"nack {call.topic} {words_of_refs([ref])}{error}")
            except Refusal as refusal:
                if refusal.code != "stale":
                    raise
                stale = refusal
        if not nacked:
            raise stale
        return json_answer({"nacked": nacked})

    async def _each(self, call: Call, line: str) -> int:
        """Execute a line on each holder of the user until it has an effect, and return the number of events.

        Raises Refusal ``stale`` if no event is in flight on any of them.
        """
        found, refused = 0, Refusal("stale", "none of these events is in flight here")
        for holder in list(self._holders.of(call)):
            try:
                reply = await self._command(holder, line)
            except Refusal as refusal:
                if refusal.code not in {"stale", "not_subscribed"}:
                    raise
                continue
            found += int(reply.split(b" ")[3])
            if line.startswith("nack "):
                break
        if not found:
            raise refused
        return found

    async def _command(self, holder: Holder, line: str) -> bytes:
        holder.busy += 1
        try:
            return await holder.command(line)
        except Ended:
            raise Refusal("stale", "the subscription has ended") from None
        finally:
            holder.busy -= 1


async def _refs_of(call: Call, *, has_error: bool) -> _Refs:
    """Read the body ``{"refs":[…]}``. Raises Refusal ``bad_arguments``."""
    call.check_query()
    try:
        body = msgspec.json.decode(await call.body(), type=_Refs)
    except msgspec.MsgspecError as error:
        example = '{"refs":[1042,"id"]' + (',"error":"text"}' if has_error else "}")
        raise Refusal("bad_arguments", f"the body must be {example}: {error}") from None
    if not 0 < len(body.refs) <= REFS_MAX:
        raise Refusal("bad_arguments", f"refs has from 1 to {REFS_MAX} offsets or ids")
    if body.error is not None and not has_error:
        raise Refusal("bad_arguments", "only a nack has an error")
    return body


def words_of_refs(refs: list[int | str]) -> str:
    """Return refs as words of a line. Raises Refusal ``bad_arguments``."""
    return " ".join(map(_word, refs))


def _word(ref: int | str) -> str:
    """Return a ref as a word of a line: an offset with ``@``, or an id. Raises Refusal ``bad_arguments``."""
    if isinstance(ref, int):
        if not 0 <= ref <= OFFSET_MAX:
            raise Refusal("bad_arguments", f"{ref} is not an offset")
        return f"@{ref}"
    if not 0 < len(ref) <= ID_CHARACTERS_MAX or any(one.isspace() for one in ref):
        raise Refusal("bad_arguments", f"{ref[:40]!r} cannot name an event; name it by its offset")
    return ref


def _wait_s(text: str) -> float:
    try:
        wait_s = parse_seconds(text)
    except ValueError as error:
        raise Refusal("bad_arguments", f"wait: {error}") from None
    if wait_s > WAIT_S_MAX:
        raise Refusal("bad_arguments", f"wait is at most {WAIT_S_MAX:g}s; take again after that")
    return wait_s
