"""The paper's structures: sharing, TreeGen, and a partial mesh that grows and shrinks."""

from __future__ import annotations

import gc
from itertools import count, product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws_mesh.cngen import CNGen
from skws_mesh.mesh_kinds import MeshChoice, MeshKind, PurgeKind
from skws_mesh.paper import make_mesh
from skws_mesh.paper.execution import PaperMesh
from skws_mesh.paper.join_operator import Buffer, Producer, tree_gen
from skws_mesh.tree import NodeOrder, Tree
from skws_purging.composites import MeshTuple, end_of
from skws_schema.model import Schema
from skws_windows.window import FOREVER, TimeWindow, Unbounded, Window
from tests.mesh.paper_meshes import LENGTH, joins, tuple_of
from tests.mesh.test_networks import TERNARY, schema_of
from tests.strategies import examples, schemas

WINDOW = TimeWindow(LENGTH)


CHAIN = schema_of(3, [(0, 1), (1, 2)])


def paper_mesh(
    generator: CNGen,
    mesh: MeshKind,
    purge: PurgeKind = PurgeKind.LAZY,
    demand: bool = True,
    window: Window = WINDOW,
) -> PaperMesh:
    return make_mesh(generator, window, MeshChoice(mesh, purge, demand))


@pytest.mark.parametrize("demand", [True, False])
def test_the_papers_schema_has_1536_operators(demand: bool) -> None:
    mesh = paper_mesh(CNGen(TERNARY, 2, 5), MeshKind.FULL, demand=demand)
    assert mesh.operators == 1536


def test_a_forest_shares_no_joins() -> None:
    generator = CNGen(TERNARY, 2, 4)
    forest = paper_mesh(generator, MeshKind.FOREST)
    networks = list(generator.networks())
    assert len(joins(forest)) == sum(len(tree.relations) - 1 for tree in networks)
    assert all(len(join.parents) == (not join.complete) for join in joins(forest))


@given(schemas(max_relations=3), st.integers(1, 2), st.sampled_from([MeshKind.FULL, MeshKind.FOREST]))
@examples(40)
def test_tree_gen_returns_the_tree_of_every_operator(schema: Schema, slots: int, kind: MeshKind) -> None:
    generator = CNGen(schema, slots, 4)
    mesh = paper_mesh(generator, kind)
    networks = list(generator.networks())
    roots = [source for source in mesh.sources.values() if source.complete]
    trees = [tree_gen(operator, generator) for operator in (*roots, *joins(mesh)) if operator.complete]
    assert sorted(trees) == sorted(networks)
    prefixes = {_prefix(tree, size) for tree in networks for size in range(2, len(tree.relations) + 1)}
    assert {tree_gen(join, generator) for join in joins(mesh)} == prefixes


def _prefix(tree: Tree, size: int) -> Tree:
    """The first nodes of a tree, in the order in which CNGen adds them."""
    prefix = Tree.single(tree.relations[0], tree.keywords[0])
    for node in range(1, size):
        depth = prefix.path.index(tree.parents[node])
        prefix = prefix.grow(
            depth, tree.edges[node], tree.relations[node], tree.keywords[node], tree.elements[node]
        )
    return prefix


@pytest.mark.parametrize("purge", list(PurgeKind))
def test_a_partial_mesh_grows_and_shrinks_with_output(purge: PurgeKind) -> None:
    mesh = paper_mesh(CNGen(CHAIN, 2, 3), MeshKind.PARTIAL, purge)
    assert mesh.operators == 0
    mesh.insert(tuple_of(0, 1, start=1))
    with_root = mesh.operators
    assert with_root > 0
    assert {type(join.left).__name__ for join in joins(mesh)} == {"TupleSource"}
    mesh.insert(tuple_of(1, 0, start=5))
    assert mesh.operators > with_root
    for join in joins(mesh):
        assert join.left.out.entries, "an operator without left input"
    assert len(mesh.insert(tuple_of(2, 2, start=6))) == 1
    mesh.purge(11)
    assert mesh.operators == 0
    assert mesh.live_tuples == 2


