"""A truncation has the effect of deleting each row: with all evaluators, windows and kinds of queries."""

from __future__ import annotations

import random

import pytest

from skws.data.batch import Record, RecordBatch
from skws.data.packing import pack, unpack
from skws.keywords.parse import parse_query
from skws.keywords.plan import Plan
from skws.queries.kinds import plans_over
from skws.queries.session import Session
from skws.results.result import Result
from skws.spec.query_spec import SQL, TOP, Query, Stream
from skws_schema.errors import BadRecordsError
from skws_schema.model import Schema
from skws_windows.window import CountWindow, ExpressionWindow, TimeWindow, Unbounded, Window
from tests.paper_modes import engines, net
from tests.queries.random_streams import DENSE, STREAMS, deleted_singly, dense_rows, random_stream
from tests.strategies import length, seeds

OVER = ExpressionWindow("longest match [plain] .{3,12} [keyed]")
QUERIES = (
    Query("alpha beta").named("two", 3),
    Query("alpha").named("one", 3),
    Query("alpha beta", kind=TOP, options={"size": "2"}).named("best", 3),
    Query.of_pattern("plain a ; keyed b where a.x = b.y").named("pattern", 3),
)
WINDOWS: tuple[tuple[Window, int], ...] = (
    *((window, lateness) for window in (TimeWindow(5), TimeWindow(30), Unbounded()) for lateness in (0, 4)),
    (CountWindow(4), 0),
    (CountWindow(20), 0),
)
"""Windows with a lateness, which count windows lack."""


def results_of(session: Session, queries: tuple[Query, ...], batches: list[list[Record]]) -> list[Result]:
    session.add_all(plans_over(queries, session.stream))
    return [result for batch in batches for result in session.take(RecordBatch.of(batch))]


def batches_of(rng: random.Random, records: list[Record]) -> list[list[Record]]:
    batches = []
    while records:
        size = rng.randint(1, 20)
        batches.append(records[:size])
        records = records[size:]
    return batches


def truncated_stream(seed: int, count: int) -> list[Record]:
    """A random stream. The last truncation ends a result, since the random ones may end none."""
    records = random_stream(STREAMS, seed, count, 2, 0.03)
    time = records[-1].time
    return [*records, Record(0, time + 1, ("alpha", 1, None)), Record.truncation(0, time + 2)]


def batches_of_single_deletions(batches: list[list[Record]], schema: Schema) -> list[list[Record]]:
    """As ``deleted_singly``, in the same batches."""
    batches_of_singles: list[list[Record]] = []
    before: list[Record] = []
    for batch in batches:
        size = len(deleted_singly(schema, before))
        before += batch
        batches_of_singles.append(deleted_singly(schema, before)[size:])
    return batches_of_singles


@pytest.mark.check
@pytest.mark.parametrize(("window", "lateness"), WINDOWS, ids=str)
@seeds(1, 60)
def test_a_truncation_deletes_each_row_in_sessions(window: Window, lateness: int, seed: int) -> None:
    rng = random.Random(seed)
    stream = Stream(STREAMS, window, lateness=lateness)
    queries = QUERIES if not isinstance(window, Unbounded) else QUERIES[:3]
    batches = batches_of(rng, truncated_stream(seed, length(110, 250)))
    truncated, deleted = Session(stream), Session(stream)
    results = results_of(truncated, queries, batches)
    assert results == results_of(deleted, queries, batches_of_single_deletions(batches, STREAMS))
    assert {result.op for result in results} >= ({"+"} if window == CountWindow(4) else {"+", "-"})
    assert truncated.counts().retractions == deleted.counts().retractions


@seeds(2, 60)
def test_a_truncation_deletes_each_row_in_windows_of_expressions(seed: int) -> None:
    rng = random.Random(seed)
    queries = (Query("alpha beta").over(OVER, allowed=True).named("windowed", 3),)
    batches = batches_of(rng, random_stream(STREAMS, seed, length(100, 150), 3, 0.03))
    truncated, deleted = (Session(Stream(STREAMS, OVER), keywords=False) for _ in range(2))
    results = results_of(truncated, queries, batches)
    assert results == results_of(deleted, queries, batches_of_single_deletions(batches, STREAMS))
    assert results


