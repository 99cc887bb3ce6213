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
def test_known_counts(schema: Schema, keywords: int, size: int, count: int) -> None:
    assert sum(1 for _ in CNGen(schema, keywords, size).networks()) == count


@given(
    schemas(max_relations=3),
    st.integers(1, 3),
    st.integers(1, 4),
    st.lists(st.floats(0, 1), min_size=3, max_size=3),
)
@examples(100)
def test_equals_brute_force(schema: Schema, keywords: int, size: int, frequencies: list[float]) -> None:
    searchable = [((1 << keywords) - 1) if r.search else 0 for r in schema.relations]
    # Brute force builds all labelled trees, whose number explodes.
    while (len(schema.joins) * 2 << keywords) ** (size - 1) * size > 2_000:
        size -= 1
    order = NodeOrder.default(keywords, frequencies[:keywords])
    found = [canonical(tree) for tree in CNGen(schema, keywords, size, searchable, order).networks()]
    assert len(found) == len(set(found)), "a duplicate"
    assert set(found) == set(brute_force(schema, keywords, size, searchable))


def test_star_of_equal_keyword_nodes_from_the_paper() -> None:
    """(S{k1}, T{k2}, U{k2}, T{k3}): two interior nodes have the same keyword (Section 3.2)."""
    schema = schema_of(3, [(0, 1), (1, 2)])
    found = {CandidateNetwork.of(t).text(schema, ["k1", "k2", "k3"]) for t in CNGen(schema, 3, 4).networks()}
    assert "r0{k1} - r1{k2} - r2{k2} - r1{k3}" in found


def test_text_names_parallel_joins_and_sides_of_self_joins() -> None:
    texts = {CandidateNetwork.of(t).text(PARALLEL, ["a", "b"]) for t in CNGen(PARALLEL, 2, 2).networks()}
    assert {"r0{a} -(j0)- r1{b}", "r0{a} -(j1)- r1{b}"} <= texts
    texts = {CandidateNetwork.of(t).text(SELF_JOIN, ["a", "b"]) for t in CNGen(SELF_JOIN, 2, 2).networks()}
    assert {"r0{a} -(j1)-> r0{b}", "r0{a} <-(j1)- r0{b}", "r0{a} - r1{b}", "r0{a, b}"} <= texts


@given(schemas(max_relations=3), st.integers(1, 3))
@examples(60)
def test_texts_differ_and_do_not_depend_on_the_order(schema: Schema, keywords: int) -> None:
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
    walked = {}
    for node in range(1, len(tree.relations)):
        parent = tree.parents[node]
        graph.add_edge(parent, node)
        walked[parent, node], walked[node, parent] = tree.edges[node], tree.edges[node] ^ 1

    def code(node: int, came: int) -> tuple[object, ...]:
        below = sorted((walked[node, o], code(o, node)) for o in graph[node] if o != came)
        return (tree.relations[node], tree.keywords[node], tuple(below))

    return min(code(root, -1) for root in graph)


def brute_force(
    schema: Schema, keywords: int, size: int, searchable: list[int]
) -> Iterator[tuple[object, ...]]:
    """All labelled trees up to ``size`` nodes, filtered by the definition."""
    everything = (1 << keywords) - 1
    labels = [
        (r, k) for r in range(len(schema.relations)) for k in range(everything + 1) if not k & ~searchable[r]
    ]
    level = {canonical(Tree.single(r, k)): Tree.single(r, k) for r, k in labels}
    for reached in range(1, size + 1):
        yield from (code for code, tree in level.items() if is_network(schema, tree, everything))
        if reached == size:
            return
        grown = {}
        for tree, node in ((t, n) for t in level.values() for n in range(len(t.relations))):
            for edge, k in product(edges_from(schema)[tree.relations[node]], range(everything + 1)):
                if not k & ~searchable[edge.target]:
                    new = tree._replace(
                        relations=(*tree.relations, edge.target),
                        keywords=(*tree.keywords, k),
                        parents=(*tree.parents, node),
                        edges=(*tree.edges, edge.id),
                    )
                    grown[canonical(new)] = new
        level = grown


def is_network(schema: Schema, tree: Tree, everything: int) -> bool:
    carried = list(tree.keywords)
    total = 0
    for k in carried:
        total |= k
    around: list[list[int]] = [[] for _ in carried]
    for node in range(1, len(carried)):
        around[tree.parents[node]].append(tree.edges[node])
        around[node].append(tree.edges[node] ^ 1)
    for leaving in around:
        if any(edges(schema)[e].at_most_one and leaving.count(e) > 1 for e in leaving):
            return False
    leaves = [n for n in range(len(carried)) if len(around[n]) == 1]
    rest = [[k for m, k in enumerate(carried) if m != leaf] for leaf in leaves]
    minimal = all(
        any(
            carried[leaf] >> b & 1 and not any(k >> b & 1 for k in others)
            for b in range(keywords_of(everything))
        )
        for leaf, others in zip(leaves, rest, strict=True)
    )
    return total == everything and minimal


def keywords_of(everything: int) -> int:
    return everything.bit_length()


SEQUENCES: dict[int, list[tuple[int, ...]]] = {
    1: [()],
    2: [(), (0b01, 0b10)],
    3: [(), (0b001, 0b110), (0b001, 0b010, 0b100), (0b101, 0b010)],
}


@given(schemas(max_relations=4), st.integers(1, 3), st.integers(1, 5), st.data())
@examples(300)
def test_equals_what_is_made(schema: Schema, keywords: int, size: int, data: st.DataObject) -> None:
    bitmaps = st.integers(0, (1 << keywords) - 1)
    several = len(schema.relations)
    searchable = data.draw(st.lists(bitmaps, min_size=several, max_size=several))
    groups = data.draw(st.sampled_from(SEQUENCES[keywords]))
    if len(schema.joins) > 2:
        size = min(size, 4)
    without = data.draw(st.sets(st.integers(0, several - 1), max_size=several - 1))
    order = KeywordSequence(groups)
    generator = CNGen(schema, keywords, size, searchable, sequence=order, without=without)
    made = [0] * size
    for tree in generator.networks():
        made[len(tree.relations) - 1] += 1
    assert count_networks(generator) == tuple(made)


def test_counts_more_than_could_be_made() -> None:
    found = count_networks(CNGen(Load(relations=30).schema(), 8, 5))
    assert sum(found) == 29_649_863_920_788


def test_gives_up_where_nodes_differ_too_much() -> None:
    schema = Load(relations=30).schema()
    with within_steps(1_000), pytest.raises(TooManyKindsError):
        count_networks(CNGen(schema, 8, 5, [1 << n % 8 for n in range(30)]))


@given(st.integers(0, 1 << 10))
def test_subsets_are_all_bitmaps_contained_in_ascending_order(bitmap: int) -> None:
    assert list(subsets(bitmap)) == [b for b in range(bitmap + 1) if not b & ~bitmap]


@given(st.integers(0, 4), st.data())
def test_every_node_of_a_query_is_in_and_no_other(slots: int, data: st.DataObject) -> None:
    searchable = data.draw(st.lists(st.integers(0, (1 << slots) - 1), min_size=3, max_size=3))
    expected = [ExpandedNode(r, k) for r in range(3) for k in range(1 << slots) if not k & ~searchable[r]]
    assert list(expanded_nodes(searchable)) == expected
