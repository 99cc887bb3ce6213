"""The time at which tuples leave their windows: binary search agrees with stepping through the records."""

from __future__ import annotations

from typing import Final

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from skws.data.batch import Record, RecordBatch, batched
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.windowed.stream_windows import WindowSpan, timeline
from skws.queries.windowed.window_plan import WindowPlan
from skws.queries.windowed.windowed_engine import WindowedEngine
from skws_schema.yaml.load import parse_schema
from skws_windows.automata.regular import Limits
from skws_windows.guards.alphabet import StreamRecord
from skws_windows.guards.letters import Ints, RowSource
from skws_windows.processor.live_starts import Key
from skws_windows.processor.spans import ANY, Code, OpenWindows, Tracker, TupleExpiry
from skws_windows.window import FOREVER, ExpressionWindow
from tests.growth.measurements import Cost, cost
from tests.jobs.watching import SCHEMA

BEGIN: Final = 4
END: Final = 12

PATIENTS: Final = parse_schema("""\
window: 1 hour
relations:
  vital: {attributes: {p: integer, temp: integer}}
""")

Changes = list[tuple[int, int | None]]
"""Positions, each with the oldest live start after it, if there is one; the first precedes the batch."""


@st.composite
def changes(draw: st.DrawFn) -> Changes:
    oldest = draw(st.one_of(st.none(), st.integers(0, BEGIN - 1)))
    drawn_changes: Changes = [(BEGIN - 1, oldest)]
    for position in sorted(draw(st.sets(st.integers(BEGIN, END - 1), max_size=5))):
        later_start = st.just(position) if oldest is None else st.integers(oldest, position)
        oldest = draw(st.one_of(st.none(), later_start))
        drawn_changes.append((position, oldest))
    return drawn_changes


def after(trail: Changes, record: int) -> int | None:
    """The oldest live start after a record."""
    return [oldest for position, oldest in trail if position <= record][-1]


def least(trails: list[Changes], record: int) -> int | None:
    return min((start for trail in trails if (start := after(trail, record)) is not None), default=None)


def last_record(trails: list[Changes], position: int) -> int:
    """The last record at which a window of some of the keys may hold a tuple, found by stepping."""
    is_record = any(at == position for trail in trails for at, _ in trail)
    if position >= BEGIN and not is_record and least(trails, position) is None:
        return position - 1
    for record in range(max(position, BEGIN - 1), END):
        start = least(trails, record)
        if start is None or start > position:
            return record
    return FOREVER


def leaving(trails: list[Changes]) -> TupleExpiry:
    """The expiry of tuples for keys that are identified by numbers."""
    by_code: dict[Code, OpenWindows] = {
        (number,): OpenWindows.of(trail) for number, trail in enumerate(trails)
    }
    by_key: dict[Key, OpenWindows] = dict(by_code.items())
    before: dict[Key, int] = {
        (number,): start for number, ((_, start), *_) in enumerate(trails) if start is not None
    }
    return TupleExpiry(by_code, before, by_key, BEGIN, np.arange(BEGIN, END), Limits(), keyed=True)


def expiry_arguments(tuples: list[tuple[int, int]]) -> tuple[Ints, Ints, Ints]:
    """Positions, times and codes of keys."""
    position = np.array([tuple_position for tuple_position, _ in tuples], dtype=np.int64)
    return position, position, np.array([[key] for _, key in tuples], dtype=np.int64)


@given(st.lists(changes(), min_size=1, max_size=3))
def test_tuples_leave_with_the_oldest_window_of_their_key(trails: list[Changes]) -> None:
    tuples = [(position, key) for key in range(len(trails)) for position in range(END)]
    last_records = leaving(trails)(*expiry_arguments(tuples))
    assert last_records.tolist() == [last_record([trails[key]], position) for position, key in tuples]


@given(st.lists(changes(), min_size=1, max_size=3))
def test_tuples_of_every_key_leave_with_the_oldest_window_of_all(trails: list[Changes]) -> None:
    positions_of_keys = {change_position for trail in trails for change_position, _ in trail}
    tuples = [
        (position, ANY) for position in range(END) if position < BEGIN or position not in positions_of_keys
    ]
    last_records = leaving(trails)(*expiry_arguments(tuples))
    assert last_records.tolist() == [last_record(trails, position) for position, _ in tuples]


S = 1_000_000


def drawing(spans: list[WindowSpan], now: int, width: int, **options: int) -> list[str]:
    return [f"{row.label}:{row.cells}" for row in timeline(spans, now, width, **options)]


def test_ended_and_open_windows_are_drawn() -> None:
    spans = [WindowSpan(("ann",), 0, 40), WindowSpan(("bob",), 20, 20), WindowSpan(("ann",), 60, None)]
    assert drawing(spans, 100, 10) == ["ann:[===] [==>", "bob:  |       "]


def test_keys_with_open_windows_come_first_and_rows_are_limited() -> None:
    spans = [WindowSpan((n,), n, n + 1 if n < 3 else None) for n in range(4)]
    assert [line[0] for line in drawing(spans, 10, 10, rows=3)] == ["3", "2", "1"]
    assert drawing([], 10, 10) == []
    assert drawing(spans, 10, 0) == []


def test_an_engine_reports_its_windows() -> None:
    window = ExpressionWindow("open when customer close when order per cid")
    engine = WindowedEngine.of(Plan(SCHEMA, parse_query("ada", SCHEMA), window))
    list(
        engine.process_batches(
            batched([Record(0, S, (1, "ada")), Record(0, 2 * S, (2, "eve")), Record(1, 3 * S, (1, "lamp"))])
        )
    )
    assert engine.window_spans() == [WindowSpan((1,), S, 3 * S), WindowSpan((2,), 2 * S, None)]


