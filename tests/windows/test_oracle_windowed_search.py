"""After every record, a search over window expressions has found what brute force finds."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws.data.record import Record
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.windowed.engine import WindowedEngine
from skws.queries.windowed.plan import WindowPlan
from skws_schema.model import Attribute, AttributeType, Relation, Schema
from skws_windows.window import ExpressionWindow
from tests.oracles.oracle import shape_of
from tests.oracles.windowed import WindowedOracle
from tests.strategies import WORDS, examples, schemas, static_rows, streams
from tests.window_streams import expression_texts

CONDITIONS = (
    "x > 0", "x = y", "y < 1", "x is null", "r0",
    "t:'alpha'", "not t:'beta'",
    "x > x[-1]", "time - time[-1] >= 1 us", "x = x[-1]",
)  # fmt: skip
KEYS = ("", "", "x", "y", "r0.x", "x, r0.y", "y, x")


@st.composite
def cases(draw: st.DrawFn) -> tuple[Plan, list[Record], list[Record]]:
    schema = draw(schemas(tables=True))
    words = draw(st.integers(1, 2))
    window = ExpressionWindow(draw(expression_texts(CONDITIONS, KEYS)))
    query = parse_query(draw(st.sampled_from((" ", " ; "))).join(WORDS[:words]), schema)
    stream = draw(streams(schema, words, 11))
    return Plan(schema, query, window, 3), draw(static_rows(schema, words)), stream


def told(engine: WindowedEngine, records: list[Record]) -> list[tuple[str, float | None, float | None]]:
    return [(r.id, r.start, r.end) for r in engine.process(records)]


@given(cases())
@examples(40)
def test_every_result_of_every_window_is_told_once_at_its_first_end(
    case: tuple[Plan, list[Record], list[Record]],
) -> None:
    plan, static, stream = case
    request = WindowPlan.of_text(plan.schema, plan.window.text)  # type: ignore[union-attr]
    if request.expression.limits.bounding:
        stream = [r for r in stream if not r.delete or plan.schema.relations[r.relation].key_of(r.row)]
    engine = WindowedEngine.of(plan)
    oracle = WindowedOracle(plan, request.compiled(), request.alphabet)
    assert Counter(map(shape_of, engine.load_tables(static))) == oracle.load(static)
    for record in stream:
        found = list(engine.process([record]))
        assert Counter(map(shape_of, found)) == oracle.take(record)
        assert all(r.op == "+" and r.end == record.time / 1e6 for r in found)


def renewed(engine: WindowedEngine, plan: Plan, static: list[Record]) -> WindowedEngine:
    """Another engine with the state of this one, as after a failure."""
    other = WindowedEngine.of(plan)
    list(other.load_tables(static))
    other.restore(orjson.loads(orjson.dumps(engine.state())))
    return other


@given(cases(), st.lists(st.integers(0, 40), max_size=3))
@examples(40)
def test_neither_batches_nor_failures_matter(
    case: tuple[Plan, list[Record], list[Record]], cuts: list[int]
) -> None:
    plan, static, stream = case
    long = [r._replace(time=r.time + i // len(stream) * 100) for i, r in enumerate(stream * 4)]
    single, cut, whole = (WindowedEngine.of(plan) for _ in range(3))
    for engine in (single, cut, whole):
        list(engine.load_tables(static))
    places = [0, *sorted(min(c, len(long)) for c in cuts), len(long)]
    expected = [each for record in long for each in told(single, [record])]
    found = []
    for a, b in pairwise(places):
        found += told(cut, long[a:b])
        cut = renewed(cut, plan, static)
    assert found == expected
    assert told(whole, long) == expected
    assert single.counts == cut.counts == whole.counts


@pytest.mark.parametrize("size", [1, 2, 5, 12])
def test_a_limit_ends_no_tuple_before_its_time(size: int) -> None:
    """Equal rows without a key: each deletion finds the one before it, however the stream is cut."""
    schema = Schema("s", (Relation("r", (Attribute("t", AttributeType.TEXT),), search=("t",)),), ())
    window = ExpressionWindow("every match [r] .* [r] at most 3 records")
    stream = [Record(0, 3 * i + j, ("alpha",), j == 1) for i in range(4) for j in range(3)]
    engine = WindowedEngine.of(Plan(schema, parse_query("alpha", schema), window))
    found = [r.start for at in range(0, 12, size) for r in engine.process(stream[at : at + size])]
    assert engine.counts.unmatched_deletions == 0
    # The deletions at 1, 4, 7, 10 end what came at 0, 2, 5, 8.
    assert found == [t / 1e6 for t in (2, 3, 5, 6, 8, 9, 11)]
