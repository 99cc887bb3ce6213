"""A query of which no live tuple carries some keyword sleeps: it holds nothing, and loses nothing by it."""

from __future__ import annotations

from skws.data.record import Record
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.keywords.columnar import ColumnarEngine
from skws_schema.model import Attribute, AttributeType, Join, Relation, Schema
from skws_windows.window import TimeWindow

KINDS = (Attribute("t", AttributeType.TEXT), Attribute("x", AttributeType.INTEGER))
CHAIN = Schema(
    "chain",
    tuple(Relation(name, KINDS, search=("t",)) for name in "abc"),
    (Join("ab", "a", "b", (("x", "x"),)), Join("bc", "b", "c", (("x", "x"),))),
)


def plan(text: str) -> Plan:
    return Plan(CHAIN, parse_query(text, CHAIN), TimeWindow(10), 3)


def told(engine: ColumnarEngine, relation: int, time: int, words: str) -> int:
    return len(list(engine.process([Record(relation, time, (words, 1))])))


def waiting(engine: ColumnarEngine) -> int:
    return sum(use.waiting for use in engine.used())


def test_what_came_while_it_slept_is_joined_when_it_wakes() -> None:
    engine = ColumnarEngine.of(plan("alpha beta"))
    assert told(engine, 0, 1, "alpha") == 0
    assert told(engine, 1, 2, "pad") == 0
    assert waiting(engine) == 0
    assert told(engine, 2, 3, "beta") == 1
    assert waiting(engine) > 0
    assert told(engine, 2, 4, "beta") == 1


def test_it_lets_its_partials_go_when_it_falls_asleep() -> None:
    engine = ColumnarEngine.of(plan("alpha beta"))
    assert [told(engine, *record) for record in ((2, 1, "beta"), (0, 8, "alpha"), (1, 8, "pad"))] == [0, 0, 1]
    assert waiting(engine) > 0
    engine.expire(11)
    engine.compact(11)
    assert (engine.live_tuples, waiting(engine)) == (2, 0)
    assert told(engine, 2, 12, "beta") == 1


def test_who_is_removed_leaves_nothing_to_those_of_its_shape() -> None:
    stream = ((0, 1, "alpha gamma"), (1, 2, "pad"), (2, 3, "beta"), (2, 3, "pad"))
    shared, alone = (ColumnarEngine(CHAIN, TimeWindow(10)) for _ in range(2))
    shared.add(plan("gamma beta"))
    for engine in (shared, alone):
        engine.add(plan("alpha beta"))
        for record in stream:
            told(engine, *record)
    shared.remove("gamma beta")
    (mesh,), (other,) = shared._operator.meshes, alone._operator.meshes
    assert (mesh.partials, mesh.labels) == (other.partials, other.labels)
    assert len(mesh._carriers) == len(other._carriers)
    assert mesh.partials > 0
    assert told(shared, 2, 4, "beta") == told(alone, 2, 4, "beta") == 1


def test_a_tuple_that_is_deleted_at_its_own_instant_makes_no_result() -> None:
    engine = ColumnarEngine.of(plan("alpha beta"))
    both = Record(0, 1, ("alpha beta", 1))
    assert not list(engine.process([both, both._replace(delete=True)]))
    assert len(list(engine.process([both._replace(time=2)]))) == 1
