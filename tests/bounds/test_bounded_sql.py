"""SQL in normal form; refused SQL is reported with its position."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

import pytest

from skws_bounds import repairs as changes
from skws_bounds import run as runs
from skws_bounds import verdict as verdicts
from skws_bounds.normal_form import Constant, Domain, Kind, Union
from skws_bounds.repairs import repairs
from skws_bounds.run import Run
from skws_bounds.sql import parse_sql
from skws_bounds.verdict import check
from skws_schema.comparison import Op
from skws_schema.errors import SqlError, UsageError
from skws_schema.model import Attribute, AttributeType, Relation, Schema
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


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("SELECT s.a FROM s WHERE s.z > 3", (24, 27), "no attribute 'z' in s: there are a, a2, i"),
        ("SELECT s.a FROM ss", (16, 18), "no relation 'ss'"),
        ("SELECT q.a FROM s", (7, 10), "no stream of this query 'q'"),
        ("SELECT s.a FROM s, s", (19, 20), "'s' is there twice"),
        (
            "SELECT s.a FROM s,\n t WHERE s.a >\n t.j",
            (28, 39),
            "s.a is an integer, t.j is an application time",
        ),
        ("SELECT s.i FROM s", (7, 10), "application time, which cannot be projected out"),
        ("SELECT s.a FROM s WHERE s.a > 'x'", (30, 33), "expected an integer to compare s.a with, found 'x'"),
        ("SELECT s.a FROM s WHERE s.i > 'soon'", (30, 36), "expected a timestamp"),
        ("SELECT s.a FROM s WHERE s.a = 1 OR s.a = 3", (24, 42), "OR is not select-project-join"),
        ("SELECT count(s.a) FROM s", (7, 16), "aggregates are not select-project-join"),
        ("SELECT s.a FROM s GROUP BY s.a", (27, 30), "GROUP BY is not select-project-join"),
        ("SELECT s.a FROM s LEFT JOIN t ON s.a = t.b", (28, 42), "only inner joins"),
        ("SELECT s.a FROM s WHERE 1 < 2", (24, 29), "two constants are compared"),
        ("SELECT s.a FROM s WHERE s.a + 1 > 2", (24, 31), "is not an attribute, a constant"),
        ("SELECT s.a FROM s WHERE s.a IS NOT NULL", (24, 27), "IS NOT NULL may be left out"),
        ("SELECT s.a FROM s WHERE s.a IS NULL", (24, 27), "NULL satisfies no comparison"),
        ("SELECT * FROM s", (7, 8), "name what is projected out"),
        ("SELECT s.a FRM s WHERE", (15, 16), "this is not SQL from 's' on"),
        ("SELECT s.a FROM s; SELECT s.a FROM s", (0, 36), "expected one SELECT, found 2"),
        ("DELETE FROM s", (0, 13), "expected SELECT, found DELETE"),
        ("SELECT s.a FROM s WHERE s.a = 'x", (0, 1), "does not end"),
        ("SELECT s.a FROM s UNION ALL SELECT s.a, s.a2 FROM s", (7, 51), "as many columns"),
    ],
)
def test_what_is_refused_is_named_with_its_place(text: str, place: tuple[int, int], message: str) -> None:
    with pytest.raises(SqlError) as caught:
        sql(text)
    told = str(caught.value)
    assert message in told
    line = text.count("\n", 0, place[0]) + 1
    column = place[0] - text.rfind("\n", 0, place[0])
    assert told.startswith(f"line {line}, column {column}: "), told
    end = min([place[1], *(i for i in [text.find("\n", place[0])] if i >= 0)])
    assert told.splitlines()[-1] == "  " + " " * (column - 1) + "^" * (end - place[0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT p.n FROM p WHERE p.x > 'a'", "p.x is a text: expected = or <>"),
        ("SELECT p.n FROM p WHERE p.b > TRUE", "p.b is a boolean: expected = or <>"),
        ("SELECT p.n FROM p WHERE p.at > p.time", "p.at is a timestamp, p.time is an application time"),
    ],
)
def test_comparisons_that_mean_nothing_are_refused(text: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        sql(text, TYPED)


def test_a_query_in_normal_form() -> None:
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


def test_unions_tell_whether_duplicates_count() -> None:
    part = "SELECT s.a FROM s"
    assert not sql(f"{part} UNION ALL {part}").distinct
    assert sql(f"{part} UNION {part}").distinct
    with pytest.raises(SqlError, match="mixed"):
        sql(f"{part} UNION {part} UNION ALL {part}")
    with pytest.raises(SqlError, match="DISTINCT within a UNION ALL"):
        sql(f"SELECT DISTINCT s.a FROM s UNION ALL {part}")


def test_columns_of_one_name_are_told_apart() -> None:
    (query,) = sql("SELECT one.a, other.a, one.a FROM s one, s other").queries
    assert query.names == ("one.a", "other.a", "one.a_2")


def test_bounds_of_the_schema_are_promised_not_filtered() -> None:
    (query,) = sql("SELECT p.k FROM p", TYPED).queries
    assert {str(a.left) for a in query.atoms} == {"p.k", "p.n", "p.b"}
    assert all(a.assumed for a in query.atoms)
    # Those of fractions as the next integers beyond them, so that nothing has to be split.
    ends = [(a.op, a.right) for a in query.atoms if str(a.left) == "p.n"]
    assert ends == [
        (Op.GREATER, Constant(-1, Domain.INTEGER)),
        (Op.LESS, Constant(2, Domain.INTEGER)),
    ]


def test_a_record_without_a_time_attribute_has_its_own_time() -> None:
    (query,) = sql("SELECT p.k FROM p, p AS q WHERE p.time > q.time", TYPED).queries
    assert query.streams[0].clock.name == "time"


def test_names_are_found_in_either_case() -> None:
    assert str(sql("SELECT S.A FROM s", STREAMS).queries[0].output[0]) == "s.a"


# Clauses that the parser knows, and the column at which each is told.
PASSED_OVER = [
    ("SELECT DISTINCT ON (s.a) s.a FROM s", 21, "DISTINCT ON is not select-project-join"),
    ("SELECT s.a FROM s TABLESAMPLE (10 PERCENT)", 32, "expected the name of a relation"),
    ("SELECT s.a FROM s FOR UPDATE", 8, "FOR UPDATE is not select-project-join"),
    ("SELECT s.a INTO x FROM s", 17, "INTO is not select-project-join"),
    ("SELECT s.a FROM db.s", 17, "expected the name of a relation"),
    ("SELECT db.s.a FROM s", 8, "expected an attribute, or stream.attribute"),
    ("SELECT s.a FROM s x(a, b)", 21, "expected the name of a relation"),
    ("SELECT s.a FROM s PIVOT (SUM(a) FOR a IN (1))", 26, "expected the name of a relation"),
    ("SELECT s.a FROM s CLUSTER BY a", 30, "CLUSTER is not select-project-join"),
    ("SELECT AS STRUCT s.a FROM s", 18, "KIND is not select-project-join"),
    ("SELECT s.a FROM s WHERE s.a = CAST(5.7 AS INT)", 36, "a constant is cast to a timestamp only"),
    ("SELECT s.a FROM s WHERE s.a BETWEEN SYMMETRIC 5 AND 1", 25, "SYMMETRIC is not"),
    ("SELECT s.a FROM s UNION ALL SELECT t.b FROM t LIMIT 5", 53, "LIMIT is not select-project-join"),
    ("SELECT s.a FROM s UNION ALL SELECT t.b FROM t ORDER BY 1", 56, "ORDER BY is not"),
    ("SELECT s.a FROM s UNION BY NAME SELECT t.b FROM t", 8, "BY NAME is not select-project-join"),
    ("(SELECT s.a FROM s) LIMIT 1", 27, "LIMIT is not select-project-join"),
    ("WITH x AS (SELECT 1) SELECT s.a FROM s UNION SELECT t.b FROM t", 6, "WITH is not"),
    ("SELECT s.a FROM s UNION ALL SELECT DISTINCT t.b FROM t", 8, "DISTINCT within a UNION ALL"),
    ("SELECT DISTINCT s.a FROM s UNION ALL SELECT DISTINCT t.b FROM t", 17, "DISTINCT within a UNION ALL"),
    ("SELECT s.a FROM s WHERE s.a = NULL", 25, "NULL is not an attribute"),
    ("SELECT s.a FROM s WHERE s.a > 1e400", 31, "1e400 is too large a number"),
    ("SELECT s.a FROM s WHERE s.a > 2e", 31, "2e is not a number"),
    ("SELECT s.a FROM s NATURAL JOIN t", 32, "only inner joins with ON"),
    ("  DELETE FROM s", 3, "expected SELECT, found DELETE"),
    (f"SELECT {'(' * 2000}s.a{')' * 2000} FROM s", 1, "nested too deeply"),
    (f"SELECT s.a FROM s WHERE s.a NOT IN ({', '.join(map(str, range(101)))})", 8, "101 comparisons"),
]


@pytest.mark.parametrize(("text", "column", "message"), PASSED_OVER)
def test_what_would_be_passed_over_is_refused_at_its_place(text: str, column: int, message: str) -> None:
    with pytest.raises(SqlError) as told:
        sql(text)
    assert re.match(rf"line 1, column {column}: .*{re.escape(message)}", str(told.value)), str(told.value)


NAMES: Final = [f"a{i}" for i in range(20)]
SCHEMA: Final = Schema("wide", (stream("s", "i", *NAMES), stream("t", "j", *NAMES)), ())


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (verdicts, runs, changes):
        monkeypatch.setattr(module, "MOST_STEPS", 3_000)


def of_sql(where: list[str], *, output: str = "s.a0", streams: str = "s, t") -> Union:
    return parse_sql(f"SELECT {output} FROM {streams} WHERE {' AND '.join(where)}", SCHEMA)


@pytest.mark.usefixtures("few_steps")
def test_what_fails_before_the_steps_are_spent_is_told() -> None:
    union = of_sql([f"s.{name} <> t.{name}" for name in NAMES])
    found = check(union)
    assert found.bounded is False
    assert {failure.condition for failure in found.failures} >= {"C5"}
    assert repairs(union, found) == ()


@pytest.mark.usefixtures("few_steps")
def test_what_passes_until_the_steps_are_spent_is_not_called_bounded() -> None:
    union = of_sql([f"s.{a} <> s.{b}" for a, b in pairwise(NAMES)], streams="s")
    found = check(union)
    assert found.bounded is None
    (failure,) = found.failures
    assert failure.condition == "orders"
    assert "each of 19 comparisons by <>, <= or >= doubles them; compare by <, > or =" in failure.message
    with pytest.raises(UsageError, match="orders of attributes"):
        Run(union, SCHEMA, {})


def test_a_long_list_splits_into_few_conjunctions() -> None:
    union = of_sql([f"s.a0 NOT IN ({', '.join(map(str, range(99)))})"], streams="s")
    assert check(union).bounded is True


def test_queries_of_a_union_share_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    one = f"SELECT s.a0 FROM s WHERE {' AND '.join(f's.a{i} <> s.a{i + 1}' for i in range(3))}"
    union = parse_sql(" UNION ALL ".join([one] * 8), SCHEMA)
    assert check(union).bounded is True
    monkeypatch.setattr(verdicts, "MOST_STEPS", 300)
    assert check(parse_sql(one, SCHEMA)).bounded is True
    assert check(union).bounded is None
