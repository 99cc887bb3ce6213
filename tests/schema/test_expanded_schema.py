from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schema.expanded import ExpandedNode, ExpandedSchema, subsets
from schema.load import parse_schema

MOVIES = parse_schema(
    """
relations:
  director: {attributes: {did: integer, name: text}}
  movie: {attributes: {mid: integer, did: integer, sequel: integer, title: text}}
  plays: {attributes: {mid: integer}}
joins:
  - director.did = movie.did
  - movie.mid = plays.mid
  - movie.sequel = movie.mid
"""
)


@given(st.integers(0, 1 << 10))
def test_subsets_are_all_bitmaps_contained_in_ascending_order(bitmap: int) -> None:
    assert list(subsets(bitmap)) == [b for b in range(bitmap + 1) if not b & ~bitmap]


def test_nodes_stay_within_what_a_relation_can_contain() -> None:
    expanded = ExpandedSchema(MOVIES, 2, [0b01, 0b11, 0])
    assert expanded.nodes == tuple(
        ExpandedNode(r, k) for r, k in ((0, 0), (0, 1), *((1, b) for b in range(4)), (2, 0))
    )
    assert len(expanded) == len(expanded.nodes)
    assert list(expanded.nodes) == sorted(expanded.nodes)
    assert [node for node in expanded.nodes if node.free] == [ExpandedNode(r, 0) for r in range(3)]


@given(st.integers(0, 4), st.data())
def test_every_node_of_a_query_is_in_and_no_other(slots: int, data: st.DataObject) -> None:
    bitmap = st.integers(0, (1 << slots) - 1)
    expanded = ExpandedSchema(MOVIES, slots, [data.draw(bitmap) for _ in range(3)])
    candidates = [ExpandedNode(r, k) for r in range(4) for k in range(1 << slots)]
    assert [c for c in candidates if c in expanded] == list(expanded.nodes)


def test_whole_expands_every_relation_by_every_set() -> None:
    assert len(ExpandedSchema.whole(MOVIES, 3)) == 3 * 8


def test_neighbours_follow_every_edge_to_every_set() -> None:
    expanded = ExpandedSchema(MOVIES, 1, [1, 1, 0])
    found = [
        (edge.id, node.relation, node.keywords) for edge, node in expanded.neighbours(ExpandedNode(1, 1))
    ]
    assert found == [(1, 0, 0), (1, 0, 1), (2, 2, 0), (4, 1, 0), (4, 1, 1), (5, 1, 0), (5, 1, 1)]


def test_neighbourhood_is_mutual() -> None:
    expanded = ExpandedSchema.whole(MOVIES, 2)
    steps = {(n, t, edge.join, edge.forward) for n in expanded.nodes for edge, t in expanded.neighbours(n)}
    assert {(t, n, join, not forward) for n, t, join, forward in steps} == steps


def test_node_of_a_tuple() -> None:
    expanded = ExpandedSchema(MOVIES, 2, [0b01, 0b11, 0])
    assert expanded.node(1, 0b10) == ExpandedNode(1, 0b10)
    with pytest.raises(ValueError, match="relation 2 cannot contain keywords 1"):
        expanded.node(2, 1)


@pytest.mark.parametrize("searchable", [[0, 0], [0, 0, 4], [0, 0, -1]])
def test_bitmaps_must_fit(searchable: list[int]) -> None:
    with pytest.raises(ValueError, match="bitmap"):
        ExpandedSchema(MOVIES, 2, searchable)
