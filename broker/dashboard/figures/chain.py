"""What caused what: an event, the one that caused it, and those that it caused, as a tree across topics."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import UNSET, Struct, field

from broker.dashboard.words import cut
from broker.events import StoredEvent

__all__ = ["Node", "lines_of", "tree_data", "tree_of"]

NODES_MAX: Final = 200


class Node(Struct):
    """An event in its chain; `offset` is None for a parent that is not among the events that were looked through."""

    topic: str
    offset: int | None
    id: str
    is_shown: bool = False
    children: "list[Node]" = field(default_factory=list)

    @property
    def place(self) -> str:
        """Where it is, in words."""
        return "not found" if self.offset is None else f"{self.topic} @{self.offset}"


def tree_of(shown: StoredEvent, others: Iterable[StoredEvent]) -> Node:
    """Return the chain that `shown` is part of, from the first cause that is known on.

    A parent is named by its id, and ids need not be unique: the latest event with the id before its child is meant.
    """
    events = {(event.topic, event.offset): event for event in (*others, shown)}
    by_id: dict[str, list[StoredEvent]] = {}
    children: dict[str, list[StoredEvent]] = {}
    for event in sorted(events.values(), key=lambda event: (event.timestamp, event.topic, event.offset)):
        by_id.setdefault(event.id, []).append(event)
        if event.parent is not UNSET:
            children.setdefault(event.parent, []).append(event)
    root, missing = shown, None
    seen = {shown.id}
    while root.parent is not UNSET and root.parent not in seen:
        seen.add(root.parent)
        before = [event for event in by_id.get(root.parent, ()) if event.timestamp <= root.timestamp]
        if not before:
            missing = root.parent
            break
        root = before[-1]
    tree = _grown(root, children, shown)
    return tree if missing is None else Node("", None, missing, children=[tree])


def lines_of(tree: Node) -> list[tuple[int, Node]]:
    """Return the nodes in reading order, each with its depth."""
    found: list[tuple[int, Node]] = []
    todo = [(0, tree)]
    while todo:
        depth, node = todo.pop()
        found.append((depth, node))
        todo += [(depth + 1, child) for child in reversed(node.children)]
    return found


def tree_data(tree: Node) -> dict[str, Any]:
    """Return the tree as a chart reads it."""
    return {
        "name": f"{cut(tree.id, 24)}\n{tree.place}",
        "value": tree.place,
        "itemStyle": {"color": "#e8590c" if tree.is_shown else "#1c7ed6"},
        "children": [tree_data(child) for child in tree.children],
    }


def _grown(root: StoredEvent, children: Mapping[str, Sequence[StoredEvent]], shown: StoredEvent) -> Node:
    tree = Node(root.topic, root.offset, root.id, root is shown)
    todo = deque([tree])
    seen = {(root.topic, root.offset)}
    while todo and len(seen) < NODES_MAX:
        node = todo.popleft()
        for event in children.get(node.id, ()):
            if (event.topic, event.offset) not in seen:
                seen.add((event.topic, event.offset))
                child = Node(event.topic, event.offset, event.id, event is shown)
                node.children.append(child)
                todo.append(child)
    return tree