def test_keys_whose_windows_have_ended_are_forgotten() -> None:
    """The state omits them; keys with open windows continue, also after the state was restored."""
    plan = WindowPlan.of_text(PATIENTS, "open when temp > 38 close when temp < 38 per p")
    tracker = Tracker(plan.compiled(), plan.alphabet)
    for p in range(300):
        tracker.feed(RowSource.of([StreamRecord(0, p, (p, temp)) for temp in (37, 39, 37)]))
        tracker.keep([])
    tracker.feed(RowSource.of([StreamRecord(0, 300, (7, 39))]))
    state = tracker.state()
    assert [key for key, _ in state["processor"]["runs"]] == [key for key, _ in state["places"]] == [(7,)]
    resumed = Tracker(plan.compiled(), plan.alphabet)
    resumed.restore(state)
    for tracker_of_case in (tracker, resumed):
        closed_windows = tracker_of_case.feed(RowSource.of([StreamRecord(0, 301, (7, 36))])).closed
        assert (closed_windows.first.tolist(), closed_windows.last.tolist()) == ([900], [901])
        assert tracker_of_case.values(closed_windows.key) == [[7]]


def test_ended_windows_without_live_tuples_are_forgotten_while_another_is_open() -> None:
    """A window that shares a tuple with the open one is kept, so a restart does not repeat its result."""
    schema = parse_schema("relations: {a: {attributes: {k: integer, t: text}}, b: {attributes: {u: text}}}")
    plan = Plan(
        schema, parse_query("ada", schema), ExpressionWindow("open when t:start close when t:stop per k")
    )
    engine = WindowedEngine.of(plan)
    results = list(engine.process_batches([RecordBatch.of([Record(0, 0, (0, "start"))])]))
    for key in range(1, 400):
        rows = [Record(0, key, (key, "start")), Record(0, key, (key, "stop"))]
        if key == 200:
            rows.insert(1, Record(1, key, ("ada",)))
        results += engine.process_batches([RecordBatch.of(rows)])
    assert len(results) == 1
    state = engine.state()
    assert len(state["closed"]) < 150
    restored = WindowedEngine.of(plan)
    restored.restore(state)
    assert not list(restored.process_batches([RecordBatch.of([Record(0, 400, (0, "stop"))])]))


def test_the_cost_of_a_record_does_not_depend_on_the_records_of_its_open_window() -> None:
    def record_cost(n: int) -> Cost:
        plan = WindowPlan.of_text(PATIENTS, "open when temp > 40 close when temp < 38 per p")
        tracker = Tracker(plan.compiled(), plan.alphabet)
        temperatures = (41, *[39] * n)
        tracker.feed(RowSource.of([StreamRecord(0, 0, (1, temp)) for temp in temperatures]))
        tracker.feed(RowSource.of([StreamRecord(0, 1, (1, 39))]))  # may move all positions
        record_costs = cost(lambda: tracker.feed(RowSource.of([StreamRecord(0, 2, (1, 39))])))
        closed = tracker.feed(RowSource.of([StreamRecord(0, 3, (1, 36))])).closed
        assert (closed.first.tolist(), closed.last.tolist()) == ([0], [n + 3])
        return record_costs

    assert record_cost(20_000).allocated < record_cost(200).allocated + 80_000


def test_positions_within_a_key_continue_after_its_windows_end() -> None:
    plan = WindowPlan.of_text(PATIENTS, "open when temp > 38 close when temp < 38 per p")
    processor = plan.processor()
    positions = [
        (window.key, window.first, window.last)
        for time in range(3)
        for window in processor.process([StreamRecord(0, time, (1, temp)) for temp in (39, 40, 37)])
    ]
    assert positions == [((1,), 3 * time, 3 * time + 2) for time in range(3)]


def test_the_cost_of_reading_a_key_does_not_depend_on_the_number_of_keys() -> None:
    def key_cost(n: int) -> Cost:
        plan = WindowPlan.of_text(PATIENTS, "open when temp > 38 close when temp < 38 per p")
        tracker = Tracker(plan.compiled(), plan.alphabet)
        tracker.feed(RowSource.of([StreamRecord(0, 0, (p, 39)) for p in range(n)]))
        code = tracker.codes_of([(n - 1,)])
        assert tracker.values(code) == [[n - 1]]
        return cost(lambda: tracker.values(code))

    assert key_cost(2_000).allocated < 1.2 * key_cost(200).allocated + 1_000


def test_the_cost_of_a_batch_does_not_depend_on_the_keys_of_live_tuples() -> None:
    """Keys without records in the batch are not examined one by one."""

    def expiry_cost(keys: int) -> Cost:
        trails: dict[Code, OpenWindows] = {
            (5, key): OpenWindows.of([(-1, key), (keys, None)]) for key in (3, 8)
        }
        expiry = TupleExpiry(trails, {}, {}, keys, np.array([keys]), Limits(), keyed=True)
        position = np.arange(keys)
        key = np.stack([np.full(keys, 5), position], axis=1)
        return cost(lambda: ends.append(expiry(position, position, key)))

    ends: list[Ints] = []
    assert expiry_cost(100).steps == expiry_cost(1_000).steps
    for each in ends:
        assert np.flatnonzero(each < FOREVER).tolist() == [3, 8]
