"""The verb of a client that waits for a reply to the event that it publishes."""

from typing import ClassVar, Final

from msgspec import UNSET

from tweetwire.protocol.errors import Refusal
from tweetwire.protocol.event_lines import parse_typed_event
from tweetwire.protocol.events import IncomingEvent
from tweetwire.protocol.names import topic_name
from tweetwire.protocol.options import Options
from tweetwire.protocol.permissions import Permission
from tweetwire.protocol.request_reply import REPLY_TO, TIMEOUT_MS_MAX
from tweetwire.protocol.units import parse_seconds
from tweetwire.protocol.verbs.verb import Command, Verb
from tweetwire.protocol.words import WrongUsage, split_first_word, text_of

__all__ = ["REQUESTING_VERBS", "Request"]

_TIMEOUT_MS: Final = 5000


class Request(Command):
    """``request <topic> [timeout=5s] <event>``: store an event, and wait up to `timeout_ms` for its reply."""

    permission: ClassVar = Permission.PUBLISH
    topic: str
    event: IncomingEvent
    timeout_ms: int


def _request(rest: bytes) -> Request:
    word, raw = split_first_word(rest)
    if not raw:
        raise WrongUsage
    topic = topic_name(word)
    words: list[str] = []
    while raw and not raw.startswith(b"{"):
        word, after = split_first_word(raw)
        if b"=" not in word:
            break
        words.append(text_of(word))
        raw = after
    if not raw:
        raise WrongUsage
    options = Options(words)
    timeout_ms = _milliseconds(options.text("timeout"))
    options.end()
    event = parse_typed_event("request", topic, raw)
    if event.producer is not UNSET:
        # A request that is sent again needs another reply, and the broker would not store it again.
        raise Refusal(
            "bad_event", "a request has no producer; a request that is sent again is stored again", raw, topic
        )
    if event.headers is not UNSET and REPLY_TO in event.headers:
        raise Refusal("bad_event", f"the broker sets the header {REPLY_TO} of a request; leave it out", raw, topic)
    return Request(topic, event, timeout_ms)


def _milliseconds(text: str | None) -> int:
    if text is None:
        return _TIMEOUT_MS
    try:
        value = round(parse_seconds(text) * 1000)
    except ValueError as error:
        raise Refusal("bad_arguments", f"timeout: {error}") from None
    if not 0 < value <= TIMEOUT_MS_MAX:
        raise Refusal("bad_arguments", "timeout must be more than 0s and at most 1h")
    return value


REQUESTING_VERBS: Final = (
    Verb(
        name="request",
        parse=_request,
        commands=(Request,),
        usage="request <topic> [timeout=5s] <event>",
        example='request <topic> timeout=5s {"id":"1","msg":"hello"}',
        summary="publishes an event and waits for its reply, which comes as !reply <topic> <offset> <event>, or as !timeout",
    ),
)
