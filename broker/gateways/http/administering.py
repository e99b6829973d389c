"""Administration: the topics, their figures and schemas, the state of an event, and dead events."""

import msgspec
from msgspec import Struct

from broker.gateways.http.answers import Answer, json_answer
from broker.gateways.http.call import Call
from broker.gateways.http.queueing import words_of_refs
from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.replies import refusal_of

__all__ = ["list_dead", "list_topics", "redrive", "show_event", "show_schema", "show_stats"]


class _Redrive(Struct, forbid_unknown_fields=True):
    refs: list[int | str] | None = None
    rate: int | None = None


async def list_topics(call: Call) -> Answer:
    """Answer with the topics that the user may see."""
    call.check_query()
    return Answer(200, await _json_of(call, "topics", 2))


async def show_stats(call: Call) -> Answer:
    """Answer with the figures of a topic."""
    call.check_query()
    return Answer(200, await _json_of(call, f"stats {call.topic}", 2))


async def show_schema(call: Call) -> Answer:
    """Answer with the JSON Schema of a topic, or null."""
    call.check_query()
    found = await _json_of(call, f"schema {call.topic}", 3)
    return Answer(200, b"null\n" if found == b"none\n" else found)


async def show_event(call: Call) -> Answer:
    """Answer with the state of an event for a subscription."""
    call.check_query("ref", "as")
    ref, name = call.word("ref"), call.word("as")
    if ref is None or name is None:
        raise Refusal("bad_arguments", "explain needs ref=<id>, or ref=@<offset>, and as=<subscription>")
    return Answer(200, await _json_of(call, f"explain {call.topic} {ref} as={name}", 4))


async def list_dead(call: Call) -> Answer:
    """Answer with the dead events of a topic, the newest first."""
    call.check_query("as", "limit")
    return Answer(200, await _json_of(call, f"dead topic={call.topic}{call.words('as', 'limit')}", 2))


async def redrive(call: Call) -> Answer:
    """Deliver dead events again: those that the body names, or all."""
    call.check_query()
    body = await call.body()
    try:
        wanted = msgspec.json.decode(body or b"{}", type=_Redrive)
    except msgspec.MsgspecError as error:
        example = '{"refs":[1042],"rate":50}; without refs, all'
        raise Refusal("bad_arguments", f"the body must be {example}: {error}") from None
    refs = "all" if wanted.refs is None else words_of_refs(wanted.refs)
    rate = "" if wanted.rate is None else f" rate={wanted.rate}/s"
    reply = await _ask(call, f"redrive {call.topic} as={call.subscription} {refs}{rate}")
    return json_answer({"redriven": int(reply.split(b" ")[3])})


async def _json_of(call: Call, line: str, words: int) -> bytes:
    """Execute a line, and return the JSON after the first `words` words of the reply. Raises Refusal."""
    return (await _ask(call, line)).split(b" ", words)[words]


async def _ask(call: Call, line: str) -> bytes:
    with call.errand() as errand:
        call.protocol.when_lost = errand.leave
        reply = await errand.ask(line.encode())
    if reply.startswith(b"-"):
        raise refusal_of(reply.rstrip())
    return reply
