"""Demand-driven execution: every transition of Figure 4.1, catching up, and the bound on dead tuples."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws_mesh.cngen import CNGen
from skws_mesh.mesh_kinds import MeshChoice, MeshKind, PurgeKind
from skws_mesh.paper import make_mesh
from skws_mesh.paper.join_operator import Demand, DemandEvent, JoinOperator, Producer, State
from skws_mesh.paper.paper_meshes import DemandDrivenMesh
from skws_purging.composites import Members, MeshTuple
from skws_purging.lifespans import ALWAYS
from skws_purging.policy import LazyPurging
from skws_schema.model import Attribute, AttributeType, Join, Relation, Schema
from skws_windows.window import FOREVER, TimeWindow
from tests.mesh.paper_meshes import LENGTH, joins, tuple_of
from tests.strategies import examples

_KIND = (Attribute("x", AttributeType.INTEGER),)
STAR = Schema(
    "star",
    tuple(Relation(f"r{i}", _KIND) for i in range(4)),
    tuple(Join(f"j{i}", "r0", f"r{i}", (("x", "x"),)) for i in range(1, 4)),
)


def star_mesh(size: int = 3) -> DemandDrivenMesh:
    mesh = make_mesh(CNGen(STAR, 2, size), TimeWindow(LENGTH), MeshChoice(MeshKind.FULL, PurgeKind.LAZY))
    assert isinstance(mesh, DemandDrivenMesh)
    return mesh


TO_STATE: dict[State, list[DemandEvent]] = {
    State.IDLE: [],
    State.STARVED: [DemandEvent.PSTART],
    State.UNWANTED: [DemandEvent.FILLED],
    State.RUNNING: [DemandEvent.FILLED, DemandEvent.PSTART],
}


@pytest.mark.parametrize(
    ("state", "history", "event", "number", "next_state"),
    [
        (State.RUNNING, [], DemandEvent.PSTART, 1, State.RUNNING),
        (State.RUNNING, [DemandEvent.PSTART], DemandEvent.PSTOP, 1, State.RUNNING),
        (State.RUNNING, [], DemandEvent.EMPTIED, 2, State.STARVED),
        (State.RUNNING, [], DemandEvent.PSTOP, 3, State.UNWANTED),
        (State.STARVED, [], DemandEvent.PSTART, 4, State.STARVED),
        (State.STARVED, [DemandEvent.PSTART], DemandEvent.PSTOP, 4, State.STARVED),
        (State.STARVED, [], DemandEvent.PSTOP, 5, State.IDLE),
        (State.UNWANTED, [], DemandEvent.EMPTIED, 6, State.IDLE),
        (State.IDLE, [], DemandEvent.FILLED, 7, State.UNWANTED),
        (State.IDLE, [], DemandEvent.PSTART, 8, State.STARVED),
        (State.STARVED, [], DemandEvent.FILLED, 9, State.RUNNING),
        (State.UNWANTED, [], DemandEvent.PSTART, 10, State.RUNNING),
    ],
)
def test_demand_transitions_follow_figure_4_1(
    state: State, history: list[DemandEvent], event: DemandEvent, number: int, next_state: State
) -> None:
    demand = Demand(wanted=False)
    for past_event in (*TO_STATE[state], *history):
        demand.follow(past_event)
    assert demand.state is state
    assert (demand.follow(event), demand.state) == (number, next_state)


@pytest.mark.parametrize(
    ("state", "event"),
    [
        (State.IDLE, DemandEvent.PSTOP),
        (State.IDLE, DemandEvent.EMPTIED),
        (State.UNWANTED, DemandEvent.PSTOP),
        (State.UNWANTED, DemandEvent.FILLED),
        (State.STARVED, DemandEvent.EMPTIED),
        (State.RUNNING, DemandEvent.FILLED),
    ],
)
def test_impossible_demand_events_are_rejected(state: State, event: DemandEvent) -> None:
    demand = Demand(wanted=False)
    for past_event in TO_STATE[state]:
        demand.follow(past_event)
    with pytest.raises(KeyError):
        demand.follow(event)


def test_below_the_output_operator_only_right_input_changes_the_state() -> None:
    demand = Demand(wanted=True)
    assert demand.state is State.STARVED
    assert [demand.follow(e) for e in (DemandEvent.FILLED, DemandEvent.EMPTIED, DemandEvent.FILLED)] == [
        9,
        2,
        9,
    ]


def test_joins_without_demand_store_nothing_and_catch_up_later() -> None:
    mesh = star_mesh()
    mesh.insert(tuple_of(1, 1, start=1))
    mesh.insert(tuple_of(0, 0, start=2))
    assert mesh.partials == 0, "without the second keyword, there is no demand for r1{a} - r0{}"
    assert not any(join.running for join in joins(mesh))
    assert len(mesh.insert(tuple_of(2, 2, start=3))) == 1
    assert mesh.partials > 0


def test_a_restarted_operator_neither_repeats_nor_loses_results() -> None:
    mesh = star_mesh()
    mesh.insert(tuple_of(1, 1, start=1))
    mesh.insert(tuple_of(0, 0, start=2))
    first = tuple_of(2, 2, start=3)
    assert len(mesh.insert(first)) == 1
    mesh.purge(4)
    mesh.end(first, 4)
    assert not any(join.running for join in joins(mesh))
    mesh.insert(tuple_of(0, 0, start=5))
    mesh.insert(tuple_of(1, 1, start=6))
    results = mesh.insert(tuple_of(3, 2, start=7))
    assert len(results) == len({members for _, members in results}) == 4


Arrival = tuple[int, int, int, int]  # relation, keywords, value, ticks since the previous arrival


@st.composite
def arrivals(draw: st.DrawFn) -> list[Arrival]:
    """Lists that Hypothesis can shrink, so dense that operators sleep and wake up with live tuples."""
    random = Random(draw(st.integers(0, 10**6)))
    pause = draw(st.sampled_from([1, 3, 12]))
    return [
        (random.randrange(4), random.choice([0, 0, 1, 2]), random.choice([0, 0, 1]), random.randint(0, pause))
        for _ in range(draw(st.integers(0, 50)))
    ]


def assert_states_agree(mesh: RecordingMesh) -> None:
    """Parents and right sources determine the states, and sleeping operators with output are queued."""
    policy = mesh.lazy
    for join in joins(mesh):
        running = sum(parent.running for parent in join.parents.values())
        assert join.demand.running_parents == running + join.complete
        has_input = bool(join.right.out.entries)
        assert join.demand.state.value == (running + join.complete > 0, has_input)
        assert join.running == (join.demand.state is State.RUNNING)
        assert (join in join.left.awake.values()) == join.running
        assert not (join.running and join in policy.queue)
        assert join.running or not join.out.entries or join in policy.queue


class RecordingMesh(DemandDrivenMesh):
    """Records what each join produces, and from which arrival."""

    def __init__(self, generator: CNGen, policy: LazyPurging[Producer]) -> None:
        self.lazy = policy
        self.produced: dict[JoinOperator, list[tuple[Members, int]]] = {}
        super().__init__(generator, TimeWindow(LENGTH), policy)

    def _produce(self, join: JoinOperator, members: Members, arrival: int) -> None:
        self.produced.setdefault(join, []).append((members, arrival))
        super()._produce(join, members, arrival)


def recording_mesh(size: int) -> RecordingMesh:
    return RecordingMesh(CNGen(STAR, 2, size), LazyPurging(by_demand=True))


@given(arrivals(), st.sampled_from([3, 4]))
@examples(160)
def test_demand_states_are_consistent_and_output_is_unique_and_ordered(
    stream: list[Arrival], size: int
) -> None:
    """Dead tuples are stored for at most two windows."""
    mesh, now = recording_mesh(size), 1
    for relation, keywords, value, gap in stream:
        for _ in range(gap):
            now += 1
            mesh.purge(now)
            entries = [members for join in joins(mesh) for members in join.out.entries]
            assert all(m.end + 2 * LENGTH > now for members in entries for m in members)
        mesh.insert(tuple_of(relation, keywords, now, value))
        assert_states_agree(mesh)
    for produced in mesh.produced.values():
        assert len({members for members, _ in produced}) == len(produced)
        assert [arrival for _, arrival in produced] == sorted(arrival for _, arrival in produced)


def test_a_woken_operator_catches_up_after_its_left_child() -> None:
    mesh = recording_mesh(4)
    last = tuple_of(0, 2, start=1)
    # r1{a} - r0{} - r2{} - r0{b} is complete, then all operators sleep.
    for new in (last, tuple_of(1, 1, start=1), tuple_of(0, 0, start=1), tuple_of(2, 0, start=1)):
        mesh.insert(new)
    mesh.purge(2)
    mesh.end(last, 2)
    assert not any(join.running for join in joins(mesh))
    # While they sleep, input arrives on both sides of the join with r2.
    mesh.insert(tuple_of(1, 1, start=3))
    mesh.insert(tuple_of(2, 0, start=4))
    assert len(mesh.insert(tuple_of(0, 2, start=5))) == 2 + 4
    for produced in mesh.produced.values():
        assert [arrival for _, arrival in produced] == sorted(arrival for _, arrival in produced)


def test_the_buffer_of_a_sleeping_operator_is_cleared_after_a_window() -> None:
    mesh = star_mesh()
    for relation, keywords, start in ((1, 1, 1), (0, 0, 2), (2, 2, 3)):
        mesh.insert(tuple_of(relation, keywords, start))
    ((_, last),) = [(t.start, t) for s in mesh.sources.values() for (t,) in s.out.entries if t.keywords == 2]
    mesh.purge(4)
    mesh.end(last, 4)
    mesh.insert(tuple_of(3, 0, start=12))
    mesh.purge(13)
    assert mesh.partials > 0, "dead since 12 at the latest, but asleep for less than a window"
    mesh.purge(4 + LENGTH)
    assert mesh.partials == 0
    assert mesh.live_tuples == 1


@pytest.mark.parametrize("mesh", [MeshKind.FULL, MeshKind.PARTIAL, MeshKind.FOREST])
@pytest.mark.parametrize("demand", [True, False])
def test_static_tuples_do_not_retain_dead_partials(mesh: MeshKind, demand: bool) -> None:
    relations = (STAR.relations[0], replace(STAR.relations[1], table=True), *STAR.relations[2:])
    generator = CNGen(Schema("static", relations, STAR.joins), 2, 3)
    running = make_mesh(generator, TimeWindow(LENGTH), MeshChoice(mesh, PurgeKind.LAZY, demand))
    running.insert(MeshTuple(1, (1,), ALWAYS, FOREVER, 1))
    running.insert(MeshTuple(1, (2,), ALWAYS, FOREVER, 2))
    running.insert(tuple_of(0, 0, start=1, value=1))
    running.insert(tuple_of(0, 0, start=1, value=2))
    assert running.partials > 0
    for now in range(2, 4 * LENGTH):
        running.purge(now)
        if now % 4 == 0:
            running.insert(tuple_of(0, 0, start=now, value=3))
    assert running.partials == 0, "joins stay awake, but nothing probes their output"
