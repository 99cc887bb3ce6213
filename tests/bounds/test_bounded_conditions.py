"""For each condition of both theorems: a query that fails only this one, and its repair."""

from __future__ import annotations

import pytest

from skws_bounds.repairs import repairs
from skws_bounds.run import Run
from skws_bounds.verdict import check
from skws_schema.errors import UsageError
from tests.bounds.bounds_queries import STREAMS, sql

CHAIN = "s.i > t.j AND t.j > u.k"

# Condition, query, twin, whether the failure is of the form of synopses only.
PRESERVING = [
    pytest.param(
        "C1",
        "SELECT 1 FROM s, t, u WHERE s.i > t.j AND u.k > t.j",
        " AND s.i > u.k",
        True,
        id="C1 two parents",
    ),
    pytest.param(
        "C2",
        f"SELECT 1 FROM s, t, u WHERE {CHAIN} AND s.a > u.c AND 0 < u.c AND u.c < 5",
        " AND s.a > 5",
        True,
        id="C2 grandparent",
    ),
    pytest.param(
        "C2",
        "SELECT 1 FROM s, t, u, v WHERE s.i > t.j AND s.i > u.k AND u.k > v.l AND t.b < v.d AND t.b > 0 "
        "AND t.b < 5 AND v.d > 0 AND v.d < 5",
        " AND t.b = 1 AND v.d = 3",
        True,
        id="C2 nephew",
    ),
    pytest.param(
        "C2",
        "SELECT 1 FROM s, t, u WHERE s.i > t.j AND t.b = u.c AND 0 < u.c AND u.c < 5",
        " AND t.j > u.k",
        True,
        id="C2 another tree, not at its root",
    ),
    pytest.param(
        "C3", f"SELECT t.b FROM s, t, u WHERE {CHAIN}", " AND 0 < t.b AND t.b < 5", False, id="C3 not bounded"
    ),
    pytest.param(
        "C3",
        f"SELECT u.c FROM s, t, u WHERE {CHAIN} AND 0 < u.c AND u.c < 5",
        " AND t.j = s.i",
        True,
        id="C3 too deep",
    ),
    pytest.param("C3", "SELECT s.a FROM s, t", " AND s.i > t.j", False, id="C3 two roots"),
    pytest.param(
        "C4", "SELECT 1 FROM s, t WHERE s.i > t.j AND s.a = t.b", " AND 0 < s.a AND s.a < 5", False, id="C4"
    ),
    pytest.param("C4", "SELECT 1 FROM s, t WHERE s.a = t.b", " AND s.i = t.j", False, id="C4 two roots"),
    pytest.param(
        "C5", "SELECT s.a FROM s, t WHERE s.i > t.j AND s.a > t.b", " AND 0 < t.b AND t.b < 5", False, id="C5"
    ),
    pytest.param(
        "C5", "SELECT 1 FROM s, t WHERE s.a < t.b", " AND s.a < 3 AND t.b > 3", False, id="C5 redundant"
    ),
]
ELIMINATING = [
    pytest.param("C1", "SELECT DISTINCT s.a FROM s", " AND s.a > 0 AND s.a < 5", False, id="C1"),
    pytest.param(
        "C2", "SELECT DISTINCT 1 FROM s, t WHERE s.a = t.b", " AND 0 < s.a AND s.a < 5", None, id="C2"
    ),
    pytest.param(
        "C3",
        "SELECT DISTINCT 1 FROM s, t, u WHERE s.a < t.b AND t.b2 < u.c",
        " AND t.b2 = 7",
        None,
        id="C3 two references",
    ),
    pytest.param(
        "C3",
        "SELECT DISTINCT 1 FROM s, t, u, v WHERE s.a < t.b AND u.c < v.d AND u.k > s.i AND t.j > s.i "
        "AND v.l > u.k",
        " AND s.a2 = s.a AND s.a = 3",
        None,
        id="C3 along the order of time",
    ),
]


def _and(query: str, more: str) -> str:
    return query + more if " WHERE " in query else query + more.replace(" AND ", " WHERE ", 1)


