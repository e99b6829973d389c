"""The follow graph and the rules that say which clients get an event, without sockets and sequences."""

from collections.abc import Collection, Iterator, Mapping

from broker.gateways.event_source.lines import SourceEvent

__all__ = ["FollowGraph", "is_for_all", "recipients"]

Followers = Mapping[bytes, Collection[bytes]]
"""The followers of each client that has followers."""


def recipients(event: SourceEvent, followers: Followers) -> Collection[bytes] | None:
    """Return the ids of the clients that an event is for. None stands for all connected clients.

    `followers` must be those at the event's turn.
    """
    match event.kind:
        case b"P" | b"F":
            return (event.recipient,)
        case b"S":
            return followers.get(event.sender, ())
        case b"B":
            return None
        case _:
            return ()


def is_for_all(event: SourceEvent) -> bool:
    """Return whether an event is a broadcast to all connected clients."""
    return event.kind == b"B"


class FollowGraph:
    """The followers after the last event that was applied. `edges` is their number."""

    def __init__(self) -> None:
        self.followers: dict[bytes, set[bytes]] = {}
        self.edges = 0

    def apply(self, event: SourceEvent) -> None:
        """Apply a follow or an unfollow. Other events change nothing."""
        if event.kind == b"F":
            of = self.followers.setdefault(event.recipient, set())
            before = len(of)
            of.add(event.sender)
            self.edges += len(of) - before
        elif event.kind == b"U":
            self._remove(event.sender, event.recipient)

    def add(self, followed: bytes, followers: Collection[bytes]) -> None:
        """Add followers of a client, read from a stored graph."""
        of = self.followers.setdefault(followed, set())
        self.edges -= len(of)
        of.update(followers)
        self.edges += len(of)

    def parts(self, edges_max: int) -> Iterator[dict[bytes, list[bytes]]]:
        """Yield the graph in parts of at most `edges_max` followers. An empty graph is one empty part."""
        part: dict[bytes, list[bytes]] = {}
        room = edges_max
        for followed, of in self.followers.items():
            rest = sorted(of)
            while rest:
                part[followed], rest = rest[:room], rest[room:]
                room -= len(part[followed])
                if not room:
                    yield part
                    part, room = {}, edges_max
        yield part

    def _remove(self, follower: bytes, followed: bytes) -> None:
        of = self.followers.get(followed)
        if of is not None and follower in of:
            of.remove(follower)
            self.edges -= 1
            if not of:
                del self.followers[followed]
