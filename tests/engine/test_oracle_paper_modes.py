"""After every instant each execution mode of the paper has found exactly what brute force finds."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from schema.model import Schema
from skws.engine.engine import Engine
from skws.records import Record
from tests.oracle import Oracle, instants
from tests.paper_modes import MODES, SIZES, engines, ops
from tests.strategies import schemas, static_rows, streams
from windows.window import CountWindow, TimeWindow, Unbounded, Window

WINDOWS: list[Window] = [TimeWindow(1), TimeWindow(3), TimeWindow(8), Unbounded()]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Schema, int, list[Record], list[Record]]:
    schema = draw(schemas(tables=True))
    words = draw(st.integers(1, 3))
    return schema, words, draw(static_rows(schema, words)), draw(streams(schema, words))


@given(cases(), st.sampled_from(WINDOWS))
@settings(max_examples=50, deadline=None)
def test_time_windows(case: tuple[Schema, int, list[Record], list[Record]], window: Window) -> None:
    schema, words, static, stream = case
    running = engines(schema, words, window)
    oracle = Oracle(schema, words, SIZES[words], running[0].plan.matcher.bitmap)
    snapshot = oracle.load([(r.relation, r.row) for r in static])
    for engine in running:
        assert ops(list(engine.load_tables(static)), "+") == snapshot
    length = window.length if isinstance(window, TimeWindow) else float("inf")
    for time, records in instants(stream):
        retracted, appeared = oracle.instant(time, records, length)
        for engine, mode in zip(running, MODES, strict=True):
            results = list(engine.process(records))
            assert (mode, ops(results, "-"), ops(results, "+")) == (mode, retracted, appeared)


@given(cases(), st.integers(1, 6))
@settings(max_examples=25, deadline=None)
def test_count_windows(case: tuple[Schema, int, list[Record], list[Record]], size: int) -> None:
    schema, words, static, stream = case
    running = engines(schema, words, CountWindow(size))
    oracle = Oracle(schema, words, SIZES[words], running[0].plan.matcher.bitmap)
    oracle.load([(r.relation, r.row) for r in static])
    for engine in running:
        list(engine.load_tables(static))
    position = 0
    for record in stream:
        retracted, appeared = oracle.instant(position, [record], size + 1)
        for engine, mode in zip(running, MODES, strict=True):
            results = list(engine.process([record]))
            assert (mode, ops(results, "-"), ops(results, "+")) == (mode, retracted, appeared)
        position += not record.delete


@given(cases(), st.sampled_from(WINDOWS[:3]))
@settings(max_examples=20, deadline=None)
def test_nothing_is_left_when_the_stream_has_expired(
    case: tuple[Schema, int, list[Record], list[Record]], window: Window
) -> None:
    schema, words, _, stream = case
    for engine in engines(schema, words, window):
        list(engine.process(stream))
        engine.expire(10**6)
        assert engine.idle
        if engine.plan.mesh == "partial":
            assert engine.mesh.operators == len(_complete_roots(engine))


def _complete_roots(engine: Engine) -> list[tuple[int, int]]:
    """The nodes with all keywords whose tuples came: their sources are all that stays of a partial mesh."""
    sources = getattr(engine.mesh, "sources")  # noqa: B009 - the interface has no sources
    return [node for node, source in sources.items() if source.complete]


@given(cases(), st.sampled_from(WINDOWS), st.data())
@settings(max_examples=25, deadline=None)
def test_order_of_arrival_does_not_matter_within_lateness(
    case: tuple[Schema, int, list[Record], list[Record]], window: Window, data: st.DataObject
) -> None:
    schema, words, static, stream = case
    # Records of one identity at one time have an order of their own, which a shuffle must keep.
    stream = [r._replace(time=2 * i + r.time) for i, r in enumerate(stream)]
    shuffled = data.draw(st.permutations(stream))
    expected = None
    for engine in engines(schema, words, window, lateness=data.draw(st.sampled_from([8, 10**6]))):
        list(engine.load_tables(static))
        told = [(r.op, r.id, r.end) for record in shuffled for r in engine.process([record])]
        expected = expected or told
        assert told == expected