@pytest.mark.slow
@pytest.mark.parametrize(
    ("window", "lateness"), [(TimeWindow(8), 0), (TimeWindow(8), 3), (CountWindow(9), 0)]
)
@seeds(2, 60)
def test_a_truncation_deletes_each_row_in_every_engine(window: Window, lateness: int, seed: int) -> None:
    """The default engine, delta joins, and the paper's meshes."""
    rng = random.Random(seed)
    stream = dense_rows(rng, length(40, 60), [0, 1, 2], truncated=0.05)
    plan = Plan(DENSE, parse_query("alpha beta", DENSE), window, 3, lateness=lateness)
    ends = []
    for truncated, deleted in zip(engines(plan), engines(plan), strict=True):
        results = list(truncated.process(stream))
        assert results == list(deleted.process(deleted_singly(DENSE, stream)))
        ends.append(net(results))
    assert ends == ends[:1] * len(ends)


def test_rows_inserted_after_a_truncation_live() -> None:
    """Including those of the same instant; a row that returns with its key is an update."""
    rows = {1: ("alpha", 1, None), 2: ("beta alpha", 1, None)}
    session = Session(Stream(STREAMS, TimeWindow(100)))
    session.add(QUERIES[1])
    session.take(RecordBatch.of([Record(1, 10, rows[1]), Record(0, 10, rows[1])]))
    records = [Record.truncation(1, 20), Record(1, 20, rows[2]), Record.truncation(0, 20)]
    results = session.take(RecordBatch.of(records))
    assert sorted(result.op for result in results) == ["-", "~"]
    assert [result.op for result in session.take(RecordBatch.of([Record.truncation(1, 20)]))] == ["-"]


def test_a_late_row_ends_at_a_later_truncation() -> None:
    session = Session(Stream(STREAMS, TimeWindow(100), lateness=20))
    session.add(QUERIES[1])
    row = ("alpha", 1, None)
    session.take(RecordBatch.of([Record(1, 5, ("no", 9, None)), Record.truncation(1, 20)]))
    insertion, retraction = session.take(RecordBatch.of([Record(1, 10, row)]))
    assert (insertion.op, retraction.op, insertion.start, retraction.end) == ("+", "-", 10e-6, 20e-6)
    assert [r.op for r in session.take(RecordBatch.of([Record(1, 20, row)]))] == ["+"]


def test_truncations_can_be_packed() -> None:
    records = random_stream(STREAMS, 3, 300, 4, 0.02)
    assert [*unpack(pack(RecordBatch.of(records))).records()] == records
    assert sum(record.truncates for record in records) > 2
    truncations = [Record.truncation(2, 7)] * 2
    assert [*unpack(pack(RecordBatch.of(truncations))).records()] == truncations


def test_sql_in_constant_memory_rejects_truncations() -> None:
    session = Session(Stream(STREAMS, Unbounded()), keywords=False)
    session.add(Query("SELECT 1 AS one FROM plain", kind=SQL).named("q", 2))
    with pytest.raises(BadRecordsError, match="deletes a tuple of plain"):
        session.take(RecordBatch.of([Record.truncation(STREAMS.index["plain"], 5)]))


@pytest.mark.check
@pytest.mark.parametrize("lateness", [0, 5])
def test_truncated_rows_are_freed(lateness: int) -> None:
    session = Session(Stream(STREAMS, Unbounded(), lateness=lateness))
    session.add(QUERIES[0])
    rows = [Record(0, 1, (f"alpha n{number}", number, number)) for number in range(250)]
    session.take(RecordBatch.of([*rows, Record(1, 1, ("beta", 1, 1))]))
    for time in range(2, 250):
        session.take(RecordBatch.of([Record.truncation(0, time)]))
    assert session.load().live < 300
    records = session.live_records()
    assert records is not None
    assert len(records.records) <= lateness + 2
