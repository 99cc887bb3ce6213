"""Splitting, merging, finite streams, P+, redundancy, and different total orders."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws_bounds.closure import Closure
from skws_bounds.maxref import comparisons
from skws_bounds.modified import Modified, conjunctions, modified
from skws_bounds.normal_form import Atom, Attr, Constant, Domain
from skws_bounds.query_run import UnionRun
from skws_bounds.verdict import check
from skws_schema.model import Attribute, AttributeType, Op, Relation, Schema
from tests.bounds.bounds_queries import SECOND, STREAMS, queries, sql, unlimited
from tests.strategies import examples

NUMBERS = Schema(
    "numbers",
    tuple(
        Relation(
            name,
            (
                Attribute("n", AttributeType.NUMBER),
                Attribute("k", AttributeType.INTEGER),
                Attribute("m", AttributeType.INTEGER, 0, 4),
                Attribute("at", AttributeType.TIMESTAMP),
            ),
            time="at",
        )
        for name in "pq"
    ),
    (),
)


def _attr(name: str) -> Attr:
    return Attr("s", name, Domain.NUMBER if name == "c" else Domain.INTEGER)


def only_conjunction(text: str) -> Modified:
    (conjunction,) = conjunctions(sql(text).queries[0], unlimited())
    query = modified(conjunction)
    assert query is not None
    return query


ATOMS = st.lists(
    st.builds(
        Atom,
        st.sampled_from([_attr(n) for n in "abc"]),
        st.sampled_from([Op.LESS, Op.EQUAL, Op.GREATER]),
        st.one_of(
            st.sampled_from([_attr(n) for n in "abc"]),
            st.builds(
                Constant,
                st.sampled_from([0, 0.5, 1, 1.5, 2, 2.0]),
                st.sampled_from([Domain.INTEGER, Domain.NUMBER]),
            ),
        ),
    ),
    max_size=5,
)


@examples(150)
@given(ATOMS)
def test_the_closure_implies_only_what_holds_for_all_numbers(atoms: list[Atom]) -> None:
    """For integers a and b, and a fraction c. Equal constants of different domains are one term."""
    terms = [_attr(n) for n in "abc"]
    closure = Closure(atoms, terms)
    models = []
    for values in product(range(-2, 5), range(-2, 5), (n / 4 for n in range(-12, 21))):
        value = dict(zip(terms, values, strict=True))
        sides = [
            (value[a.left], a.op, value[a.right] if isinstance(a.right, Attr) else a.right.value)  # type: ignore[index, union-attr]
            for a in atoms
        ]
        if all({Op.LESS: x < y, Op.EQUAL: x == y, Op.GREATER: x > y}[op] for x, op, y in sides):  # type: ignore[operator]
            models.append(value)
    assert closure.consistent == bool(models)
    for one, other in product(terms, repeat=2):
        if models and closure.less(one, other):
            assert all(m[one] < m[other] for m in models)
        if models and closure.class_of[one] == closure.class_of[other]:
            assert all(m[one] == m[other] for m in models)


@examples(100)
@given(queries(known=False))
def test_splits_by_inequality_are_distinct_and_bounded_in_number(text: str) -> None:
    query = sql(text).queries[0]
    splits = {Op.DIFFERENT: 2, Op.AT_MOST: 2, Op.AT_LEAST: 2}
    parts = list(conjunctions(query, unlimited()))
    bound = 1
    for atom in query.atoms:
        bound *= splits.get(atom.op, 1)
    assert len(parts) <= bound
    assert all(a.op in (Op.LESS, Op.EQUAL, Op.GREATER) for part in parts for a in part.atoms)
    assert len({tuple(a.op for a in part.atoms) for part in parts}) == len(parts)


def test_an_inequality_of_streams_splits_into_less_and_greater() -> None:
    parts = list(conjunctions(sql("SELECT 1 FROM s, t WHERE s.a <> t.b").queries[0], unlimited()))
    assert [[a.op for a in p.atoms] for p in parts] == [[Op.LESS], [Op.GREATER]]


def test_comparisons_with_integer_constants_are_not_split() -> None:
    (part,) = conjunctions(sql("SELECT 1 FROM s WHERE s.a <= 5 AND s.a >= 3").queries[0], unlimited())
    assert [str(a.right) for a in part.atoms] == ["6", "2"]


def test_streams_with_equal_timestamps_are_merged() -> None:
    query = only_conjunction("SELECT 1 FROM s, t, u WHERE s.i = t.j AND t.j > u.k")
    assert query.nodes == (("s", "t"), ("u",))
    assert query.graph.depth(1) == 1


@pytest.mark.parametrize(
    "where",
    [
        "s.i < TIMESTAMP '2026-01-01'",
        "s.i = TIMESTAMP '2026-01-01'",
        "s.i < t.j AND t.j < TIMESTAMP '2026-01-01'",
        "s.i < f.m",
    ],
)
def test_upper_bounded_streams_are_finite(where: str) -> None:
    tables = "s, f" if "f.m" in where else "s, t" if "t.j" in where else "s"
    query = only_conjunction(f"SELECT s.a FROM {tables} WHERE {where}")
    assert "s" in {s.alias for s in query.finite}
    assert query.nodes == ()


def test_a_stream_with_only_a_lower_time_bound_stays_infinite() -> None:
    assert only_conjunction("SELECT s.a FROM s WHERE s.i > TIMESTAMP '2026-01-01'").nodes == (("s",),)


def test_the_dependency_graph_omits_implied_edges() -> None:
    query = only_conjunction("SELECT 1 FROM s, t, u WHERE s.i > t.j AND t.j > u.k")
    assert [sorted(p) for p in query.graph.parents] == [[], [0], [1]]
    assert [sorted(p) for p in query.graph.successors] == [[], [0], [0, 1]]


@pytest.mark.parametrize(
    ("condition", "bounded"),
    [
        ("p.n = q.k AND q.k > 0 AND q.k < 5", True),
        ("p.n = q.k AND p.n > 0.5 AND p.n < 5", True),
        ("p.n = q.n AND p.n = q.k AND p.n > 0 AND p.n < 5", True),
        ("p.n = q.m", True),  # due to the schema's bounds of m
        ("p.n = q.n AND p.n > 0 AND p.n < 5", False),
        ("p.n < q.k AND p.n > 0 AND q.k < 5", False),
        ("p.n = q.k AND q.k > 0", False),
    ],
)
def test_a_number_equal_to_an_integer_is_bounded_like_an_integer(condition: str, bounded: bool) -> None:
    union = sql(f"SELECT 1 FROM p, q WHERE q.at > p.at AND {condition}", NUMBERS)
    assert check(union).bounded is bounded
    if not bounded:
        return
    run, results = UnionRun(union, NUMBERS, {}), 0
    for time in range(1, 400):
        value = time / 7 % 6
        row = (value, int(value), min(int(value), 4), time * SECOND)
        results += sum(count for _, count in run.step(time * SECOND, {"p": [row], "q": [row]}))
    assert run.entries <= 5
    assert results > 100


def test_redundant_comparisons_are_omitted() -> None:
    """Definition 8: s.a < t.b is implied by comparisons with another attribute."""
    query = only_conjunction("SELECT 1 FROM s, t WHERE s.a < t.b AND s.a < s.a2 AND s.a2 < t.b")
    pairs = {
        (str(query.closure.members[a][0]), str(query.closure.members[b][0])) for a, b in comparisons(query)
    }
    assert pairs == {("s.a", "s.a2"), ("s.a2", "t.b")}


@pytest.mark.parametrize(
    "text",
    [
        "SELECT DISTINCT 1 FROM s, t, u, v, s AS w, t AS x WHERE s.a < t.b AND t.b2 < u.c AND u.c2 < v.d AND "
        "v.d2 < w.a AND w.a2 < x.b AND s.a2 <> 3 AND u.c <> 7 AND x.b2 <> 9",
        "SELECT 1 FROM s, t, u, v, s AS w, t AS x WHERE s.i > t.j AND t.j > u.k AND u.k > v.l AND v.l > w.i "
        "AND w.i > x.j AND s.a > t.b AND t.b2 > u.c AND u.c > 0 AND u.c < 9 AND u.c2 > v.d AND v.d2 >= w.a "
        "AND w.a2 > x.b AND x.b > 0 AND x.b < 7 AND t.b > 3 AND t.b < 11",
        "SELECT 1 FROM s, t, u, v, s AS w, t AS x WHERE s.i > t.j AND s.i > u.k AND s.i > v.l AND s.i > w.i "
        "AND s.i > x.j AND t.b > u.c AND v.d > u.c AND w.a > x.b AND 0 < u.c AND u.c < 5 "
        "AND 0 < x.b AND x.b < 9",
    ],
)
def test_queries_over_six_streams_are_decided_within_the_step_budget(text: str) -> None:
    assert "orders" not in {failure.condition for failure in check(sql(text, STREAMS)).failures}
