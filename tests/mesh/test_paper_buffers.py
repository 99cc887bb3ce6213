"""Buffers of the paper's meshes: tuples leave them in time, and no others do."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws_mesh.cngen import CNGen
from skws_mesh.kinds import MeshKind, PurgeKind
from skws_mesh.paper import make_mesh
from skws_mesh.paper.execution import PaperMesh
from skws_mesh.paper.operator import Buffer
from skws_purging.tuples import StreamTuple, end_of
from skws_schema.model import Attribute, AttributeType, Join, Relation, Schema
from skws_windows.window import TimeWindow
from tests.strategies import examples

LENGTH = 10
_KIND = (Attribute("x", AttributeType.INTEGER),)
A, B, C = (Relation(name, _KIND) for name in "abc")
AB, BC = Join("ab", "a", "b", (("x", "x"),)), Join("bc", "b", "c", (("x", "x"),))
CHAIN = Schema("chain", (A, B, C), (AB, BC))
MODES = list(product([MeshKind.FOREST, MeshKind.FULL, MeshKind.PARTIAL], PurgeKind, [True, False]))


def tuple_of(relation: int, keywords: int, start: int, value: int = 1) -> StreamTuple:
    return StreamTuple(relation, (value,), start, start + LENGTH, keywords)


def mesh_of(kind: MeshKind, purge: PurgeKind, demand: bool, size: int = 3) -> PaperMesh:
    return make_mesh(CNGen(CHAIN, 2, size), TimeWindow(LENGTH), kind, purge, demand)


def partials(mesh: PaperMesh) -> list[tuple[StreamTuple, ...]]:
    joins = [join for source in mesh.sources.values() for join in source.above()]
    return [members for join in joins for members in join.out.entries]


def test_what_leaves_a_buffer_leaves_its_indexes() -> None:
    buffer = Buffer()
    index = buffer.index(0, (0,))
    first, second = (tuple_of(0, 1, start=1),), (tuple_of(0, 1, start=2),)
    buffer.add(first, 1, end_of(first))
    buffer.add(second, 2, end_of(second))
    assert index == {1: {first: 1, second: 2}}
    buffer.discard(first)
    assert index == {1: {second: 2}}
    buffer.discard(second)
    assert index == {}


def test_a_buffer_drops_what_ends_at_the_horizon_and_keeps_what_was_prolonged() -> None:
    buffer = Buffer()
    dead, prolonged = (tuple_of(0, 1, start=1),), (tuple_of(0, 1, start=1),)
    for members in (dead, prolonged):
        buffer.add(members, 1, end_of(members))
    prolonged[0].end = 50
    assert not buffer.drop_dead(LENGTH)
    assert buffer.drop_dead(LENGTH + 1)
    assert list(buffer.entries) == [prolonged]


@pytest.mark.parametrize(("kind", "purge", "demand"), MODES)
def test_partials_of_a_prolonged_tuple_live_on(kind: MeshKind, purge: PurgeKind, demand: bool) -> None:
    mesh = mesh_of(kind, purge, demand)
    short = StreamTuple(0, (1,), 1, 4, 1)
    for new in (short, tuple_of(1, 0, start=2), tuple_of(2, 2, start=2, value=9)):
        assert not mesh.insert(new)
    mesh.purge(3)
    assert not mesh.revive(short, 1 + LENGTH)
    mesh.purge(6)
    assert len(mesh.insert(tuple_of(2, 2, start=7))) == 1


@pytest.mark.parametrize(("kind", "purge", "demand"), MODES)
def test_a_result_that_was_over_is_not_retracted(kind: MeshKind, purge: PurgeKind, demand: bool) -> None:
    mesh = mesh_of(kind, purge, demand)
    last = tuple_of(2, 2, start=9)
    assert not mesh.insert(tuple_of(0, 1, start=1))
    assert not mesh.insert(tuple_of(1, 0, start=8))
    assert len(mesh.insert(last)) == 1
    # Late tuples may come, so all is still there.
    mesh.purge(9)
    assert mesh.end(last, 1 + LENGTH) == []


@pytest.mark.parametrize(("kind", "purge", "demand"), MODES)
def test_without_a_live_tuple_nothing_is_held(kind: MeshKind, purge: PurgeKind, demand: bool) -> None:
    mesh = mesh_of(kind, purge, demand)
    for relation, keywords, start in ((2, 2, 1), (0, 1, 2), (1, 0, 3)):
        mesh.insert(tuple_of(relation, keywords, start))
    assert mesh.partials
    mesh.purge(3 + LENGTH)
    assert (mesh.live_tuples, mesh.partials) == (0, 0)


Steps = list[tuple[int, int, int, int]]  # relation, keywords, value, ticks since the one before


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from([0, 0, 1, 2]), st.integers(1, 2), st.integers(0, 4)),
        max_size=40,
    ),
    st.sampled_from(MODES),
)
@examples(60)
def test_the_bound_on_dead_tuples_needs_no_demand(
    stream: Steps, mode: tuple[MeshKind, PurgeKind, bool]
) -> None:
    mesh, now = mesh_of(*mode, size=4), 0
    for relation, keywords, value, gap in stream:
        for _ in range(gap):
            now += 1
            mesh.purge(now)
            assert all(m.end + 2 * LENGTH > now for members in partials(mesh) for m in members)
        mesh.insert(tuple_of(relation, keywords, now, value))


def test_a_running_operator_is_cleaned_window_after_window() -> None:
    mesh = mesh_of(MeshKind.FULL, PurgeKind.LAZY, demand=False)
    for now in range(1, 6 * LENGTH):
        mesh.purge(now)
        # No tuple of c comes, so nothing ever probes what a and b give.
        mesh.insert(tuple_of(now % 2, 1 - now % 2, start=now))
        assert all(m.end + 2 * LENGTH > now for members in partials(mesh) for m in members)
    assert partials(mesh)
