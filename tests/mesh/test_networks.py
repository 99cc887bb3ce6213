"""CNGen compared with published counts and with brute force."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.load import Load
from skws_mesh.candidate_networks import CandidateNetwork
from skws_mesh.cngen import CNGen, ExpandedNode, TooManyKindsError, count_networks, expanded_nodes, subsets
from skws_mesh.sequence import KeywordSequence
from skws_mesh.tree import NodeOrder, Tree
from skws_schema.budgets import within_steps
from skws_schema.graph import edges, edges_from
from skws_schema.model import Attribute, AttributeType, Join, Relation, Schema
from tests.strategies import examples, schemas


def schema_of(relations: int, joins: list[tuple[int, int]]) -> Schema:
    kind = (Attribute("x", AttributeType.INTEGER),)
    return Schema(
        "s",
        tuple(Relation(f"r{i}", kind) for i in range(relations)),
        tuple(Join(f"j{k}", f"r{a}", f"r{b}", (("x", "x"),)) for k, (a, b) in enumerate(joins)),
    )


TERNARY = schema_of(20, [((i - 1) // 3, i) for i in range(1, 20)])
STAR = schema_of(4, [(0, 1), (1, 2), (1, 3)])
SELF_JOIN = schema_of(2, [(0, 1), (0, 0)])
PARALLEL = schema_of(2, [(0, 1), (0, 1)])


@pytest.mark.parametrize(
    ("schema", "keywords", "size", "count"),
    [
        (TERNARY, 2, 3, 164),
        (TERNARY, 2, 4, 416),
        (TERNARY, 2, 5, 1120),
        (TERNARY, 2, 6, 2858),
        (TERNARY, 3, 3, 2156),
        (TERNARY, 3, 4, 13108),
        (TERNARY, 3, 5, 78874),
        (TERNARY, 4, 3, 23972),
        pytest.param(TERNARY, 4, 4, 340448, marks=pytest.mark.slow),
        (STAR, 2, 3, 22),
        (STAR, 2, 4, 40),
        (STAR, 3, 3, 256),
        (STAR, 3, 4, 1042),
        (SELF_JOIN, 2, 4, 40),
        (SELF_JOIN, 3, 4, 1242),
        (PARALLEL, 2, 4, 30),
    ],
)
def test_network_counts_are_the_published_ones(schema: Schema, keywords: int, size: int, count: int) -> None:
    assert sum(1 for _ in CNGen(schema, keywords, size).networks()) == count


@given(
    schemas(max_relations=3),
    st.integers(1, 3),
    st.integers(1, 4),
    st.lists(st.floats(0, 1), min_size=3, max_size=3),
)
@examples(100)
def test_generated_networks_equal_brute_force(
    schema: Schema, keywords: int, size: int, frequencies: list[float]
) -> None:
    searchable = [((1 << keywords) - 1) if r.search else 0 for r in schema.relations]
    # Brute force builds all labelled trees, whose number explodes.
    while (len(schema.joins) * 2 << keywords) ** (size - 1) * size > 2_000:
        size -= 1
    order = NodeOrder.default(keywords, frequencies[:keywords])
    codes = [canonical(tree) for tree in CNGen(schema, keywords, size, searchable, order).networks()]
    assert len(codes) == len(set(codes)), "a duplicate"
    assert set(codes) == set(brute_force(schema, keywords, size, searchable))


def test_inner_nodes_may_have_the_same_keyword() -> None:
    """(S{k1}, T{k2}, U{k2}, T{k3}): two interior nodes have the same keyword (Section 3.2)."""
    schema = schema_of(3, [(0, 1), (1, 2)])
    texts = {CandidateNetwork.of(t).text(schema, ["k1", "k2", "k3"]) for t in CNGen(schema, 3, 4).networks()}
    assert "r0{k1} - r1{k2} - r2{k2} - r1{k3}" in texts


def test_network_texts_name_parallel_joins_and_sides_of_self_joins() -> None:
    texts = {CandidateNetwork.of(t).text(PARALLEL, ["a", "b"]) for t in CNGen(PARALLEL, 2, 2).networks()}
    assert {"r0{a} -(j0)- r1{b}", "r0{a} -(j1)- r1{b}"} <= texts
    texts = {CandidateNetwork.of(t).text(SELF_JOIN, ["a", "b"]) for t in CNGen(SELF_JOIN, 2, 2).networks()}
    assert {"r0{a} -(j1)-> r0{b}", "r0{a} <-(j1)- r0{b}", "r0{a} - r1{b}", "r0{a, b}"} <= texts


@given(schemas(max_relations=3), st.integers(1, 3))
@examples(60)
def test_network_texts_are_unique_and_independent_of_node_order(schema: Schema, keywords: int) -> None:
    words = ["a", "b", "c"][:keywords]
    texts = []
    for rarest in range(keywords):
        order = NodeOrder.default(keywords, [float(k != rarest) for k in range(keywords)])
        trees = CNGen(schema, keywords, 3, order=order).networks()
        texts.append([CandidateNetwork.of(t).text(schema, words) for t in trees])
    assert all(len(t) == len(set(t)) for t in texts)
    assert all(set(t) == set(texts[0]) for t in texts)


def canonical(tree: Tree) -> tuple[object, ...]:
    """The least code of the free tree over all roots: equal iff isomorphic."""
    graph: nx.Graph[int] = nx.Graph()
    graph.add_nodes_from(range(len(tree.relations)))
    edge_between = {}
    for node in range(1, len(tree.relations)):
        parent = tree.parents[node]
        graph.add_edge(parent, node)
        edge_between[parent, node], edge_between[node, parent] = tree.edges[node], tree.edges[node] ^ 1

    def code(node: int, origin: int) -> tuple[object, ...]:
        child_codes = sorted((edge_between[node, o], code(o, node)) for o in graph[node] if o != origin)
        return (tree.relations[node], tree.keywords[node], tuple(child_codes))

    return min(code(root, -1) for root in graph)


def brute_force(
    schema: Schema, keywords: int, size: int, searchable: list[int]
) -> Iterator[tuple[object, ...]]:
    """All labelled trees up to ``size`` nodes, filtered by the definition."""
    all_keywords = (1 << keywords) - 1
    labels = [
        (r, k)
        for r in range(len(schema.relations))
        for k in range(all_keywords + 1)
        if not k & ~searchable[r]
    ]
    level = {canonical(Tree.single(r, k)): Tree.single(r, k) for r, k in labels}
    for level_size in range(1, size + 1):
        yield from (code for code, tree in level.items() if is_network(schema, tree, all_keywords))
        if level_size == size:
            return
        next_level = {}
        for tree, node in ((t, n) for t in level.values() for n in range(len(t.relations))):
            for edge, k in product(edges_from(schema)[tree.relations[node]], range(all_keywords + 1)):
                if not k & ~searchable[edge.target]:
                    larger_tree = tree._replace(
                        relations=(*tree.relations, edge.target),
                        keywords=(*tree.keywords, k),
                        parents=(*tree.parents, node),
                        edges=(*tree.edges, edge.id),
                    )
                    next_level[canonical(larger_tree)] = larger_tree
        level = next_level


def is_network(schema: Schema, tree: Tree, all_keywords: int) -> bool:
    node_keywords = list(tree.keywords)
    total = 0
    for k in node_keywords:
        total |= k
    incident_edges: list[list[int]] = [[] for _ in node_keywords]
    for node in range(1, len(node_keywords)):
        incident_edges[tree.parents[node]].append(tree.edges[node])
        incident_edges[node].append(tree.edges[node] ^ 1)
    for edges_of_node in incident_edges:
        if any(edges(schema)[e].at_most_one and edges_of_node.count(e) > 1 for e in edges_of_node):
            return False
    leaves = [n for n in range(len(node_keywords)) if len(incident_edges[n]) == 1]
    other_keywords = [[k for m, k in enumerate(node_keywords) if m != leaf] for leaf in leaves]
    minimal = all(
        any(
            node_keywords[leaf] >> b & 1 and not any(k >> b & 1 for k in remaining)
            for b in range(keyword_count(all_keywords))
        )
        for leaf, remaining in zip(leaves, other_keywords, strict=True)
    )
    return total == all_keywords and minimal


def keyword_count(all_keywords: int) -> int:
    return all_keywords.bit_length()


SEQUENCES: dict[int, list[tuple[int, ...]]] = {
    1: [()],
    2: [(), (0b01, 0b10)],
    3: [(), (0b001, 0b110), (0b001, 0b010, 0b100), (0b101, 0b010)],
}


@given(schemas(max_relations=4), st.integers(1, 3), st.integers(1, 5), st.data())
@examples(300)
def test_counted_networks_equal_generated_networks(
    schema: Schema, keywords: int, size: int, data: st.DataObject
) -> None:
    bitmaps = st.integers(0, (1 << keywords) - 1)
    relation_count = len(schema.relations)
    searchable = data.draw(st.lists(bitmaps, min_size=relation_count, max_size=relation_count))
    groups = data.draw(st.sampled_from(SEQUENCES[keywords]))
    if len(schema.joins) > 2:
        size = min(size, 4)
    without = data.draw(st.sets(st.integers(0, relation_count - 1), max_size=relation_count - 1))
    order = KeywordSequence(groups)
    generator = CNGen(schema, keywords, size, searchable, sequence=order, without=without)
    counts = [0] * size
    for tree in generator.networks():
        counts[len(tree.relations) - 1] += 1
    assert count_networks(generator) == tuple(counts)


def test_counting_handles_trillions_of_networks() -> None:
    counts = count_networks(CNGen(Load(relations=30).schema(), 8, 5))
    assert sum(counts) == 29_649_863_920_788


def test_counting_stops_at_too_many_kinds_of_nodes() -> None:
    schema = Load(relations=30).schema()
    with within_steps(1_000), pytest.raises(TooManyKindsError):
        count_networks(CNGen(schema, 8, 5, [1 << n % 8 for n in range(30)]))


@given(st.integers(0, 1 << 10))
def test_subsets_are_all_contained_bitmaps_in_ascending_order(bitmap: int) -> None:
    assert list(subsets(bitmap)) == [b for b in range(bitmap + 1) if not b & ~bitmap]


@given(st.integers(0, 4), st.data())
def test_expanded_nodes_are_exactly_the_searchable_ones(slots: int, data: st.DataObject) -> None:
    searchable = data.draw(st.lists(st.integers(0, (1 << slots) - 1), min_size=3, max_size=3))
    expected = [ExpandedNode(r, k) for r in range(3) for k in range(1 << slots) if not k & ~searchable[r]]
    assert list(expanded_nodes(searchable)) == expected
