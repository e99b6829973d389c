"""Convert the answer to ``chain`` to a tree of causes and effects."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from dashboard.words import cut

__all__ = ["Node", "tree_data", "tree_of"]

_OTHER, _ASKED, _MISSING = "#1c7ed6", "#e8590c", "#868e96"


class Node(Struct):
    """An event in its chain; `offset` is None if the chain names the event but the broker does not find it."""

    depth: int
    id: str
    topic: str = ""
    offset: int | None = None
    is_asked: bool = False
    children: "list[Node]" = field(default_factory=list)

    @property
    def place(self) -> str:
        """Topic and offset of the event, or "not found"."""
        return "not found" if self.offset is None else f"{self.topic} @{self.offset}"


def tree_of(answer: Mapping[str, Any]) -> list[Node]:
    """Return the nodes in reading order, the root first."""
    nodes: list[Node] = []
    shift = 0
    if answer["unknown_parent"] is not None:
        nodes.append(Node(0, answer["unknown_parent"]))
        shift = 1
    asked = (answer["asked"]["topic"], answer["asked"]["offset"])
    path = list(nodes)
    for event in answer["events"]:
        place = (event["topic"], event["offset"])
        node = Node(event["depth"] + shift, event["id"], *place, is_asked=place == asked)
        del path[node.depth :]
        if path:
            path[-1].children.append(node)
        path.append(node)
        nodes.append(node)
    return nodes


def tree_data(node: Node) -> dict[str, Any]:
    """Return a node and its descendants in the form that a chart reads."""
    return {
        "name": f"{cut(node.id, 24)}\n{node.place}",
        "value": node.place,
        "itemStyle": {"color": _MISSING if node.offset is None else _ASKED if node.is_asked else _OTHER},
        "children": [tree_data(child) for child in node.children],
    }
