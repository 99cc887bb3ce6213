"""The columnar engine gives what the tuple-at-a-time engine gives: records, order and counts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import skws.data.batch
from skws.data.record import OnLate, Record
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.keywords.columnar import ColumnarEngine
from skws.queries.keywords.engine import Engine
from skws_schema.model import Schema
from skws_windows.window import CountWindow, TimeWindow, Unbounded, Window
from tests.paper_modes import by_delta
from tests.strategies import WORDS, Case, cases, examples

WINDOWS: list[Window] = [TimeWindow(2), TimeWindow(9), CountWindow(1), CountWindow(5), Unbounded()]


@pytest.mark.parametrize("size", [1, pytest.param(4, marks=pytest.mark.slow), 8192])
@given(cases(40), st.sampled_from(WINDOWS), st.booleans())
@examples(100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_equal_record_for_record(
    monkeypatch: pytest.MonkeyPatch,
    size: int,
    case: Case,
    window: Window,
    exclude: bool,
) -> None:
    monkeypatch.setattr(skws.data.batch, "BATCH", size)
    schema, words, static, stream = case
    text = " ".join(WORDS[:words]) + (" -gamma" if exclude and words < 3 else "")
    plan = Plan(schema, parse_query(text, schema), window, 3)
    engines = Engine(plan), ColumnarEngine.of(plan), by_delta(plan)
    outputs = [[*engine.load_tables(static), *engine.process(stream)] for engine in engines]
    assert outputs[1] == outputs[0]
    assert engines[1].counts == engines[0].counts


def test_records_before_their_time_are_counted_and_told() -> None:
    told: dict[Callable[..., Engine | ColumnarEngine], list[Record]] = {Engine: [], ColumnarEngine.of: []}
    schema = _schema()
    plan = Plan(schema, parse_query("alpha", schema), TimeWindow(100))
    stream = [Record(0, t, ("alpha", t, 0)) for t in (5, 7, 6, 7, 9, 1)]
    for make, heard in told.items():
        engine = make(plan, heard_by(heard))
        assert len(list(engine.process(stream))) == 4
        assert engine.counts.late == 2
    assert told[Engine] == told[ColumnarEngine.of] == [stream[2], stream[5]]


def heard_by(kept: list[Record]) -> OnLate:
    return lambda record, _: kept.append(record)


@given(cases(40), st.sampled_from(WINDOWS[:2]), st.sampled_from([0, 1, 3, 9]), st.data())
@examples(150)
def test_late_records_are_dropped_or_joined_alike(
    case: Case, window: Window, lateness: int, data: st.DataObject
) -> None:
    schema, words, static, stream = case
    # Records of one identity at one time have an order of their own, which a shuffle must keep.
    stream = data.draw(st.permutations([r._replace(time=2 * i + r.time) for i, r in enumerate(stream)]))
    query = parse_query(" ".join(WORDS[:words]), schema)
    cut = data.draw(st.integers(0, len(stream)))
    spans, dropped = [], []
    for make in (Engine, ColumnarEngine.of):
        late: list[Record] = []
        engine = make(
            Plan(schema, query, window, 3, lateness=lateness),
            heard_by(late),
        )
        told = [*engine.load_tables(static), *engine.process(stream[:cut]), *engine.process(stream[cut:])]
        spans.append({r.id: (r.start, r.end) for r in told})
        dropped.append((engine.counts.late, late))
    lived = [{i: s for i, s in each.items() if s[0] is None or s[1] is None or s[0] < s[1]} for each in spans]
    assert lived[1] == lived[0]
    assert dropped[1] == dropped[0]


def test_compaction_keeps_what_lives() -> None:
    """Thousands of tuples pass; only a window of them is kept, and all results are found."""
    schema = _schema()
    plan = Plan(schema, parse_query("alpha beta", schema), TimeWindow(50), 2)
    words = ("alpha pad", "beta pad", "pad", "pad")
    stream = [Record(0, t, (words[t % 4], t // 4 % 7, None)) for t in range(20_000)]
    columnar, one_by_one = ColumnarEngine.of(plan), Engine(plan)
    sizes = []
    for first in range(0, len(stream), 500):
        chunk = stream[first : first + 500]
        assert list(columnar.process(chunk)) == list(one_by_one.process(chunk))
        sizes.append(columnar.live_tuples)
    assert columnar.counts.results > 1000
    assert max(sizes) < 5000


def _schema() -> Schema:
    from skws_schema.model import Attribute, AttributeType, Join, Relation

    kinds = (("t", AttributeType.TEXT), ("x", AttributeType.INTEGER), ("y", AttributeType.INTEGER))
    relation = Relation("r", tuple(Attribute(n, k) for n, k in kinds), search=("t",))
    return Schema("s", (relation,), (Join("j", "r", "r", (("x", "x"),)),))
