"""The worked example of the paper (Example Queries and Figure 2), step by step."""

from __future__ import annotations

import pytest

from skws_bounds.lto import cases
from skws_bounds.modified import conjunctions
from skws_bounds.query_run import UnionRun
from skws_bounds.theorems import theorem_1
from skws_bounds.verdict import check
from skws_schema.model import Schema
from tests.bounds.bounds_queries import SECOND, sql, stream, unlimited

SCHEMA = Schema("figure", (stream("s", "i", "a"), stream("t", "j", "b"), stream("u", "k", "c")), ())
WHERE = "FROM s, t, u WHERE s.i > t.j AND t.j > u.k AND s.a > t.b AND 0 < t.b AND t.b < 5"
ARRIVALS = (
    {"s": [(42, 0)], "t": [(7, 0)]},
    {"u": [(1, 1)]},
    {"t": [(2, 2)]},
    {"u": [(3, 3)]},
    {"t": [(1, 4)]},
    {"s": [(42, 5)], "t": [(3, 5)]},
)
# After each step: the content of T and U, as {value: counter}.
SYNOPSES: tuple[tuple[dict[tuple[int, ...], int], ...], ...] = (
    ({}, {}),
    ({}, {(): 1}),
    ({(2,): 1}, {(): 1}),
    ({(2,): 1}, {(): 2}),
    ({(2,): 1, (1,): 2}, {(): 2}),
    ({(2,): 1, (1,): 2, (3,): 2}, {(): 2}),
)


def test_synopses_and_output_are_those_of_figure_2() -> None:
    run = UnionRun(sql(f"SELECT s.a, t.b {WHERE}", SCHEMA), SCHEMA, {})
    (query,) = run.queries
    (case,) = query.runs
    for second, rows in enumerate(ARRIVALS):
        output = run.step(second * SECOND, rows)
        assert output == ([((42, 2), 1), ((42, 1), 2)] if second == 5 else [])
        contents = [node.synopsis.past.get((), {}) for node in case.nodes]
        assert contents == [{}, *SYNOPSES[second]]


@pytest.mark.parametrize(("distinct", "bounded"), [("", True), ("DISTINCT ", False)])
def test_the_example_is_bounded_only_if_duplicates_are_kept(distinct: str, bounded: bool) -> None:
    verdict = check(sql(f"SELECT {distinct}s.a, t.b {WHERE}", SCHEMA))
    assert verdict.bounded is bounded
    assert verdict.certain
    assert [f.condition for f in verdict.failures] == ([] if bounded else ["C1"])


def test_the_example_needs_no_case_distinction() -> None:
    (conjunction,) = conjunctions(sql(f"SELECT s.a, t.b {WHERE}", SCHEMA).queries[0], unlimited())
    (case,) = cases(conjunction, theorem_1)
    assert [case.query.graph.depth(node) for node in range(3)] == [0, 1, 2]
    assert case.query.graph.roots == (0,)
