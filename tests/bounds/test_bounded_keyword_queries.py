"""Keyword queries without a window: which are bounded, and the same results as a mesh that keeps all."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import chain

import pytest

from skws.data.batch import Record
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.keywords.bounded_engine import BoundedEngine
from skws.queries.keywords.columnar import ColumnarEngine
from skws.queries.keywords.memory_guard import memory_of, network_verdict
from skws.results.model import Result
from skws_mesh.networks import CandidateNetwork
from skws_schema.errors import BadRecordsError, UsageError
from skws_schema.model import Schema
from skws_schema.yaml.load import parse_schema
from skws_windows.window import Unbounded
from tests.bounds.keyword_streams import END, SCHEMA, SECOND, YAML, plan, stream, tables
from tests.strategies import seeds

BOUNDED = [
    ("sale:red", 1),
    ("sale:red product:blue", 2),
    ("sale:red price:blue", 3),
    ("product:red price:blue", 3),
    ("till:red door:blue", 2),
    ("till:red", 3),
    ("product:red product:blue", 1),
]
UNBOUNDED = [
    ("red", 1, {"key"}),
    ("sale:red till:blue", 2, {"C3", "key"}),
    ("sale:red sale:blue", 3, {"C3", "key"}),
    ("visit:red", 1, {"key"}),
]


def _shown(results: list[Result]) -> list[tuple[object, ...]]:
    return [(r.op, r.query, r.id, r.start, r.end, r.network, r.snapshot) for r in results]


def _results(engine: ColumnarEngine, static: list[Record], batches: list[list[Record]]) -> list[Result]:
    found = list(engine.load_tables(static))
    return found + list(chain.from_iterable(list(engine.process(batch)) for batch in batches))


@seeds(1, 6)
@pytest.mark.parametrize(("query", "size"), BOUNDED)
def test_bounded_queries_are_answered_as_if_all_were_kept(query: str, size: int, seed: int) -> None:
    chance = random.Random(seed)
    static, records = tables(chance), stream(chance, 250)
    batches = [records[i : i + 7] for i in range(0, len(records), 7)]
    kept, bounded = ColumnarEngine.of(plan(query, size)), BoundedEngine.of(plan(query, size))
    expected = _results(kept, static, batches)
    assert _shown(_results(bounded, static, batches)) == _shown(expected)
    assert expected or seed, "nothing is tested"
    bounded.compact(records[-1].time)
    assert bounded.live_tuples <= len(static) + 8 + sum(r.relation == 4 for r in records) + 16
    assert kept.live_tuples > bounded.live_tuples + 50


def test_queries_together_and_added_later() -> None:
    chance = random.Random(1)
    static, records = tables(chance), stream(chance, 300)
    engine = BoundedEngine(SCHEMA)
    list(engine.load_tables(static))
    engine.add(plan("till:red door:blue", 2))
    list(engine.process(records[:150]))
    told = engine.add(plan("sale:red product:blue", 2), "late")
    now = records[149].time / SECOND
    assert {r.start for r in told} <= {now}  # of the past nothing is known
    assert engine.add(plan("till:red", 1), "tills")  # what is kept is told
    found = _shown(list(engine.process(records[150:])))
    alone = BoundedEngine.of(plan("sale:red product:blue", 2))
    list(alone.load_tables(static))
    later = _shown(list(alone.process(records[150:])))
    assert [r for r in found if r[1] == "sale:red product:blue"] == later != []


@pytest.mark.parametrize(("query", "size", "conditions"), UNBOUNDED)
def test_unbounded_queries_are_refused(query: str, size: int, conditions: set[str]) -> None:
    memory = memory_of(plan(query, size))
    assert memory.bounded is False
    assert {f.condition for fault in memory.faults for f in fault.verdict.failures} == conditions
    with pytest.raises(UsageError):
        BoundedEngine.of(plan(query, size))


def test_a_finite_stream_whose_end_is_not_told() -> None:
    schema = parse_schema(YAML.replace(', max: "1970-01-01T00:00:20Z"', ""))
    query = Plan(schema, parse_query("sale:red price:blue", schema), Unbounded(), 3)
    (fault,) = memory_of(query).faults
    assert fault.reason == "not bounded, price is finite, but no max of its time says when it ends (end)"
    alone = Plan(schema, parse_query("product:red price:blue", schema), Unbounded(), 3)
    assert memory_of(alone).bounded


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("query", ["red", "red blue", "sale:red product:blue", "price:red green"])
def test_the_quick_look_agrees_with_the_theorem(query: str, size: int) -> None:
    asked = plan(query, size)
    networks = [CandidateNetwork.of(tree) for tree in asked.generator().networks()]
    verdicts = [network_verdict(network, SCHEMA).bounded for network in networks]
    assert memory_of(asked).bounded is all(verdicts)
    assert [f.network for f in memory_of(asked).faults] == [
        n.text(SCHEMA, asked.keywords) for n, v in zip(networks, verdicts, strict=True) if not v
    ][:5]


def test_a_schema_without_streams_is_not_looked_at() -> None:
    relations = tuple(replace(r, table=True, finite=False, time=None) for r in SCHEMA.relations)
    schema = Schema("tables", relations, SCHEMA.joins)
    memory = memory_of(Plan(schema, parse_query("red blue green", schema), Unbounded(), 5))
    assert (memory.bounded, memory.looked_at) == (True, 0)


def test_what_the_verdict_excludes_is_an_error() -> None:
    engine = BoundedEngine.of(plan("sale:red", 1))
    sale = (1, 1, "red")
    assert len(list(engine.process([Record(1, SECOND, sale)]))) == 1
    with pytest.raises(BadRecordsError, match=r"a record deletes a tuple of sale.*--force-unbounded"):
        list(engine.process([Record(1, 2 * SECOND, sale, True)]))
    with pytest.raises(BadRecordsError, match=r"till\.till is 7, but the schema promises 0 to 3"):
        list(engine.process([Record(2, 3 * SECOND, (7, "red"))]))
    with pytest.raises(BadRecordsError, match=r"till\.till is NULL, so the row has no key"):
        list(BoundedEngine.of(plan("till:red", 1)).process([Record(2, SECOND, (None, "red"))]))
    late = (END + 1) * SECOND
    with pytest.raises(BadRecordsError, match=r"price\.at"):
        list(engine.process([Record(4, late, (1, "red", late))]))


def test_lateness_and_equal_tuples_of_one_instant() -> None:
    records = [Record(1, t * SECOND, (1, 1, "red")) for t in (5, 5, 7, 6, 5, 9, 8, 30, 29)]
    kept = ColumnarEngine(SCHEMA, Unbounded(), lateness=3 * SECOND)
    bounded = BoundedEngine(SCHEMA, lateness=3 * SECOND)
    for engine in (kept, bounded):
        engine.add(plan("sale:red", 1))
    found = [[r for record in records for r in engine.process([record])] for engine in (kept, bounded)]
    assert _shown(found[1]) == _shown(found[0])
    assert len({r.id for r in found[1]}) == len(records)
    bounded.compact(30 * SECOND)
    assert bounded.live_tuples <= 2
