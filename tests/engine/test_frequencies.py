"""Keyword frequencies are counted and order the mesh; results do not depend on them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schema.errors import UsageError
from schema.model import Attribute, AttributeType, Join, Relation, Schema
from skws.engine.engine import Engine
from skws.frequencies import KeywordFrequencies, ordered_by
from skws.keywords import parse_query
from skws.plan import Plan
from skws.records import Record
from windows.window import TimeWindow

TEXT = (Attribute("t", AttributeType.TEXT), Attribute("x", AttributeType.INTEGER))
SCHEMA = Schema(
    "s",
    (Relation("a", TEXT, search=("t",)), Relation("b", TEXT, search=("t",))),
    (Join("ab", "a", "b", (("x", "x"),)),),
)
STREAM = [
    Record(0, 1, ("alpha", 1)),
    Record(1, 2, ("alpha beta", 1)),
    Record(0, 3, ("alpha no", 1)),
    Record(0, 4, ("pad", 1)),
    Record(1, 5, ("beta", 1)),
    Record(0, 6, ("alpha", 1)),
]


def test_shares() -> None:
    seen = KeywordFrequencies(2)
    assert seen.shares is None
    for keywords in (0b00, 0b01, 0b11, 0b01):
        seen.observe(keywords)
    assert seen.shares == (0.75, 0.25)


@pytest.mark.parametrize("mesh", ["hashed", "full", "partial", "forest"])
def test_the_order_of_the_mesh_does_not_change_results(mesh: str) -> None:
    plan = Plan(SCHEMA, parse_query("alpha beta -no", SCHEMA), TimeWindow(100), mesh=mesh)
    first = Engine(plan)
    expected = [r.id for r in first.process(STREAM)]
    observed = ordered_by(plan, STREAM)
    assert observed.frequencies == first.frequencies.shares == (0.6, 0.4)
    assert observed.generator().order.root_keyword == 1
    assert [r.id for r in Engine(observed).process(STREAM)] == expected
    assert first.counts.excluded == 1


def test_unknown_meshes_and_purges_are_refused() -> None:
    plan = Plan(SCHEMA, parse_query("alpha", SCHEMA), TimeWindow(100))
    with pytest.raises(UsageError, match=r"mesh 'parital': expected one of hashed.*did you mean 'partial'"):
        replace(plan, mesh="parital")
    with pytest.raises(UsageError, match="purge 'never': expected one of lazy, eager"):
        replace(plan, purge="never")
