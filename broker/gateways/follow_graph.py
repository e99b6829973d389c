"""Who follows whom, and who therefore gets an event: the rules of the event source, without sockets and sequences."""

from collections.abc import Collection, Iterator, Mapping

from broker.gateways.source_lines import SourceEvent

__all__ = ["FollowGraph", "is_for_all", "recipients"]

Followers = Mapping[bytes, Collection[bytes]]
"""The followers of each who has some."""


def recipients(event: SourceEvent, followers: Followers) -> Collection[bytes] | None:
    """Return the ids that an event is for, by the followers at its turn; None stands for all who are connected."""
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
    """Whether an event is for all who are connected, whoever follows whom."""
    return event.kind == b"B"


class FollowGraph:
    """The followers as of the last event that was applied."""

    def __init__(self) -> None:
        self.followers: dict[bytes, set[bytes]] = {}
        self.edges = 0

    def apply(self, event: SourceEvent) -> None:
        """Let a follow or an unfollow have its effect; others have none."""
        if event.kind == b"F":
            of = self.followers.setdefault(event.recipient, set())
            before = len(of)
            of.add(event.sender)
            self.edges += len(of) - before
        elif event.kind == b"U":
            self._remove(event.sender, event.recipient)

    def add(self, followed: bytes, followers: Collection[bytes]) -> None:
        """Add followers of one, as they were kept."""
        of = self.followers.setdefault(followed, set())
        self.edges -= len(of)
        of.update(followers)
        self.edges += len(of)

    def parts(self, edges_max: int) -> Iterator[dict[bytes, list[bytes]]]:
        """Yield the graph in parts of about `edges_max` followers at most, at least one part."""
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
