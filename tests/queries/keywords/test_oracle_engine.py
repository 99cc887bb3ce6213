"""After every instant the in-process engine has found exactly what brute force finds."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import TypeAlias

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws.data.batch import RecordBatch
from skws.data.record import Record
from skws.formats import BadRecordLog, OnError, Replay
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.keywords.bounded_engine import BoundedEngine
from skws.queries.keywords.columnar import ColumnarEngine
from skws.queries.keywords.engine import Engine
from skws.queries.session import Session
from skws.queries.windowed.engine import WindowedEngine
from skws.results.model import Result
from skws.sources.kafka.reader import final_rows
from skws.spec.query import PATTERN, Query
from skws.spec.stream import Stream
from skws_schema.errors import BadRecordsError
from skws_schema.model import Join, Relation, Row, Schema
from skws_schema.yaml.load import parse_schema
from skws_windows.window import CountWindow, ExpressionWindow, TimeWindow, Unbounded, Window
from tests.oracles.oracle import Oracle, instants
from tests.paper_modes import MODES, SIZES, by_delta, engines, ops
from tests.strategies import COLUMNS, WORDS, Case, cases, examples, schemas, static_rows

AnyEngine: TypeAlias = Callable[[Plan], Engine | ColumnarEngine]
ENGINES: list[AnyEngine] = [Engine, ColumnarEngine.of, by_delta]
WINDOWS: list[Window] = [TimeWindow(1), TimeWindow(3), TimeWindow(8), Unbounded()]


PAIR = Schema(
    "pair",
    tuple(Relation(name, COLUMNS, search=("t",)) for name in "ab"),
    (Join("ab", "a", "b", (("x", "x"),)),),
)


def plan(schema: Schema, words: int, window: Window, max_size: int = 4) -> Plan:
    return Plan(schema, parse_query(" ".join(WORDS[:words]), schema), window, max_size)


@pytest.mark.parametrize("make", ENGINES)
@given(cases(), st.sampled_from(WINDOWS), st.integers(1, 4))
@examples(150)
def test_time_windows(
    make: AnyEngine,
    case: Case,
    window: Window,
    max_size: int,
) -> None:
    schema, words, static, stream = case
    asked = plan(schema, words, window, max_size)
    engine = make(asked)
    oracle = Oracle(schema, words, max_size, asked.matcher.bitmap)
    snapshot = list(engine.load_tables(static))
    assert ops(snapshot, "+") == oracle.load([(r.relation, r.row) for r in static])
    length = window.length if isinstance(window, TimeWindow) else float("inf")
    reported = snapshot
    for time, records in instants(stream):
        results = list(engine.process(records))
        retracted, appeared = oracle.instant(time, records, length)
        assert (ops(results, "-"), ops(results, "+")) == (retracted, appeared)
        reported = reported + results
    ids = [r.id for r in reported if r.op == "+"]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("make", ENGINES)
@given(cases(), st.integers(1, 6))
@examples(120)
def test_count_windows(make: AnyEngine, case: Case, size: int) -> None:
    schema, words, static, stream = case
    asked = plan(schema, words, CountWindow(size))
    engine = make(asked)
    oracle = Oracle(schema, words, 4, asked.matcher.bitmap)
    list(engine.load_tables(static))
    oracle.load([(r.relation, r.row) for r in static])
    for record in stream:
        results = list(engine.process([record]))
        assert (ops(results, "-"), ops(results, "+")) == oracle.record(record, size)


@pytest.mark.parametrize("make", ENGINES)
@pytest.mark.parametrize("together", [False, True])
def test_a_deletion_pushes_no_tuple_out_of_a_count_window(make: AnyEngine, together: bool) -> None:
    engine = make(plan(PAIR, 2, CountWindow(2)))
    stream = [
        Record(0, 1, ("alpha", 1, 0)),
        Record(1, 2, ("beta", 1, 0)),
        Record(0, 3, ("pad", 5, 0)),
        Record(1, 4, ("beta", 1, 0), delete=True),
        Record(1, 5, ("beta", 1, 0)),  # the third after the first tuple, which is over now
    ]
    steps = [stream] if together else [[record] for record in stream]
    told = [result for step in steps for result in engine.process(step)]
    assert [(r.op, r.start, r.end) for r in told] == [("+", 2e-6, None), ("-", 2e-6, 4e-6)]


@pytest.mark.parametrize("make", ENGINES)
def test_deletions_at_the_time_of_an_arrival_come_before_it(make: AnyEngine) -> None:
    """As a change data capture writes an update: what the arrival pushes out is alive at the deletion."""
    engine = make(plan(PAIR, 2, CountWindow(1)))
    stream = [
        Record(0, 1, ("alpha", 1, 0)),
        Record(1, 2, ("beta", 1, 0)),
        Record(0, 3, ("alpha", 1, 0), delete=True),
        Record(0, 3, ("alpha", 1, 7)),
    ]
    told = [(r.op, r.start, r.end) for r in engine.process(stream)]
    assert told == [("+", 2e-6, None), ("-", 2e-6, 3e-6), ("+", 3e-6, None)]


def test_a_query_that_is_added_after_a_deletion_finds_what_is_alive() -> None:
    asked = plan(PAIR, 2, CountWindow(2))
    engine = ColumnarEngine(PAIR, CountWindow(2))
    stream = [
        Record(0, 1, ("alpha", 1, 0)),
        Record(1, 2, ("beta", 1, 0)),
        Record(0, 3, ("pad", 5, 0)),
        Record(0, 4, ("pad", 5, 0), delete=True),
    ]
    list(engine.process(stream))
    assert len(engine.add(asked)) == len(engine.add(asked, "again")) == 1
    list(engine.process([Record(0, 5, ("pad", 6, 0))]))
    assert engine.add(asked, "later") == []


@pytest.mark.parametrize("make", ENGINES)
@given(cases(), st.sampled_from(WINDOWS[:3]))
@examples(100)
def test_nothing_is_left_when_the_stream_has_expired(make: AnyEngine, case: Case, window: Window) -> None:
    schema, words, _, stream = case
    engine = make(plan(schema, words, window))
    list(engine.process(stream))
    engine.expire(10**6)
    assert engine.idle


@pytest.mark.parametrize("make", ENGINES)
@given(cases(), st.sampled_from(WINDOWS), st.data())
@examples(200)
def test_order_of_arrival_does_not_matter_within_lateness(
    make: AnyEngine, case: Case, window: Window, data: st.DataObject
) -> None:
    schema, words, _, stream = case
    # Records of one identity at one time have an order of their own, which a shuffle must keep.
    stream = [r._replace(time=2 * i + r.time) for i, r in enumerate(stream)]
    shuffled = data.draw(st.permutations(stream))
    in_order = Engine(plan(schema, words, window))
    late = make(Plan(schema, in_order.plan.query, window, 4, lateness=10**6))
    # In pieces, so that what is late comes to what is there.
    cut = data.draw(st.integers(0, len(shuffled)))
    told = [*late.process(shuffled[:cut]), *late.process(shuffled[cut:])]
    assert net(told) == net(list(in_order.process(stream)))
    assert late.counts.late == 0
    for history in histories(told).values():
        # What is retracted again ends earlier than was told; what is told again was retracted.
        assert all(
            ends is not None and end is not None and end < ends if (op, after) == ("-", "-") else op != after
            for (op, ends), (after, end) in pairwise(history)
        )


def histories(results: list[Result]) -> dict[str, list[tuple[str, float | None]]]:
    """What was told of each result, with its end."""
    told: dict[str, list[tuple[str, float | None]]] = {}
    for result in results:
        told.setdefault(result.id, []).append((result.op, result.end))
    return told


def test_a_late_deletion_retracts_again_with_the_earlier_end() -> None:
    """A retraction is told at once; one that a later record corrects is told again."""
    schema = Schema("s", _one_relation(), ())
    stream = [Record(0, 1, ("alpha", 1, 1)), Record(0, 10, ("alpha", 1, 1), True)]
    stream += [Record(0, 20, ("", 2, 2)), Record(0, 8, ("alpha", 1, 1), True)]
    for make in (Engine, ColumnarEngine.of):
        engine = make(Plan(schema, parse_query("alpha", schema), TimeWindow(100), lateness=50))
        told = [(r.op, r.end) for record in stream for r in engine.process([record])]
        micro = [(op, None if end is None else round(end * 1e6)) for op, end in told]
        assert micro == [("+", 101), ("-", 10), ("-", 8)]


def net(results: list[Result]) -> dict[str, tuple[float | None, float | None]]:
    """Lifespans of the results that were alive for some time, as last told."""
    spans: dict[str, tuple[float | None, float | None]] = {}
    for r in results:
        spans[r.id] = (r.start, r.end)
    return {i: s for i, s in spans.items() if s[0] is None or s[1] is None or s[0] < s[1]}


def test_late_records_are_counted_and_told() -> None:
    schema = Schema("s", _one_relation(), ())
    told: list[Record] = []
    engine = Engine(
        Plan(schema, parse_query("alpha", schema), TimeWindow(100), lateness=5), lambda r, _: told.append(r)
    )
    early, late = Record(0, 50, ("alpha", 1, 1)), Record(0, 44, ("alpha", 2, 2))
    in_time = Record(0, 45, ("alpha", 3, 3))
    assert len(list(engine.process([early, late, in_time]))) == 2
    assert (engine.counts.late, told) == (1, [late])


def _one_relation() -> tuple[Relation]:
    return (Relation("r0", COLUMNS, search=("t",)),)


SCHEMA = parse_schema("""
version: 1
name: s
relations:
  visit: {attributes: {who: integer, door: integer, note: text}, key: [who, door]}
  person: {attributes: {who: integer, name: text}, key: [who], table: true}
