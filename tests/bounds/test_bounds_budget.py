"""Queries that split into exponentially many conjunctions get a verdict, or none, within a step limit."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import pytest

from skws_bounds import repairs as changes
from skws_bounds import run as runs
from skws_bounds import verdict as verdicts
from skws_bounds.normal_form import Union
from skws_bounds.repairs import repairs
from skws_bounds.run import Run
from skws_bounds.sql import parse_sql
from skws_bounds.verdict import check
from skws_schema.errors import UsageError
from skws_schema.model import Schema
from tests.bounds.bounds_queries import stream

NAMES: Final = [f"a{i}" for i in range(20)]
SCHEMA: Final = Schema("wide", (stream("s", "i", *NAMES), stream("t", "j", *NAMES)), ())


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (verdicts, runs, changes):
        monkeypatch.setattr(module, "MOST_STEPS", 3_000)


def sql(where: list[str], *, output: str = "s.a0", streams: str = "s, t") -> Union:
    return parse_sql(f"SELECT {output} FROM {streams} WHERE {' AND '.join(where)}", SCHEMA)


@pytest.mark.usefixtures("few_steps")
def test_what_fails_before_the_steps_are_spent_is_told() -> None:
    union = sql([f"s.{name} <> t.{name}" for name in NAMES])
    found = check(union)
    assert found.bounded is False
    assert {failure.condition for failure in found.failures} >= {"C5"}
    assert repairs(union, found) == ()


@pytest.mark.usefixtures("few_steps")
def test_what_passes_until_the_steps_are_spent_is_not_called_bounded() -> None:
    union = sql([f"s.{a} <> s.{b}" for a, b in pairwise(NAMES)], streams="s")
    found = check(union)
    assert found.bounded is None
    (failure,) = found.failures
    assert failure.condition == "orders"
    assert "each of 19 comparisons by <>, <= or >= doubles them; compare by <, > or =" in failure.message
    with pytest.raises(UsageError, match="orders of attributes"):
        Run(union, SCHEMA, {})


def test_a_long_list_splits_into_few_conjunctions() -> None:
    union = sql([f"s.a0 NOT IN ({', '.join(map(str, range(99)))})"], streams="s")
    assert check(union).bounded is True


def test_queries_of_a_union_share_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    one = f"SELECT s.a0 FROM s WHERE {' AND '.join(f's.a{i} <> s.a{i + 1}' for i in range(3))}"
    union = parse_sql(" UNION ALL ".join([one] * 8), SCHEMA)
    assert check(union).bounded is True
    monkeypatch.setattr(verdicts, "MOST_STEPS", 300)
    assert check(parse_sql(one, SCHEMA)).bounded is True
    assert check(union).bounded is None
