"""The recipients of each event in a follow graph agree with a plain model, and a query changes nothing."""

from copy import deepcopy

from hypothesis import given
from hypothesis import strategies as st

from broker.gateways.event_source.follow_graph import FollowGraph, recipients
from broker.gateways.event_source.lines import parse_source_line
from tests.broker.gateways.event_source.maze import expected, random_lines

IDS = [str(n) for n in range(1, 8)]
SEEDS = st.integers(min_value=0, max_value=2**32)


def routed(lines: list[str], graph: FollowGraph) -> dict[str, list[str]]:
    got: dict[str, list[str]] = {id_: [] for id_ in IDS}
    for line in lines:
        event = parse_source_line(line.encode())
        graph.apply(event)
        before = deepcopy(graph.followers)
        ids = recipients(event, graph.followers)
        assert graph.followers == before
        for id_ in IDS if ids is None else [id_.decode() for id_ in ids]:
            got[id_].append(line)
    return got


@given(SEEDS, st.integers(min_value=0, max_value=200))
def test_events_go_to_the_clients_of_the_plain_model(seed: int, count: int) -> None:
    lines = random_lines(count, len(IDS), seed=seed, weights=(4, 3, 1, 2, 4))
    graph, follows = FollowGraph(), {id_: set[str]() for id_ in IDS}
    assert routed(lines, graph) == expected(lines, IDS, follows)
    assert graph.followers == {k.encode(): {one.encode() for one in of} for k, of in follows.items() if of}
    assert graph.edges == sum(map(len, follows.values()))


@given(SEEDS, st.integers(min_value=0, max_value=100), st.integers(min_value=1, max_value=10))
def test_a_graph_in_parts_is_the_graph_again(seed: int, count: int, edges_max: int) -> None:
    graph = FollowGraph()
    routed(random_lines(count, len(IDS), seed=seed, weights=(4, 1, 0, 0, 0)), graph)
    parts = list(graph.parts(edges_max))
    assert parts
    assert all(sum(map(len, part.values())) <= edges_max for part in parts)
    again = FollowGraph()
    for part in parts:
        for followed, followers in part.items():
            again.add(followed, followers)
    assert (again.followers, again.edges) == (graph.followers, graph.edges)
