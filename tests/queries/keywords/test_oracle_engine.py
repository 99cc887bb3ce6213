"""After every instant the in-process engine has found exactly what brute force finds."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws.data.record import Record
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.keywords.columnar import ColumnarEngine
from skws.queries.keywords.engine import Engine
from skws.results.model import Result
from skws_schema.model import Join, Relation, Schema
from skws_windows.window import CountWindow, TimeWindow, Unbounded, Window
from tests.oracles.oracle import Oracle, instants
from tests.paper_modes import by_delta, ops
from tests.strategies import COLUMNS, WORDS, Case, cases, examples

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
