"""SQL is read into normal form; errors for unsupported SQL have a position."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import pytest

from skws_bounds.normal_form import Constant, Domain, Kind, Union
from skws_bounds.query_run import UnionRun
from skws_bounds.repairs import repairs
from skws_bounds.sql_reader import parse_sql
from skws_bounds.verdict import check
from skws_schema.budgets import within_steps
from skws_schema.errors import BadRecordsError, SqlError, UsageError
from skws_schema.model import Attribute, AttributeType, Op, Relation, Schema
from tests.bounds.bounds_queries import STREAMS, sql, stream

TYPED = Schema(
    "typed",
    (
        Relation(
            "p",
            (
                Attribute("n", AttributeType.NUMBER, 0, 1),
                Attribute("x", AttributeType.TEXT),
                Attribute("b", AttributeType.BOOLEAN),
                Attribute("k", AttributeType.INTEGER, 0, 9),
                Attribute("at", AttributeType.TIMESTAMP),
            ),
        ),
    ),
    (),
)


def test_sql_is_read_into_normal_form() -> None:
    (query,) = sql(
        "select A, r.x, 3 as three from s join t on s.i >= t.j, r "
        "where not s.a <> t.b and t.b between 1 and 4"
    ).queries
    assert [(s.alias, s.kind) for s in query.streams] == [
        ("s", Kind.INFINITE),
        ("t", Kind.INFINITE),
        ("r", Kind.STATIC),
    ]
    assert [str(t) for t in query.output] == ["s.a", "r.x", "3"]
    assert query.names == ("A", "x", "three")
    assert [(str(a.left), a.op, str(a.right)) for a in query.atoms] == [
        ("s.i", Op.AT_LEAST, "t.j"),
        ("s.a", Op.EQUAL, "t.b"),
        ("t.b", Op.AT_LEAST, "1"),
        ("t.b", Op.AT_MOST, "4"),
    ]


def test_in_makes_a_union_and_not_in_does_not() -> None:
    assert len(sql("SELECT s.a FROM s WHERE s.a IN (1, 2, 2) AND s.a2 IN (4, 5)").queries) == 4
    (query,) = sql("SELECT s.a FROM s WHERE s.a NOT IN (1, 2)").queries
    assert [a.op for a in query.atoms] == [Op.DIFFERENT, Op.DIFFERENT]


def test_only_union_without_all_is_distinct() -> None:
    part = "SELECT s.a FROM s"
    assert not sql(f"{part} UNION ALL {part}").distinct
    assert sql(f"{part} UNION {part}").distinct
    with pytest.raises(SqlError, match="mixed"):
        sql(f"{part} UNION {part} UNION ALL {part}")
    with pytest.raises(SqlError, match="DISTINCT within a UNION ALL"):
        sql(f"SELECT DISTINCT s.a FROM s UNION ALL {part}")


def test_output_columns_of_the_same_name_get_distinct_names() -> None:
    (query,) = sql("SELECT one.a, other.a, one.a FROM s one, s other").queries
    assert query.names == ("one.a", "other.a", "one.a_2")


def test_bounds_of_the_schema_become_assumed_atoms() -> None:
    (query,) = sql("SELECT p.k FROM p", TYPED).queries
    assert {str(a.left) for a in query.atoms} == {"p.k", "p.n", "p.b"}
    assert all(a.assumed for a in query.atoms)
    # Fractions become the next integers beyond them, so that nothing has to be split.
    bounds = [(a.op, a.right) for a in query.atoms if str(a.left) == "p.n"]
    assert bounds == [
        (Op.GREATER, Constant(-1, Domain.INTEGER)),
        (Op.LESS, Constant(2, Domain.INTEGER)),
    ]


def test_a_relation_without_a_time_attribute_is_timed_by_its_records() -> None:
    (query,) = sql("SELECT p.k FROM p, p AS q WHERE p.time > q.time", TYPED).queries
    assert query.streams[0].clock.name == "time"


def test_sql_names_ignore_case() -> None:
    assert str(sql("SELECT S.A FROM s", STREAMS).queries[0].output[0]) == "s.a"


# Texts too long for a golden script; sql/errors has the others.
@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        (f"SELECT {'(' * 2000}s.a{')' * 2000} FROM s", 1, "nested too deeply"),
        (f"SELECT s.a FROM s WHERE s.a NOT IN ({', '.join(map(str, range(101)))})", 8, "101 comparisons"),
    ],
)
def test_oversized_sql_is_rejected_with_its_position(text: str, column: int, message: str) -> None:
    with pytest.raises(SqlError, match=rf"line 1, column {column}: .*{message}"):
        sql(text)


NAMES: Final = [f"a{i}" for i in range(20)]
SCHEMA: Final = Schema("wide", (stream("s", "i", *NAMES), stream("t", "j", *NAMES)), ())


@pytest.fixture
def few_steps() -> Iterator[None]:
    with within_steps(3_000):
        yield


def wide_query(where: list[str], *, output: str = "s.a0", streams: str = "s, t") -> Union:
    return parse_sql(f"SELECT {output} FROM {streams} WHERE {' AND '.join(where)}", SCHEMA)


@pytest.mark.usefixtures("few_steps")
def test_a_failure_found_within_the_step_budget_is_reported() -> None:
    union = wide_query([f"s.{name} <> t.{name}" for name in NAMES])
    verdict = check(union)
    assert verdict.bounded is False
    assert {failure.condition for failure in verdict.failures} >= {"C5"}
    assert repairs(union, verdict) == ()


@pytest.mark.check
@pytest.mark.usefixtures("few_steps")
def test_a_query_that_exhausts_the_step_budget_is_undecided() -> None:
    union = wide_query([f"s.{a} <> s.{b}" for a, b in pairwise(NAMES)], streams="s")
    verdict = check(union)
    assert verdict.bounded is None
    (failure,) = verdict.failures
    assert failure.condition == "orders"
    assert "each of 19 comparisons by <>, <= or >= doubles them; compare by <, > or =" in failure.message
    with pytest.raises(UsageError, match="orders of attributes"):
        UnionRun(union, SCHEMA, {})


def test_a_long_list_splits_into_few_conjunctions() -> None:
    union = wide_query([f"s.a0 NOT IN ({', '.join(map(str, range(99)))})"], streams="s")
    assert check(union).bounded is True


def test_queries_of_a_union_share_the_step_budget() -> None:
    query = f"SELECT s.a0 FROM s WHERE {' AND '.join(f's.a{i} <> s.a{i + 1}' for i in range(3))}"
    union = parse_sql(" UNION ALL ".join([query] * 8), SCHEMA)
    assert check(union).bounded is True
    with within_steps(300):
        assert check(parse_sql(query, SCHEMA)).bounded is True
        assert check(union).bounded is None


@pytest.mark.parametrize(
    "condition", ["a.n < b.n AND b.n < 1.5 AND b.k < 1", "a.n < b.k AND a.n > 0.5 AND b.k < 1.5 AND a.k > 0"]
)
def test_a_query_that_does_not_run_is_not_bounded(condition: str) -> None:
    """Not even if two constants, such as 1 and 1.5, have the same integer part."""
    union = parse_sql(f"SELECT 1 FROM p AS a, p AS b WHERE {condition}", TYPED)
    with pytest.raises(UsageError, match="unbounded memory"):
        UnionRun(union, TYPED, {})
    assert check(union).bounded is False


def test_an_attribute_called_time_is_not_the_time_of_the_record() -> None:
    """It has its own type and bounds; the time of the record gets another name."""
    laps = Relation(
        "laps",
        (Attribute("time", AttributeType.INTEGER, 0, 300), Attribute("driver", AttributeType.INTEGER, 0, 9)),
    )
    schema = Schema("race", (laps, stream("t", "j", "b")), ())
    union = parse_sql(
        "SELECT laps.driver FROM laps, t WHERE laps.time < 90 AND laps.record_time < t.j", schema
    )
    (query,) = union.queries
    assert [(s.kind, str(s.time)) for s in query.streams] == [
        (Kind.INFINITE, "laps.record_time"),
        (Kind.INFINITE, "t.j"),
    ]
    run, hour = UnionRun(union, schema, {}), 3_600_000_000
    assert run.step(hour, {"laps": [(80, 1), (95, 2)], "t": [(0, hour)]}) == []
    assert run.step(2 * hour, {"laps": [], "t": [(0, 2 * hour)]}) == [((1,), 1)]


def test_large_constants_are_exact() -> None:
    (query,) = sql("SELECT s.a FROM s WHERE s.a = 9223372036854775807.0 AND s.a2 < 1e23").queries
    assert [a.right for a in query.atoms] == [Constant(n, Domain.INTEGER) for n in (2**63 - 1, 10**23)]


def test_equal_constants_and_aliases_get_distinct_names() -> None:
    (query,) = sql('SELECT 1, 1, s.a AS "1_2", s.a AS x, s.a2 AS x FROM s').queries
    assert query.names == ("1", "1_2", "1_2_2", "s.a", "s.a2")


def test_long_in_lists_are_refused_at_once() -> None:
    """Their 10^16 combinations are counted without being built."""
    values = ", ".join(map(str, range(100)))
    lists = " AND ".join(f"s.{name} IN ({values})" for name in ("a", "a2") * 4)
    with pytest.raises(SqlError, match="the IN lists make 10000000000000000 cases; expected at most 256"):
        sql(f"SELECT s.a FROM s WHERE {lists}")


@pytest.mark.parametrize(
    ("kind", "bounds", "value", "message"),
    [
        (AttributeType.INTEGER, (1, 9), 12, r"s.a is 12, but the schema promises 1 to 9;"),
        (AttributeType.INTEGER, (None, 9), 12, r"s.a is 12, but the schema promises at most 9;"),
        (AttributeType.NUMBER, (0.5, None), 0.25, r"s.a is 0.25, but the schema promises at least 0.5;"),
        (
            AttributeType.TIMESTAMP,
            (1_000_000, 2_000_000),
            3_000_000,
            "s.a is 1970-01-01T00:00:03Z, but .* promises 1970-01-01T00:00:01Z to 1970-01-01T00:00:02Z;",
        ),
    ],
)
def test_a_broken_promise_is_reported_with_its_bounds(
    kind: AttributeType, bounds: tuple[float | None, float | None], value: float, message: str
) -> None:
    schema = Schema("promised", (Relation("s", (Attribute("a", kind, *bounds),)),), ())
    run = UnionRun(parse_sql("SELECT 1 FROM s", schema), schema, {})
    with pytest.raises(BadRecordsError, match=message):
        run.step(1, {"s": [(value,)]})


def test_no_column_of_one_query_of_a_union_is_projected_away() -> None:
    """Otherwise the queries of the union would have different numbers of columns."""
    bounds = "0 < t.b AND t.b < 5 AND 0 < t.b2 AND t.b2 < 5"
    first = "SELECT s.a, s.a2 FROM s WHERE 0 < s.a2 AND s.a2 < 5"
    union = sql(f"{first} UNION SELECT t.b, t.b2 FROM t WHERE {bounds}")
    single = sql(first.replace("SELECT", "SELECT DISTINCT"))
    texts = [[str(repair) for repair in repairs(u, check(u))] for u in (single, union)]
    assert ["project s.a away" in text for text in texts] == [True, False]
