"""After every instant each execution mode of the paper has found exactly what brute force finds."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from skws.data.record import Record
from skws.queries.keywords.engine import Engine
from skws_schema.model import Schema
from skws_windows.window import CountWindow, TimeWindow, Unbounded, Window
from tests.oracles.oracle import Oracle, instants
from tests.paper_modes import MODES, SIZES, engines, ops
from tests.strategies import WORDS, Case, cases, examples, schemas, static_rows

WINDOWS: list[Window] = [TimeWindow(1), TimeWindow(3), TimeWindow(8), Unbounded()]


def dense_stream(schema: Schema, words: int, seed: int, size: int) -> list[Record]:
    """Many tuples that join, with deletions and repetitions; drawing element by element gives few of them."""
    random = Random(seed)
    streaming = [i for i, r in enumerate(schema.relations) if not r.table]
    stream: list[Record] = []
    for _ in range(size if streaming else 0):
        time = (stream[-1].time if stream else 0) + random.choice([0, 1, 1, 2, 9])
        if stream and random.random() < 0.2:
            stream.append(random.choice(stream)._replace(time=time, delete=random.random() < 0.7))
            continue
        text = " ".join([w for w in WORDS[:words] if random.random() < 0.25] + ["pad"])
        row = (text, random.choice([0, 0, 1]), random.choice([0, 1, 1, None]))
        stream.append(Record(random.choice(streaming), time, row, delete=False))
    return stream


@given(schemas(tables=True), st.integers(2, 3), st.integers(0, 10**6), st.integers(0, 40), st.data())
@examples(40)
def test_all_modes_give_the_same_on_dense_streams(
    schema: Schema, words: int, seed: int, size: int, data: st.DataObject
) -> None:
    stream, static = dense_stream(schema, words, seed, size), data.draw(static_rows(schema, words))
    windows: list[Window] = [TimeWindow(4), TimeWindow(9), CountWindow(6), Unbounded()]
    window = data.draw(st.sampled_from(windows))
    by_count = isinstance(window, CountWindow)
    if data.draw(st.booleans()):
        stream = [r._replace(time=i) for i, r in enumerate(stream)]
        Random(seed).shuffle(stream)
    expected = None
    for engine in engines(schema, words, window, lateness=data.draw(st.sampled_from([0, 5, 30]))):
        told = [[r.to_json() for r in engine.load_tables(static)]]
        steps = [[record] for record in stream] if by_count else [group for _, group in instants(stream)]
        told += [[r.to_json() for r in engine.process(step)] for step in steps]
        expected = expected or told
        assert told == expected


@given(cases(), st.sampled_from(WINDOWS))
@examples(50)
def test_time_windows(case: Case, window: Window) -> None:
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
@examples(25)
def test_count_windows(case: Case, size: int) -> None:
    schema, words, static, stream = case
    running = engines(schema, words, CountWindow(size))
    oracle = Oracle(schema, words, SIZES[words], running[0].plan.matcher.bitmap)
    oracle.load([(r.relation, r.row) for r in static])
    for engine in running:
        list(engine.load_tables(static))
    for record in stream:
        retracted, appeared = oracle.record(record, size)
        for engine, mode in zip(running, MODES, strict=True):
            results = list(engine.process([record]))
            assert (mode, ops(results, "-"), ops(results, "+")) == (mode, retracted, appeared)


@given(cases(), st.sampled_from(WINDOWS[:3]))
@examples(20)
def test_nothing_is_left_when_the_stream_has_expired(case: Case, window: Window) -> None:
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
@examples(25)
def test_order_of_arrival_does_not_matter_within_lateness(
    case: Case, window: Window, data: st.DataObject
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
