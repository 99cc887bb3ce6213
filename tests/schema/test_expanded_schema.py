from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from skws_mesh.cngen import ExpandedNode, expanded_nodes, subsets


@given(st.integers(0, 1 << 10))
def test_subsets_are_all_bitmaps_contained_in_ascending_order(bitmap: int) -> None:
    assert list(subsets(bitmap)) == [b for b in range(bitmap + 1) if not b & ~bitmap]


def test_nodes_stay_within_what_a_relation_can_contain() -> None:
    nodes = list(expanded_nodes([0b01, 0b11, 0]))
    assert nodes == [ExpandedNode(r, k) for r, k in ((0, 0), (0, 1), *((1, b) for b in range(4)), (2, 0))]
    assert nodes == sorted(nodes)


@given(st.integers(0, 4), st.data())
def test_every_node_of_a_query_is_in_and_no_other(slots: int, data: st.DataObject) -> None:
    searchable = data.draw(st.lists(st.integers(0, (1 << slots) - 1), min_size=3, max_size=3))
    expected = [ExpandedNode(r, k) for r in range(3) for k in range(1 << slots) if not k & ~searchable[r]]
    assert list(expanded_nodes(searchable)) == expected


def test_relations_that_can_contain_all_keywords_have_every_node() -> None:
    assert len(list(expanded_nodes([0b111] * 3))) == 3 * 8
