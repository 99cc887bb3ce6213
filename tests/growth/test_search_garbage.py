"""A search leaves no reference cycles, since its arrays are too large to wait for the garbage collector."""

from __future__ import annotations

import gc

import pytest

from skws.data.batch import Record, RecordBatch
from skws.queries.kinds import plan_of
from skws.queries.session import Session
from skws.spec.query_spec import RANK, Query, Stream
from skws_schema.model import Attribute, AttributeType, Join, Relation, Schema
from skws_windows.window import Unbounded

TEXT = Attribute("t", AttributeType.TEXT)
SCHEMA = Schema(
    "garbage",
    (
        Relation("one", (Attribute("x", AttributeType.INTEGER), TEXT), key=("x",), search=("t",)),
        Relation("many", (Attribute("x", AttributeType.INTEGER), TEXT), search=("t",)),
    ),
    (Join("join", "many", "one", (("x", "x"),)),),
)


@pytest.mark.parametrize("text", ["alpha beta", "alpha beta gamma", "alp* -gamma", "nothing alpha"])
def test_searches_leave_no_cycles(text: str) -> None:
    session = Session(Stream(SCHEMA, Unbounded()))
    words = ("alpha", "beta", "gamma delta", "alpha beta")
    rows = [Record(n % 2, n, (n // 2 % 40, words[n % 4])) for n in range(400)]
    session.take(RecordBatch.of(rows))
    plan = plan_of(Query(text, options={RANK: "relevance"}).named("q", 3), session.stream)
    first_answer = session.search(plan, 5)  # caches are filled once
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        second_answer = session.search(plan, 5)
        gc.collect()
        garbage = [item for item in gc.garbage if type(item).__module__.startswith("skws")]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert [result.id for result in second_answer.results] == [result.id for result in first_answer.results]
    assert garbage == []
