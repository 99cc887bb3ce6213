"""All of the query language, with analyzers and synonyms, mixed: all engines against brute force."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from skws.keywords import keyword_matching
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.keywords.columnar import ColumnarEngine
from skws.spec.enums import EvaluatorName
from skws_schema.errors import QueryError
from skws_schema.model import Schema
from skws_windows.window import CountWindow, TimeWindow
from tests.oracles.bitmaps import bitmap
from tests.paper_modes import SIZES
from tests.queries.keywords.test_oracle_keyword_order import DENSE, rows, tables
from tests.queries.keywords.test_oracle_left_out import check
from tests.strategies import examples, query_texts, runs, schemas, static_rows, streams, worded


def planned(text: str, schema: Schema, window: int) -> Plan:
    try:
        query = parse_query(text, schema)
    except QueryError:
        assume(False)
        raise
    return Plan(schema, query, TimeWindow(window), SIZES[len(query.slots)])


@given(st.data(), query_texts(), st.integers(1, 8))
@examples(150)
def test_any_schema(data: st.DataObject, text: str, window: int) -> None:
    schema: Schema = data.draw(schemas(tables=True).flatmap(worded))
    plan = planned(text, schema, window)
    static, stream = data.draw(static_rows(schema, 3)), data.draw(streams(schema, 3, max_records=16))
    check(plan, static, stream, window, partial(bitmap, plan.query, schema))


DENSE_QUERIES = (
    "alhpa~ be*a plain.x<2",
    "!plain.x=1 beta",
    "al?ha !keyed.y:0..1 -keyed.x=0",
    "(gamma OR !fixed.x=1) alpha",
    "alpha betta~ link.y!=0",
    "alpha (plain.x=0 OR plain.y>=1) beta",
)


@pytest.mark.parametrize("text", DENSE_QUERIES)
def test_dense_streams(text: str) -> None:
    plan = Plan(DENSE, parse_query(text, DENSE), TimeWindow(7), 3)
    expected = partial(bitmap, plan.query, DENSE)
    found = 0
    for seed in runs(6):
        random = Random(seed)
        found += check(plan, tables(random), rows(random, 40, 3, [0, 1]), 7, expected)
    assert found > 5


def _numbered(name: str) -> str:
    return f"r{DENSE.index[name]}"


NUMBERED = replace(
    DENSE,
    relations=tuple(replace(each, name=_numbered(each.name)) for each in DENSE.relations),
    joins=tuple(replace(j, left=_numbered(j.left), right=_numbered(j.right)) for j in DENSE.joins),
)
"""With names that ``query_texts`` has."""


@pytest.mark.parametrize("evaluator", [EvaluatorName.MESH, EvaluatorName.DELTA])
@pytest.mark.parametrize("few", [0, 10])
@given(st.lists(query_texts(), min_size=2, max_size=6, unique=True), st.integers(0, 1000), st.integers(1, 9))
@examples(40)
def test_many_queries_find_what_each_finds_alone(
    evaluator: EvaluatorName, few: int, texts: list[str], seed: int, size: int
) -> None:
    """Matched jointly or one by one, some of them added and removed on the way."""
    random = Random(seed)
    schema, plans = NUMBERED, []
    for text in texts:
        try:
            plans.append(Plan(schema, parse_query(text, schema), CountWindow(size), 3))
        except QueryError:
            continue
    static, stream = tables(random), rows(random, 30, 3, [0, 1])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(keyword_matching, "FEW", few)
        together = ColumnarEngine(schema, CountWindow(size))
        alone = [ColumnarEngine.of(plan) for plan in plans]
        given = {plan.query.text: replace(plan, evaluated_by=evaluator) for plan in plans}
        together.add_all(given)
        told = [*together.load_tables(static), *together.process(stream[:15])]
        again = plans[: len(plans) // 2]
        for plan in again:
            together.remove(plan.query.text)
        snapshots = together.add_all({plan.query.text: given[plan.query.text] for plan in again})
        told += together.process(stream[15:])
        for plan, engine in zip(plans, alone, strict=True):
            own = [*engine.load_tables(static), *engine.process(stream)]
            assert [r.to_json() for r in told if r.query == plan.query.text] == [r.to_json() for r in own]
        assert all(result.query in {plan.query.text for plan in again} for result in snapshots)