joins:
  - visit.who = person.who
""")
NONE: list[Row] = [(None, 1, "alpha"), (1, None, "alpha"), (None, None, "alpha")]


def null_plan(text: str, window: Window) -> Plan:
    return Plan(SCHEMA, parse_query(text, SCHEMA), window)


def told(results: list[Result]) -> list[tuple[str, str]]:
    return [(r.op, r.tuples[0].id) for r in results]


@pytest.mark.parametrize("make", ENGINES)
@pytest.mark.parametrize("window", [TimeWindow(100), CountWindow(9), Unbounded()])
@pytest.mark.parametrize("row", NONE)
def test_rows_do_not_replace_each_other(make: AnyEngine, window: Window, row: Row) -> None:
    engine = make(null_plan("alpha", window))
    stream = [Record(0, 1, row), Record(0, 2, row), Record(0, 2, row), Record(0, 3, (2, 2, "alpha"))]
    results = list(engine.process(stream))
    assert [r.op for r in results] == ["+"] * 4
    assert len({r.id for r in results}) == len({r.tuples[0].id for r in results}) == 4
    assert not any("None" in r.tuples[0].id for r in results)
    assert results[-1].tuples[0].id == "visit:2,2"


@pytest.mark.parametrize("make", ENGINES)
def test_a_deletion_takes_the_oldest_equal_row(make: AnyEngine) -> None:
    engine = make(null_plan("alpha", TimeWindow(100)))
    row, other = NONE[0], (None, 1, "alpha beta")
    first, second, third = engine.process([Record(0, 1, row), Record(0, 2, row), Record(0, 3, other)])
    deletions = [
        Record(0, 4, row, delete=True),
        Record(0, 5, row, delete=True),
        Record(0, 6, row, delete=True),
    ]
    assert [(r.op, r.id) for r in engine.process(deletions)] == [("-", first.id), ("-", second.id)]
    assert engine.counts.unmatched_deletions == 1
    assert [r.id for r in engine.process([Record(0, 7, other, delete=True)])] == [third.id]


@pytest.mark.parametrize("make", ENGINES)
def test_rows_of_tables_all_count(make: AnyEngine) -> None:
    engine = make(null_plan("ada", TimeWindow(100)))
    table = [
        Record(1, 0, (None, "ada")),
        Record(1, 0, (None, "ada")),
        Record(1, 0, (7, "ada")),
        Record(1, 0, (7, "ada")),
    ]
    results = list(engine.load_tables(table))
    assert len({r.id for r in results}) == len(results) == 3
    assert sorted(r.tuples[0].id.split("@")[-1] for r in results) == ["person:7", "table", "table.1"]


def test_windows_of_expressions_hold_them_all() -> None:
    window = ExpressionWindow("match . . .")
    engine = WindowedEngine.of(null_plan("alpha", window))
    records = [
        Record(0, 1, NONE[0]),
        Record(0, 2, NONE[0]),
        Record(0, 3, NONE[0], delete=True),
        Record(0, 4, (5, 5, "no")),
    ]
    assert [r.tuples[0].id.split("@")[-1] for r in engine.process(records)] == ["1"]


@pytest.mark.parametrize("window", [CountWindow(9), TimeWindow(100)])
def test_names_in_matches_of_patterns(window: Window) -> None:
    live = Session(Stream(SCHEMA, window), keywords=False)
    live.add(Query("visit v", 1, PATTERN, name="q"))
    found = live.take(RecordBatch.of([Record(0, 1, NONE[0]), Record(0, 1, NONE[0]), Record(0, 2, NONE[0])]))
    names = [each.tuples[0].id for each in found]
    assert len(set(names)) == 3
    assert not any("None" in name for name in names)


def test_a_table_from_a_topic_keeps_them_all() -> None:
    items = [
        Record(1, 1, (None, "ada")),
        Record(1, 2, (None, "ada")),
        Record(1, 3, (None, "bob")),
        Record(1, 4, (1, "x")),
    ]
    gone = [Record(1, 5, (None, "ada"), delete=True), Record(1, 6, (1, "y"))]
    left = [r.row for r in final_rows([*items, *gone], SCHEMA) if isinstance(r, Record)]
    assert left == [(None, "ada"), (None, "bob"), (1, "y")]


def test_a_change_event_that_replaces_nothing_is_bad(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    before, after = ({"who": None, "door": 1, "note": note} for note in ("no", "alpha"))
    event = {"op": "u", "after": after, "source": {"table": "visit", "ts_ms": 1}, "ts_ms": 1}
    events = [event | {"before": old} for old in (None, before)]
    path.write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in events))
    with BadRecordLog(OnError.SKIP) as log:
        records = list(Replay.open(path, SCHEMA).stream(log))
    assert [(r.row[2], r.delete) for r in records] == [("no", True), ("alpha", False)]
    assert log.count == 1


def test_memory_that_rests_on_a_bounded_key_takes_no_row_without_one() -> None:
    schema = parse_schema("""
version: 1
name: s
relations:
  till: {attributes: {number: {type: integer, min: 1, max: 9}, note: text}, key: [number]}
joins: []
window: none
""")
    engine = BoundedEngine.of(Plan(schema, parse_query("alpha", schema), Unbounded()))
    assert len(list(engine.process([Record(0, 1, (1, "alpha"))]))) == 1
    with pytest.raises(BadRecordsError, match=r"till\.number is NULL, so the row has no key"):
        list(engine.process([Record(0, 2, (None, "alpha"))]))


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
def test_time_windows_in_all_modes(case: Case, window: Window) -> None:
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
def test_count_windows_in_all_modes(case: Case, size: int) -> None:
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
def test_nothing_is_left_when_the_stream_has_expired_in_all_modes(case: Case, window: Window) -> None:
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
def test_order_of_arrival_does_not_matter_within_lateness_in_all_modes(
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
