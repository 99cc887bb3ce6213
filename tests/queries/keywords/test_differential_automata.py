"""Networks evaluated by automata give what the mesh gives: results, retractions, order, ids."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import skws.data.batch
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.keywords.automata import choices, network_query
from skws.queries.keywords.columnar import ColumnarEngine
from skws.spec.enums import EvaluatorName
from skws_mesh.networks import CandidateNetwork
from skws_patterns.queries.hcq import is_hierarchical
from skws_schema.model import Schema
from skws_windows.window import CountWindow, TimeWindow, Unbounded, Window
from tests.queries.keywords.test_oracle_keyword_order import DENSE, rows, tables
from tests.strategies import WORDS, examples, runs, schemas, static_rows, streams

WINDOWS: list[Window] = [TimeWindow(4), TimeWindow(12), CountWindow(5), CountWindow(20), Unbounded()]


def by(plan: Plan, evaluator: EvaluatorName) -> ColumnarEngine:
    return ColumnarEngine.of(replace(plan, evaluated_by=evaluator))


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("text", ["alpha beta", "alpha beta gamma", "beta ; alpha", "plain:alpha keyed:beta"])
@pytest.mark.parametrize("batch", [5, 8192])
def test_equal_record_for_record(
    text: str, window: Window, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skws.data.batch, "BATCH", batch)
    plan = Plan(DENSE, parse_query(text, DENSE), window, 3)
    found = 0
    for seed in runs(3):
        random = Random(seed)
        static, stream = tables(random), rows(random, 120, 3, [0, 0, 1, 2])
        outputs = []
        for evaluator in EvaluatorName:
            engine = by(plan, evaluator)
            outputs.append([*engine.load_tables(static), *engine.process(stream)])
        assert outputs[0] == outputs[1] == outputs[2]
        found += len(outputs[0])
    assert found > 5


@given(st.data(), st.sampled_from(WINDOWS), st.integers(1, 3))
@examples(60)
def test_any_schema(data: st.DataObject, window: Window, words: int) -> None:
    schema = data.draw(schemas(tables=True))
    static, stream = data.draw(static_rows(schema, words)), data.draw(streams(schema, words, 30))
    plan = Plan(schema, parse_query(" ".join(WORDS[:words]), schema), window, 3)
    engines = by(plan, EvaluatorName.MESH), by(plan, EvaluatorName.AUTOMATA)
    outputs = [[*engine.load_tables(static), *engine.process(stream)] for engine in engines]
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("text", ["alpha beta", "alpha ; beta"])
def test_a_query_that_is_added_later_begins_with_what_is_alive(text: str) -> None:
    plan = Plan(DENSE, parse_query(text, DENSE), TimeWindow(12), 3)
    stream = rows(Random(4), 200, 3, [0, 0, 0, 1])
    told = []
    for evaluator in (EvaluatorName.MESH, EvaluatorName.AUTOMATA):
        engine = ColumnarEngine(DENSE, TimeWindow(12))
        list(engine.process(stream[:150]))
        snapshot = engine.add(replace(plan, evaluated_by=evaluator))
        told.append((snapshot, list(engine.process(stream[150:]))))
    assert told[0] == told[1]
    assert told[0][0]
    assert told[0][1]


def test_what_evaluates_a_network_and_why() -> None:
    plan = Plan(DENSE, parse_query("alpha beta", DENSE), TimeWindow(9), 3)
    made = choices(plan.generator(), everything=True)
    assert made is not None
    reasons = {CandidateNetwork.of(c.tree).text(DENSE, plan.keywords): c.reason for c in made}
    assert reasons["plain{alpha, beta}"] == "it joins nothing"
    assert reasons["plain{alpha} - keyed{beta}"].startswith("its joins are hierarchical")
    assert reasons["fixed{alpha} - plain{beta}"] == "static tables have no place in time"
    # x of three tuples is hierarchical; x of two, and y of one of them with x of a third, is not.
    assert reasons["plain{alpha} - link{} - keyed{beta}"].startswith("its joins are hierarchical")
    assert any(reason == "its joins are not hierarchical" for reason in reasons.values())
    chosen = choices(plan.generator(), everything=False)
    assert chosen is not None
    assert all(len(c.tree.relations) > 2 and all(c.tree.keywords) for c in chosen if c.automaton)


@given(schemas())
@examples(40)
def test_a_network_is_a_query_with_its_joins(schema: Schema) -> None:
    plan = Plan(schema, parse_query("alpha beta", schema), TimeWindow(9), 3)
    for choice in choices(plan.generator(), everything=True) or ():
        query = network_query(schema, choice.tree)
        assert len(query.atoms) == len(choice.tree.relations)
        assert all(len(query.atoms_of(variable)) for variable in query.variables)
        if len(choice.tree.relations) == 2:
            assert is_hierarchical(query)