@st.composite
def arrivals(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Lists of (relation, keywords, value), many of which join, that Hypothesis can shrink."""
    random = Random(draw(st.integers(0, 10**6)))
    size = draw(st.integers(0, 40))
    return [(random.randrange(3), random.choice([0, 0, 1, 2]), random.randrange(2)) for _ in range(size)]


@given(arrivals())
@examples(60)
def test_a_partial_mesh_has_operators_exactly_for_left_input(
    stream: list[tuple[int, int, int]],
) -> None:
    generator = CNGen(CHAIN, 2, 4)
    mesh = paper_mesh(generator, MeshKind.PARTIAL, PurgeKind.EAGER)
    for start, (relation, keywords, value) in zip(count(1), stream, strict=False):
        mesh.purge(start)
        mesh.insert(tuple_of(relation, keywords, start, value))
        roots = [s for node, s in mesh.sources.items() if node in generator.roots]
        operators: list[Producer] = [*roots, *joins(mesh)]
        for operator in operators:
            extension_count = (
                0 if operator.complete else len(generator.extensions(tree_gen(operator, generator)))
            )
            assert len(operator.parents) == (extension_count if operator.out.entries else 0)


@given(arrivals(), st.data())
@examples(60)
def test_eager_purging_leaves_no_dead_tuple(stream: list[tuple[int, int, int]], data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([MeshKind.FOREST, MeshKind.FULL, MeshKind.PARTIAL]))
    mesh = paper_mesh(CNGen(CHAIN, 2, 4), kind, PurgeKind.EAGER, data.draw(st.booleans()))
    for start, (relation, keywords, value) in zip(count(1, 2), stream, strict=False):
        mesh.insert(tuple_of(relation, keywords, start, value))
        mesh.purge(start)
        assert all(m.end > start for join in joins(mesh) for members in join.out.entries for m in members)


@pytest.mark.parametrize("purge", list(PurgeKind))
@pytest.mark.parametrize("mesh", [MeshKind.FOREST, MeshKind.FULL, MeshKind.PARTIAL])
def test_a_negative_tuple_removes_partials_that_contain_it(mesh: MeshKind, purge: PurgeKind) -> None:
    running = paper_mesh(CNGen(CHAIN, 2, 3), mesh, purge, demand=False)
    first, middle = tuple_of(0, 1, start=1), tuple_of(1, 0, start=2)
    running.insert(first)
    running.insert(middle)
    assert len(running.insert(tuple_of(2, 2, start=3))) == 1
    running.purge(4)
    assert running.partials
    running.end(first, 4)
    assert running.partials == 0
    running.end(middle, 4)
    assert running.live_tuples == 1


@given(schemas(max_relations=3), st.integers(1, 3), st.lists(st.floats(0, 1), min_size=3, max_size=3))
@examples(40)
def test_the_rarest_keyword_is_in_every_root(schema: Schema, slots: int, frequencies: list[float]) -> None:
    order = NodeOrder.default(slots, frequencies[:slots])
    mesh = paper_mesh(CNGen(schema, slots, 3, order=order), MeshKind.FULL)
    rarest = frequencies[:slots].index(min(frequencies[:slots]))
    roots = [s for s in mesh.sources.values() if s.parents or s.complete]
    assert all(root.keywords >> rarest & 1 for root in roots)


def test_roots_are_ranked_by_keyword_count_then_rarity() -> None:
    order = NodeOrder.default(3, [0.5, 0.1, 0.3])
    ranked = sorted(range(8), key=lambda k: -order.root_rank(0, k))
    assert ranked == [0b111, 0b110, 0b011, 0b101, 0b010, 0b100, 0b001, 0b000]


def test_added_relations_rank_below_earlier_ones() -> None:
    order = NodeOrder.default(3, grown=((2, 1), (3, 2)))
    roots = [[order.root_rank(relation, k) for k in range(1, 8)] for relation in range(4)]
    assert min(roots[0] + roots[1]) > max(roots[2])
    assert min(roots[2]) > max(roots[3])
    labels = [[order.label(edge, k) for k in range(8)] for edge in range(6)]
    assert min(labels[0] + labels[1]) > max(labels[2] + labels[3])
    assert min(labels[2] + labels[3]) > max(labels[4] + labels[5])


@pytest.mark.parametrize("kind", list(MeshKind))
def test_no_result_contains_a_tuple_twice(kind: MeshKind) -> None:
    # Figure 3.7: a - t - x - t - b is a tree over the schema, but both t are the same tuple.
    mesh = make_mesh(CNGen(schema_of(2, [(0, 1)]), 2, 5), WINDOW, MeshChoice(kind))
    t = tuple_of(1, 0, start=1)
    for new in (tuple_of(0, 1, start=1), t, tuple_of(0, 0, start=1)):
        assert not mesh.insert(new)
    ((_, members),) = mesh.insert(tuple_of(0, 2, start=1))
    assert members[1] is t
    assert len(mesh.insert(tuple_of(1, 0, start=1))) == 1 + 2


MODES = list(product([MeshKind.FOREST, MeshKind.FULL, MeshKind.PARTIAL], PurgeKind, [True, False]))


def partials(mesh: PaperMesh) -> list[tuple[MeshTuple, ...]]:
    return [members for join in joins(mesh) for members in join.out.entries]


def test_discarded_entries_are_removed_from_buffer_indexes() -> None:
    buffer = Buffer()
    index = buffer.index(0, 0)
    first, second = (tuple_of(0, 1, start=1),), (tuple_of(0, 1, start=2),)
    buffer.add(first, 1, end_of(first))
    buffer.add(second, 2, end_of(second))
    assert index == {1: {first: 1, second: 2}}
    buffer.discard(first)
    assert index == {1: {second: 2}}
    buffer.discard(second)
    assert index == {}


def test_a_buffer_drops_entries_that_end_by_the_horizon() -> None:
    buffer = Buffer()
    dead, alive = (tuple_of(0, 1, start=1),), (tuple_of(0, 1, start=2),)
    for members in (dead, alive):
        buffer.add(members, 1, end_of(members))
    assert not buffer.drop_dead(LENGTH)
    assert buffer.drop_dead(LENGTH + 1)
    assert list(buffer.entries) == [alive]


@pytest.mark.parametrize(("kind", "purge", "demand"), MODES)
def test_a_mesh_without_live_tuples_is_empty(kind: MeshKind, purge: PurgeKind, demand: bool) -> None:
    mesh = paper_mesh(CNGen(CHAIN, 2, 3), kind, purge, demand)
    for relation, keywords, start in ((2, 2, 1), (0, 1, 2), (1, 0, 3)):
        mesh.insert(tuple_of(relation, keywords, start))
    assert mesh.partials
    mesh.purge(3 + LENGTH)
    assert (mesh.live_tuples, mesh.partials) == (0, 0)


@pytest.mark.parametrize(("kind", "purge", "demand"), MODES)
def test_deleted_tuples_leave_a_mesh_without_a_window(kind: MeshKind, purge: PurgeKind, demand: bool) -> None:
    mesh = paper_mesh(CNGen(CHAIN, 2, 3), kind, purge, demand, Unbounded())
    for tick in range(3_000):
        deleted = MeshTuple(tick % 3, (1,), tick, FOREVER, tick % 3)
        mesh.insert(deleted)
        mesh.end(deleted, tick + 1)
        mesh.purge(tick + 1)
    assert mesh.live_tuples == 0
    gc.collect()
    assert sum(isinstance(each, MeshTuple) for each in gc.get_objects()) < 1_500


Steps = list[tuple[int, int, int, int]]  # relation, keywords, value, ticks since the previous arrival


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from([0, 0, 1, 2]), st.integers(1, 2), st.integers(0, 4)),
        max_size=40,
    ),
    st.sampled_from(MODES),
)
@examples(60)
def test_dead_tuples_are_bounded_in_every_mode(stream: Steps, mode: tuple[MeshKind, PurgeKind, bool]) -> None:
    mesh, now = paper_mesh(CNGen(CHAIN, 2, 4), *mode), 0
    for relation, keywords, value, gap in stream:
        for _ in range(gap):
            now += 1
            mesh.purge(now)
            assert all(m.end + 2 * LENGTH > now for members in partials(mesh) for m in members)
        mesh.insert(tuple_of(relation, keywords, now, value))


def test_a_running_operator_is_purged_every_window() -> None:
    mesh = paper_mesh(CNGen(CHAIN, 2, 3), MeshKind.FULL, demand=False)
    for now in range(1, 6 * LENGTH):
        mesh.purge(now)
        # No tuple of c arrives, so nothing ever probes the output of a and b.
        mesh.insert(tuple_of(now % 2, 1 - now % 2, start=now))
        assert all(m.end + 2 * LENGTH > now for members in partials(mesh) for m in members)
    assert partials(mesh)
