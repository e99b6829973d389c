"""The holders of all users, by user and subscription.

Always true: there are at most `HOLDERS_MAX` holders. One without events in flight that no request uses ends after `IDLE_S`.
One with events in flight ends when they are settled, or their timeouts have returned them.
"""

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Final, TypeAlias

from broker.gateways.http.call import Call
from broker.gateways.http.holder import Holder
from broker.server import Server
from tweetwire.protocol.errors import Refusal

__all__ = ["Holders"]

HOLDERS_MAX: Final = 10_000
IDLE_S: Final = 5.0

_Key: TypeAlias = tuple[str, str, str]


class Holders:
    """Finds the holders whose events a request settles."""

    def __init__(self, server: Server) -> None:
        self._server = server
        # The holder of takes by user, topic and subscription; and those of event streams, each of one connection
        self._taking: dict[_Key, Holder] = {}
        self._streams: dict[_Key, list[Holder]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @asynccontextmanager
    async def taking(self, call: Call) -> AsyncIterator[Holder]:
        """Use the holder of takes for a call, which begins one if there is none. Raises Refusal ``too_many``."""
        key = _key(call)
        holder = self._taking.get(key)
        if holder is None:
            holder = self._taking[key] = self._begin(call)
        holder.busy += 1
        try:
            yield holder
        finally:
            holder.busy -= 1
            holder.idle_since_s = time.monotonic()

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[Holder]:
        """Begin a holder for an event stream. It ends with the block, which returns its events in flight."""
        key = _key(call)
        holder = self._begin(call)
        self._streams.setdefault(key, []).append(holder)
        try:
            yield holder
        finally:
            self._streams[key].remove(holder)
            if not self._streams[key]:
                del self._streams[key]
            self._end(holder)

    def of(self, call: Call) -> Iterator[Holder]:
        """Yield the holders of a call's user and subscription that have events in flight."""
        key = _key(call)
        taking = self._taking.get(key)
        for holder in (*([] if taking is None else [taking]), *self._streams.get(key, ())):
            if holder.held:
                yield holder

    def end_idle(self) -> None:
        """End the holders that are no longer needed. Call it about once a second."""
        now_s = time.monotonic()
        for key, holder in list(self._taking.items()):
            if holder.busy:
                continue
            if holder.session.is_leaving or (not holder.held and now_s - holder.idle_since_s > IDLE_S):
                del self._taking[key]
                self._end(holder)

    def leave(self) -> None:
        """Let the requests that wait for events end, since the broker ends."""
        for holder in (*self._taking.values(), *(one for group in self._streams.values() for one in group)):
            holder.leave()

    def close(self) -> None:
        """End all holders of takes, when no request is served any more."""
        for holder in self._taking.values():
            self._end(holder)
        self._taking.clear()

    def _begin(self, call: Call) -> Holder:
        if self._count >= HOLDERS_MAX:
            raise Refusal("too_many", f"{HOLDERS_MAX} subscriptions are used over HTTP; try again later")
        holder = Holder(
            self._server, call.options.limits, call.visitor, call.peer, topic=call.topic, name=call.subscription
        )
        self._count += 1
        return holder

    def _end(self, holder: Holder) -> None:
        self._count -= 1
        holder.close()


def _key(call: Call) -> _Key:
    return call.visitor.name, call.topic, call.subscription
