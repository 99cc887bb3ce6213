"""A mesh of the paper over live tuples: its statistics, and its state after tuples end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from skws.data.batch import Record
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.keywords.stream_engine import StreamEngine
from skws_mesh.backend import Sleep
from skws_mesh.mesh_kinds import MeshChoice, MeshKind
from skws_schema.model import Attribute, AttributeType, Join, Relation, Schema
from skws_windows.window import TimeWindow
from tests.paper_modes import MODES

_COLUMNS = (Attribute("t", AttributeType.TEXT), Attribute("x", AttributeType.INTEGER))
CHAIN = Schema(
    "chain",
    tuple(Relation(name, _COLUMNS, search=("t",)) for name in "abc"),
    (Join("ab", "a", "b", (("x", "x"),)), Join("bc", "b", "c", (("x", "x"),))),
)
PLAN = Plan(CHAIN, parse_query("alpha beta", CHAIN), TimeWindow(10), 3)


def engine_of(mode: MeshChoice) -> StreamEngine:
    return StreamEngine.of(replace(PLAN, mesh=mode))


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_time_advances_within_a_batch(mode: MeshChoice) -> None:
    """The first tuple has expired when the last one arrives; the ones in between join both."""
    stream = [Record(0, 1, ("alpha", 1)), Record(1, 5, ("pad", 1)), Record(2, 9, ("beta", 1))]
    last = Record(2, 14, ("beta", 1))
    engine = engine_of(mode)
    assert [result.start for result in engine.process([*stream, last])] == [9 / 1e6]
    engine.expire(30)
    engine.compact(30)
    assert engine.load().waiting == engine.live_tuples == 0
    assert engine.idle


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_operator_statistics_add_up(mode: MeshChoice) -> None:
    engine = engine_of(mode)
    results = list(
        engine.process([Record(n % 3, n, (("alpha", "pad", "beta")[n % 3], 1)) for n in range(1, 9)])
    )
    assert results
    uses = [use for use in engine.used() if use.waiting]
    load = engine.load()
    assert load.waiting == sum(use.waiting for use in uses) > 0
    assert load.operators >= len(uses)  # trees of a forest share operators
    assert load.live == 8


def test_sleeping_joins_report_the_missing_node() -> None:
    engine = engine_of(MeshChoice(MeshKind.FULL))
    list(engine.process([Record(0, 1, ("alpha", 1)), Record(1, 2, ("pad", 1))]))
    alpha, free, beta = 0b01, 0, 0b10

    def sleep() -> dict[tuple[tuple[int, ...], tuple[int, ...]], Sleep | None]:
        return {(use.tree.relations, use.tree.keywords): use.sleep for use in engine.used()}

    assert sleep()[(0, 1, 2), (alpha, free, beta)] == Sleep((2, beta), unwanted=False)
    assert sleep()[(0, 1), (alpha, beta)] == Sleep((1, beta), unwanted=False)
    assert sleep()[(0, 1), (alpha, free)] == Sleep(None, unwanted=True)
    list(engine.process([Record(2, 3, ("beta", 1))]))
    assert sleep()[(0, 1), (alpha, free)] is None
    assert sleep()[(0, 1), (alpha, beta)] == Sleep((1, beta), unwanted=False)


@pytest.mark.check
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_compaction_between_tuples_of_a_result_preserves_it(mode: MeshChoice) -> None:
    """Most tuples expire and are compacted between the tuples of each result."""
    engine, result_count = engine_of(mode), 0
    for n in range(60):
        time = 20 * n
        dead_records = [Record(1, time + 1, ("pad", 100 + number)) for number in range(50)]
        list(
            engine.process(
                [*dead_records, Record(0, time + 8, ("alpha", n)), Record(1, time + 8, ("pad", n))]
            )
        )
        engine.expire(time + 11)
        engine.compact(time + 11)
        assert engine.live_tuples == 2
        result_count += len(list(engine.process([Record(2, time + 12, ("beta", n))])))
    assert result_count == 60
