"""The client's half of exactly-once publishing: messages in the spool, and the steps until the broker has stored them.

Always true: a state is on this client's disk before the client sends a step that follows from it.
"""

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from msgspec import structs

from tweetwire.client.exactly_once.spool import Outgoing, Spool
from tweetwire.client.exactly_once.steps import TOGETHER, Handshake, Sync, moved, say_all
from tweetwire.protocol import replies, requests
from tweetwire.protocol.errors import BrokerError, Refusal
from tweetwire.protocol.events import Event, encode_event
from tweetwire.protocol.handshakes import Half, State, Step
from tweetwire.protocol.replies import Receipt

__all__ = ["Key", "OncePublishing", "PublishResult"]

HALF: Final = Half.CLIENT_PUBLISHING
BYTES_TOGETHER: Final = 8 << 20
"""The size limit of the messages in one handshake, in bytes: an eighth of the broker's limit for all clients."""

Key: TypeAlias = tuple[str, str]
"""Topic and id of a message."""

PublishResult: TypeAlias = Receipt | BrokerError
_Results: TypeAlias = dict[Key, PublishResult]


class OncePublishing:
    """The messages in `spool`, and the handshakes that publish each of them exactly once."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool

    def keep(self, topic: str, events: Sequence[Event]) -> list[Key]:
        """Put events into the spool, unless they are already there. Returns the key of each event.

        Raises ValueError if an event cannot be sent, and SpoolUnusable. In both cases, no event was put into the spool.
        """
        state = moved(HALF, State.NOTHING, Step.PUBLISH).state
        keys = [(topic, event.id) for event in events]
        new = {
            key: Outgoing(topic, event.id, encode_event(event).decode(), state)
            for key, event in zip(keys, events, strict=True)
            if key not in self._spool.outgoing
        }
        for message in new.values():
            requests.pub2_line(topic, message.event)  # Raises ValueError for a message that cannot be sent.
        self._spool.put(new.values())
        return keys

    def left(self) -> list[Key]:
        """Return the keys of the messages in the spool, the oldest first."""
        return list(self._spool.outgoing)

    def side_by_side(self, keys: Sequence[Key]) -> Iterator[list[Key]]:
        """Divide messages, in order, into batches for one handshake each. Messages no longer in the spool are left out."""
        chunk: list[Key] = []
        size = 0
        for key in keys:
            message = self._spool.outgoing.get(key)
            if message is None:
                continue
            chunk.append(key)
            size += len(message.event)
            if len(chunk) == TOGETHER or size >= BYTES_TOGETHER:
                yield chunk
                chunk, size = [], 0
        if chunk:
            yield chunk

    def carry_over(self, keys: Sequence[Key]) -> Handshake[_Results]:
        """Publish messages of the spool in order. Returns the result of each.

        A refused message is removed from the spool. A message that fails with HandshakeFailed stays in it.
        """
        results: _Results = {}
        while waiting := [self._spool.outgoing[key] for key in keys if key not in results]:
            yield Sync()
            yield from self._hold([one for one in waiting if one.state is State.KEPT], results)
            yield Sync()
            held = [self._spool.outgoing[one.key] for one in waiting if one.key not in results]
            yield from self._release(held, results)
        return results

    def _hold(self, messages: list[Outgoing], results: _Results) -> Handshake[None]:
        said = yield from say_all([requests.pub2_line(one.topic, one.event) for one in messages])
        for message, answer in zip(messages, said, strict=True):
            if isinstance(answer, bytes):
                self._move(message, Step.REC)
            else:
                results[message.key] = answer
                if isinstance(answer, Refusal):
                    self._spool.put([structs.replace(message, state=State.CONFIRMED)])

    def _release(self, messages: list[Outgoing], results: _Results) -> Handshake[None]:
        said = yield from say_all([requests.pubrel_line(one.topic, one.id) for one in messages])
        for message, answer in zip(messages, said, strict=True):
            if isinstance(answer, bytes):
                self._move(message, Step.COMP)
                results[message.key] = replies.completion(answer)
            elif isinstance(answer, Refusal) and answer.code == "no_event":
                # The broker no longer holds the message, so the handshake begins again.
                self._move(message, Step.NO_EVENT)
            else:
                results[message.key] = answer

    def _move(self, message: Outgoing, step: Step) -> None:
        self._spool.put([structs.replace(message, state=moved(HALF, message.state, step).state)])
