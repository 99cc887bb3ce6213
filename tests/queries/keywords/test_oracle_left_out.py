"""Relations that a query leaves out: all engines and modes against brute force without their tuples."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws.data.record import Record
from skws.keywords import keyword_matching
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.keywords.scope import with_left_out
from skws.queries.keywords.columnar import ColumnarEngine
from skws.queries.keywords.engine import Engine
from skws.spec.enums import EvaluatorName
from skws_mesh.networks import CandidateNetwork
from skws_schema.model import Schema
from skws_windows.window import TimeWindow
from tests.oracles.oracle import Oracle, instants
from tests.paper_modes import MODES, SIZES, by_delta, ops
from tests.queries.keywords.test_oracle_keyword_order import DENSE, rows, tables
from tests.strategies import WORDS, examples, runs, schemas, static_rows, streams


def engines(plan: Plan) -> list[Engine | ColumnarEngine]:
    tupled = [Engine(replace(plan, mesh=mesh, purge=purge, demand=demand)) for mesh, purge, demand in MODES]
    by_automata = ColumnarEngine.of(replace(plan, evaluated_by=EvaluatorName.AUTOMATA))
    return [ColumnarEngine.of(plan), by_automata, by_delta(plan), *tupled]


def check(plan: Plan, static: list[Record], stream: list[Record], window: int, bitmap: object) -> int:
    """Gives how many results there were. ``bitmap``: the keywords of a row, as the oracle has them."""
    oracle = Oracle(plan.schema, len(plan.keywords), plan.max_size, bitmap)
    here = [r for r in static if r.relation not in plan.query.without]
    snapshot = oracle.load([(r.relation, r.row) for r in here])
    running = engines(plan)
    late = ColumnarEngine(plan.schema, plan.window)
    for engine in running:
        assert ops(list(engine.load_tables(static)), "+") == snapshot
    list(late.load_tables(static))
    found = sum(snapshot.values())
    for time, records in instants(stream):
        seen = [r for r in records if r.relation not in plan.query.without]
        expected = oracle.instant(time, seen, window)
        for engine in running:
            results = list(engine.process(records))
            assert (ops(results, "-"), ops(results, "+")) == expected
        list(late.process(records))
        assert ops(late.add(plan), "+") == Counter(map(oracle.shape, oracle.found))
        late.remove(plan.query.text)
        found += expected[1].total()
    return found


def with_every_relation(plan: Plan) -> object:
    whole = parse_query(plan.query.text.partition(" -")[0], plan.schema)
    return replace(plan, query=whole).matcher.bitmap


@given(st.data(), st.integers(1, 3), st.integers(1, 8))
@examples(60)
def test_any_schema(data: st.DataObject, words: int, window: int) -> None:
    schema: Schema = data.draw(schemas(tables=True))
    names = [relation.name for relation in schema.relations]
    if len(names) == 1:
        return
    without = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=len(names) - 1, unique=True))
    query = parse_query(with_left_out(" ".join(WORDS[:words]), without), schema)
    plan = Plan(schema, query, TimeWindow(window), SIZES[words])
    static, stream = data.draw(static_rows(schema, words)), data.draw(streams(schema, words, max_records=20))
    check(plan, static, stream, window, with_every_relation(plan))


@pytest.mark.parametrize("without", ["link", "keyed", "plain", "fixed", "link keyed"])
def test_dense_streams(without: str) -> None:
    plan = Plan(DENSE, parse_query(with_left_out("alpha beta", without.split()), DENSE), TimeWindow(7), 3)
    found = 0
    for seed in runs(6):
        random = Random(seed)
        records = rows(random, 40, 3, [0, 1])
        found += check(plan, tables(random), records, 7, with_every_relation(plan))
    assert found > 5


@pytest.mark.parametrize("without", ["link", "plain", "keyed fixed"])
def test_no_network_has_it(without: str) -> None:
    query = parse_query(with_left_out("alpha beta gamma", without.split()), DENSE)
    plan = Plan(DENSE, query, TimeWindow(7), 4)
    every = Plan(DENSE, parse_query("alpha beta gamma", DENSE), TimeWindow(7), 4)
    shown = {CandidateNetwork.of(tree).text(DENSE, plan.keywords) for tree in plan.generator().networks()}
    expected = {
        CandidateNetwork.of(tree).text(DENSE, plan.keywords)
        for tree in every.generator().networks()
        if not query.without & {*tree.relations}
    }
    assert shown == expected
    assert shown


@pytest.mark.parametrize("few", [0, 10])
def test_queries_with_and_without_a_relation_stand_beside_each_other(
    monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """They share live tuples, and words; meshes only where networks are the same."""
    monkeypatch.setattr(keyword_matching, "FEW", few)
    texts = ["alpha beta", "alpha beta -link:", "alpha beta -plain:", "alpha -keyed:", "gamma -no -plain:"]
    plans = [Plan(DENSE, parse_query(text, DENSE), TimeWindow(9), 3) for text in texts]
    for seed in runs(4):
        together = ColumnarEngine(DENSE, TimeWindow(9))
        alone = [ColumnarEngine.of(plan) for plan in plans]
        for plan in plans:
            together.add(plan)
        random = Random(seed)
        static, stream = tables(random), rows(random, 40, 3, [0, 1])
        told = [*together.load_tables(static), *together.process(stream)]
        for plan, engine in zip(plans, alone, strict=True):
            own = [*engine.load_tables(static), *engine.process(stream)]
            mine = [r.to_json() for r in told if r.query == plan.query.text]
            assert mine == [r.to_json() for r in own]
