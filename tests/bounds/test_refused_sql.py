"""SQL beyond select-project-join is refused with its position; no part of a query is ignored."""

from __future__ import annotations

import re

import pytest

from skws_schema.errors import SqlError
from tests.bounds.bounds_queries import sql

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
