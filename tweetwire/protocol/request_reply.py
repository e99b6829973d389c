"""The form of a request and of its reply: the header and the topic that lead a reply to the connection that waits for it.

The broker adds the header ``reply-to`` to a request. Its value is a token that no client can guess, and that belongs to the
connection of the requester. A reply is an event of the topic `REPLIES` with that token as its `key` and the id of the request
as its `parent`. The topic is fixed, so no requester can make a responder publish to another topic.
"""

from typing import Any, Final

from msgspec import UNSET

from tweetwire.protocol.events import Event, StoredEvent

__all__ = ["REPLIES", "REPLY_TO", "TIMEOUT_MS_MAX", "reply_event"]

REPLIES: Final = "replies"
"""The topic of all replies."""

REPLY_TO: Final = "reply-to"
"""The header of a request that has the token of the connection that waits."""

TIMEOUT_MS_MAX: Final = 3_600_000
"""The longest time that a request may wait for its reply."""


def reply_event(request: StoredEvent, msg: Any, id_: str) -> Event:
    """Return the event that answers a request, to be published to `REPLIES`.

    Raises ValueError if `request` is not a request.
    """
    token = None if request.headers is UNSET else request.headers.get(REPLY_TO)
    if token is None:
        raise ValueError(f"the event {request.id!r:.80} is not a request: it has no header {REPLY_TO}")
    return Event(id=id_, msg=msg, key=token, parent=request.id)
