"""At every step, synopses give the results of the query over all tuples so far."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, islice
from random import Random

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from skws_bounds.lto import Criterion, compared_terms, forests
from skws_bounds.maxref import Failure, keep_failures
from skws_bounds.modified import Modified, conjunctions
from skws_bounds.normal_form import Atom, Attr, Domain, Term
from skws_bounds.query_run import UnionRun
from skws_bounds.theorems import theorem_1, theorem_2
from skws_bounds.verdict import check, persistent_failures
from skws_schema.budgets import StepBudget
from skws_schema.errors import UsageError
from skws_schema.model import Attribute, AttributeType, Op, Relation, Row, Schema
from tests.bounds.bounds_queries import (
    SECOND,
    STREAMS,
    Step,
    naive_outputs,
    queries,
    sql,
    steps,
    synopsis_outputs,
    tables,
    unlimited,
)
from tests.strategies import examples


@examples(200)
@given(queries(), steps(), tables)
def test_synopses_give_the_results_of_naive_evaluation(
    text: str, arrivals: list[Step], table_rows: Mapping[str, Sequence[Row]]
) -> None:
    union = sql(text)
    verdict = check(union)
    event(f"{verdict.projection}: {verdict.bounded}")
    try:
        outputs = synopsis_outputs(union, STREAMS, arrivals, table_rows)
    except UsageError:
        assert verdict.bounded is not True
        return
    assert outputs == naive_outputs(union, STREAMS, arrivals, table_rows)


@examples(80)
@given(queries(), steps(), tables)
def test_a_run_continues_from_its_snapshot(
    text: str, arrivals: list[Step], table_rows: Mapping[str, Sequence[Row]]
) -> None:
    """A new run restores the snapshot, passed through JSON, after every step."""
    union = sql(text)
    try:
        run, uninterrupted = UnionRun(union, STREAMS, table_rows), UnionRun(union, STREAMS, table_rows)
    except UsageError:
        return
    for time, rows in arrivals:
        assert Counter(dict(run.step(time, rows))) == Counter(dict(uninterrupted.step(time, rows)))
        restored = UnionRun(union, STREAMS, table_rows)
        restored.restore(json.loads(json.dumps(run.snapshot())))
        assert restored.entries == run.entries
        run = restored


WITH_RESULTS = (
    "SELECT s.a, t.b FROM s, t, u WHERE s.i > t.j AND t.j > u.k AND s.a > t.b AND 0 < t.b AND t.b < 5",
    "SELECT t.b, r.y FROM s, t, r WHERE s.i > t.j AND t.b = r.x AND s.a2 > 1 AND s.a2 < 5 AND s.a2 = r.y",
    "SELECT DISTINCT t.b FROM s, t WHERE s.i > t.j AND t.b > 0 AND t.b < 5 AND s.a > t.b2",
    "SELECT t.b, f.e FROM t, f WHERE t.b = f.e",
)


@pytest.mark.parametrize("text", WITH_RESULTS)
def test_synopses_and_their_snapshots_give_many_results(text: str) -> None:
    """Of the few tuples of random queries, hardly any are in a result."""
    rng, arrivals, union = Random(1), list[Step](), sql(text)
    for second in range(1, 13):
        time = second * SECOND
        rows: dict[str, Sequence[Row]] = {
            name: [(rng.randrange(6), rng.randrange(6), time) for _ in range(2)] for name in "stuv"
        }
        arrivals.append((time, rows | ({"f": [(second, time)]} if second <= 3 else {})))
    table_rows: dict[str, Sequence[Row]] = {"r": [(1, 3), (2, 2), (4, 4)]}
    expected = naive_outputs(union, STREAMS, arrivals, table_rows)
    assert sum(map(bool, expected)) > 2
    assert synopsis_outputs(union, STREAMS, arrivals, table_rows) == expected
    run, outputs = UnionRun(union, STREAMS, table_rows), []
    for time, arrived_rows in arrivals:
        outputs.append(Counter(dict(run.step(time, arrived_rows))))
        snapshot = json.loads(json.dumps(run.snapshot()))
        run = UnionRun(union, STREAMS, table_rows)
        run.restore(snapshot)
    assert outputs == expected


MOST_ORDERS = 100


def total_orders(query: Modified) -> Iterator[Modified]:
    """Every locally totally ordered query (Definition 6) into which a query is split."""
    for one, other in _local_pairs(query):
        if not query.closure.is_ordered(one, other):
            for op in (Op.LESS, Op.EQUAL, Op.GREATER):
                refined = query.refine([Atom(one, op, other, case=True)])
                if refined is not None:
                    yield from total_orders(refined)
            return
    yield query


def _local_pairs(query: Modified) -> Iterator[tuple[Term, Term]]:
    terms_by_node: dict[int, list[Term]] = defaultdict(list)
    for term in compared_terms(query):
        if isinstance(term, Attr) and term.stream in query.node_of and term.domain is not Domain.TIME:
            terms_by_node[query.node_of[term.stream]].append(term)
    constants = [t for t in query.closure.class_of if not isinstance(t, Attr) and t.domain is Domain.INTEGER]
    for attributes in terms_by_node.values():
        yield from ((a, b) for a, b in combinations([*attributes, *constants], 2) if isinstance(a, Attr))


def _synopses(query: Modified) -> tuple[Failure, ...]:
    """Built only for queries that pass Theorem 2; others fail here at once."""
    return theorem_2(query) or keep_failures(query, distinct=True)


@pytest.mark.check
@pytest.mark.parametrize(
    "criterion",
    [
        pytest.param(theorem_1, id="theorem 1"),
        pytest.param(theorem_2, id="theorem 2"),
        pytest.param(_synopses, id="synopses"),
    ],
)
@examples(40)
@given(queries(most=3))
def test_a_failing_total_order_is_found_if_one_exists(criterion: Criterion, text: str) -> None:
    for conjunction in islice(conjunctions(sql(text).queries[0], unlimited()), 3):
        for query in forests(conjunction, StepBudget(1000, "orders")):
            orders = list(islice(total_orders(query), MOST_ORDERS))
            if len(orders) < MOST_ORDERS and not any(not f.joins for f in criterion(query)):
                expected = any(map(criterion, orders))
                event(f"fails: {expected}, at first: {bool(criterion(query))}")
                assert (
                    bool(list(persistent_failures(query, criterion, set(), StepBudget(5000, "orders"))))
                    == expected
                )


def _typed(name: str, *, table: bool = False) -> Relation:
    attributes = (
        Attribute("k", AttributeType.INTEGER, None if table else 0, None if table else 3),
        Attribute("x", AttributeType.TEXT),
        Attribute("n", AttributeType.NUMBER),
        Attribute("b", AttributeType.BOOLEAN),
    )
    times = () if table else (Attribute("at", AttributeType.TIMESTAMP),)
    return Relation(name, (*attributes, *times), time=None if table else "at", table=table)


SCHEMA = Schema("typed", (_typed("p"), _typed("q"), _typed("r", table=True)), ())
_VALUES = st.tuples(
    st.sampled_from([0, 1, 2, 3, None]),
    st.sampled_from(["a", "b", "c", None]),
    st.sampled_from([0.5, 1.0, 1.5, 7.25, None]),
    st.sampled_from([True, False, None]),
)
_CONSTANTS = {"k": ["2", "1.5", "0"], "x": ["'b'"], "n": ["1.25", "1", "3"], "b": ["TRUE"]}
_LIKE = {"k": "kn", "n": "nk", "x": "x", "b": "b"}
"""The comparison partners of each column: integers and fractions with each other."""


@st.composite
def typed_queries(draw: st.DrawFn) -> str:
    """SQL over two streams and a table, with comparisons of every type."""
    names = draw(st.sampled_from([["p"], ["p", "q"], ["p", "r"], ["p", "q", "r"]]))
    conditions = []
    if "q" in names:
        conditions += draw(st.sampled_from([[], ["p.at > q.at"], ["p.at >= q.at"], ["p.at <> q.at"]]))
    for _ in range(draw(st.integers(0, 4))):
        column = draw(st.sampled_from("kxnb"))
        op = draw(st.sampled_from(["=", "<>"] if column in "xb" else ["=", "<>", "<", ">", "<=", ">="]))
        one, other = draw(st.permutations([*names, ""]))[:2]
        partner = draw(st.sampled_from(_LIKE[column]))
        if one:
            constant = draw(st.sampled_from(_CONSTANTS[column]))
            conditions.append(f"{one}.{column} {op} {f'{other}.{partner}' if other else constant}")
    columns = [f"{name}.{column}" for name in names for column in "kxnb"]
    output = draw(st.lists(st.sampled_from(columns), min_size=1, max_size=3, unique=True))
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return (
        f"SELECT {draw(st.sampled_from(['', 'DISTINCT ']))}{', '.join(output)} FROM {', '.join(names)}{where}"
    )


@st.composite
def typed_steps(draw: st.DrawFn) -> list[Step]:
    steps: list[Step] = []
    for number in range(1, draw(st.integers(1, 6)) + 1):
        time = number * SECOND
        rows: dict[str, Sequence[Row]] = {
            name: [(*values, time) for values in draw(st.lists(_VALUES, max_size=3))] for name in "pq"
        }
        steps.append((time, rows))
    return steps


@examples(150)
@given(typed_queries(), typed_steps(), st.fixed_dictionaries({"r": st.lists(_VALUES, max_size=3)}))
def test_synopses_of_all_value_types_give_naive_results(
    text: str, arrivals: list[Step], table_rows: Mapping[str, Sequence[Row]]
) -> None:
    union = sql(text, SCHEMA)
    verdict = check(union)
    try:
        outputs = synopsis_outputs(union, SCHEMA, arrivals, table_rows)
    except UsageError:
        assert verdict.bounded is not True
        return
    event(f"{verdict.projection}: run")
    assert outputs == naive_outputs(union, SCHEMA, arrivals, table_rows)


PROMISED = Schema(
    "promised",
    (
        Relation(
            "p",
            (
                Attribute("b", AttributeType.INTEGER),
                Attribute("d", AttributeType.INTEGER, 6),
                Attribute("at", AttributeType.TIMESTAMP),
            ),
            time="at",
        ),
        Relation(
            "q",
            (Attribute("a", AttributeType.INTEGER, 1, 4), Attribute("at", AttributeType.TIMESTAMP)),
            time="at",
        ),
    ),
    (),
)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT p.b FROM p WHERE p.b = 5",  # a promise of d is past that of b
        "SELECT p.b FROM p, q WHERE p.b = 5 AND q.at > p.at",
        "SELECT 1 FROM p, q WHERE q.a < p.b AND q.at > p.at",  # it is bounded only if b is compared with 5
        "SELECT 1 FROM q, p WHERE q.a < p.b AND q.at > p.at",
    ],
)
def test_null_keeps_the_promises_of_a_schema(text: str) -> None:
    """An attribute with bounds in the schema may be NULL, and a query that does not name it keeps the row."""
    arrivals: list[Step] = [
        (SECOND, {"p": [(b, d, SECOND) for b in (3, 5, 8, None) for d in (None, 7)], "q": [(2, SECOND)]}),
        (2 * SECOND, {"p": [], "q": [(a, 2 * SECOND) for a in (None, 1, 4)]}),
    ]
    outputs = synopsis_outputs(sql(text, PROMISED), PROMISED, arrivals, {})
    assert outputs == naive_outputs(sql(text, PROMISED), PROMISED, arrivals, {})
    assert any(outputs)


def test_the_rows_of_a_finite_stream_count_as_entries_after_its_end() -> None:
    """They are kept, since later tuples join them."""
    run = UnionRun(sql("SELECT f.e FROM f, s WHERE s.i > f.m"), STREAMS, {})
    entries = []
    for second in range(1, 6):
        time = second * SECOND
        run.step(time, {"f": [(second, time)] if second < 3 else [], "s": [(1, 1, time)]})
        entries.append(run.entries)
    assert entries == [2, 4, 5, 2, 2]