@pytest.mark.parametrize(("condition", "query", "more", "structural"), PRESERVING)
def test_a_condition_of_theorem_1_fails_alone(
    condition: str, query: str, more: str, structural: bool
) -> None:
    verdict = check(sql(query))
    assert verdict.bounded is False
    assert {f.condition for f in verdict.failures} == {condition}
    assert verdict.certain is not structural
    assert check(sql(_and(query, more))).bounded


@pytest.mark.parametrize(("condition", "query", "more", "bounded"), ELIMINATING)
def test_a_condition_of_theorem_2_fails_alone(
    condition: str, query: str, more: str, bounded: bool | None
) -> None:
    verdict = check(sql(query))
    assert verdict.bounded is bounded
    assert {f.condition for f in verdict.failures} == {condition}
    assert check(sql(_and(query, more))).bounded


@pytest.mark.parametrize(
    "query",
    [p.values[1] for p in PRESERVING + ELIMINATING],
    ids=[p.id or "" for p in PRESERVING + ELIMINATING],
)
def test_failures_name_atoms_or_columns_and_repairs_are_offered(query: str) -> None:
    union = sql(query)
    verdict = check(union)
    for failure in verdict.failures:
        assert failure.streams
        assert failure.atoms or failure.columns or not failure.joins
        for atom in failure.atoms:
            assert atom.place is not None
            assert query[atom.place.start : atom.place.end] == atom.text
        for place in failure.columns:
            assert query[place.start : place.end] in {str(a) for a in failure.attributes}
    assert repairs(union, verdict)


@pytest.mark.parametrize(("condition", "query", "more", "structural"), PRESERVING)
def test_what_fails_for_the_form_of_synopses_alone_can_be_run(
    condition: str, query: str, more: str, structural: bool
) -> None:
    if structural:
        assert Run(sql(query), STREAMS, {}).entries == 0
    else:
        with pytest.raises(UsageError, match="unbounded memory"):
            Run(sql(query), STREAMS, {})


def test_what_equals_a_constant_is_no_join_between_streams() -> None:
    """Out of reach of each other as t and s are, each checks its own attribute."""
    apart = "SELECT 1 FROM s, t, u WHERE t.j < u.k AND s.a = 1 AND t.b = 1"
    assert check(sql(apart)).bounded
    assert (
        check(sql(apart.replace("s.a = 1 AND t.b = 1", "s.a = t.b AND t.b > 0 AND t.b < 3"))).bounded is False
    )


def test_the_smallest_repairs_come_first() -> None:
    union = sql(f"SELECT DISTINCT s.a, t.b FROM s, t, u WHERE {CHAIN} AND s.a > t.b AND 0 < t.b AND t.b < 5")
    told = [str(r) for r in repairs(union, check(union))]
    assert told[0].startswith("bound s.a:")
    assert "project s.a away" in told
    assert "keep duplicates (drop DISTINCT)" in told


def test_a_repair_never_contradicts_the_query() -> None:
    union = sql("SELECT s.a FROM s, t WHERE s.i < t.j")
    assert not any("s.i > t.j" in str(r) for r in repairs(union, check(union)))


def test_two_changes_are_offered_where_one_is_not_enough() -> None:
    union = sql("SELECT DISTINCT s.a, s.a2 FROM s")
    (first, *_) = repairs(union, check(sql("SELECT DISTINCT s.a, s.a2 FROM s")))
    assert str(first) == "keep duplicates (drop DISTINCT)"
    union = sql("SELECT s.a, t.b FROM s, t")
    found = repairs(union, check(union))
    assert all(len(r.bounds) + len(r.others) == 2 for r in found)
    assert found


def test_a_stream_named_twice_leaves_doubt() -> None:
    """The paper excludes it, so its theorem proves nothing in the negative."""
    verdict = check(sql("SELECT 1 FROM s AS one, s AS other WHERE one.a = other.a"))
    assert (verdict.bounded, verdict.certain) == (False, False)
