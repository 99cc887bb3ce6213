"""Standing patterns of a live search have the results of a search over the same records."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from skws.data.batch import Record, RecordBatch
from skws.queries.kinds import plan_of
from skws.queries.operator import LoggedBatch
from skws.queries.partitioning.parts import Part, Partitioning
from skws.queries.patterns.pattern_text import read_query
from skws.queries.patterns.stream import PatternStream
from skws.queries.session import Session
from skws.results.result import Result
from skws.spec.query_spec import PATTERN, Query, Stream
from skws_purging.lifespans import ALWAYS
from skws_schema.errors import PatternError, UsageError
from skws_windows.window import CountWindow, ExpressionWindow, TimeWindow, Unbounded, Window
from tests.patterns.test_pattern_stream import SCHEMA
from tests.queries.random_streams import split_into_batches
from tests.strategies import examples, streams

PATTERNS = [
    "A a ; * b where a.x = b.x",
    "A a AND B b where a.y = b.y",
    "A a ; C c",
    "Q(x, y) <- A(_, x, _), B(_, x, y), C(_, x, y)",
    "A a ; B b where a.x = b.x within 3 us",
    "A a ; B b where a.x = b.x within 4 tuples",
]
WINDOWS: list[Window] = [CountWindow(3), TimeWindow(4), TimeWindow(9), Unbounded()]


def pattern_query(text: str) -> Query:
    return Query(text, kind=PATTERN).named("p", 5)


def search_results(text: str, window: Window, records: Sequence[Record]) -> Counter[Result]:
    """The results of a search: all records at once, sorted by time."""
    query = read_query(text, SCHEMA)
    sorted_batch = RecordBatch.of(sorted(records, key=lambda record: record.time))
    return Counter(PatternStream(query, SCHEMA, query.window or window, name="p").process(sorted_batch))


def results_of_batches(session: Session, batches: Sequence[RecordBatch]) -> list[Result]:
    results: list[Result] = []
    for batch in batches:
        results += session.take(batch)
    return results + session.take(RecordBatch.of(()), ended=True)


STREAMS = [Stream(SCHEMA, window) for window in WINDOWS] + [Stream(SCHEMA, TimeWindow(9), 3)]


@pytest.mark.check
@examples(250)
@given(
    streams(SCHEMA, 2, max_records=24),
    st.lists(st.integers(0, 30), max_size=4),
    st.sampled_from(PATTERNS),
    st.sampled_from(STREAMS),
)
def test_a_standing_pattern_and_its_shards_have_the_results_of_a_search(
    records: list[Record], splits: list[int], text: str, stream: Stream
) -> None:
    session = Session(stream, keywords=False)
    shards = [Session(stream, Part(n, 3, Partitioning.ROOTS), keywords=False) for n in range(3)]
    assert [each.add(pattern_query(text)) for each in (session, *shards)] == [[]] * 4
    batches = split_into_batches(records, splits)
    results = results_of_batches(session, batches)
    assert Counter(results) == search_results(text, stream.window, records)
    assert [Result.from_json(one.to_json()).to_json() for one in results] == [
        one.to_json() for one in results
    ]
    assert Counter(result for shard in shards for result in results_of_batches(shard, batches)) == Counter(
        results
    )


@examples(100)
@given(
    streams(SCHEMA, 2, max_records=24),
    st.lists(st.integers(0, 30), max_size=4),
    st.sampled_from(PATTERNS),
    st.randoms(use_true_random=False),
)
def test_records_out_of_order_have_the_results_of_sorted_records(
    records: list[Record], splits: list[int], text: str, rng: random.Random
) -> None:
    arrival_order = sorted(records, key=lambda record: record.time + rng.uniform(0, 3))
    late: list[Record] = []
    session = Session(
        Stream(SCHEMA, TimeWindow(9), lateness=3),
        on_late=lambda record, _: late.append(record),
        keywords=False,
    )
    session.add(pattern_query(text))
    results = results_of_batches(session, split_into_batches(arrival_order, splits))
    # The order of records with the same time is unspecified.
    matches = Counter(
        frozenset((m.labels, m.relation, *m.row.items()) for m in one.tuples) for one in results
    )
    expected = search_results(text, TimeWindow(9), sorted(arrival_order, key=lambda record: record.time))
    assert matches == Counter(
        frozenset((m.labels, m.relation, *m.row.items()) for m in one.tuples) for one in expected.elements()
    )
    assert late == []


@examples(150)
@given(
    streams(SCHEMA, 2, max_records=24, min_records=16),
    st.integers(8, 24),
    st.sampled_from(PATTERNS),
    st.sampled_from(STREAMS),
)
def test_a_pattern_added_later_begins_with_the_live_tuples(
    records: list[Record], split: int, text: str, stream: Stream
) -> None:
    before, after = records[:split], records[split:]
    first = Session(stream, keywords=False)
    first.add(pattern_query(text))
    first_results = results_of_single_batch(first, before)
    log = [LoggedBatch(0, ALWAYS, RecordBatch.of(before))]
    second = Session(stream, keywords=False, past=lambda: log)
    results_of_single_batch(second, before)
    snapshot = second.add(pattern_query(text))
    assert all(result.snapshot for result in snapshot)
    live_results = Counter(structs.replace(result, snapshot=False) for result in snapshot)
    assert live_results <= Counter(first_results)
    if not stream.lateness and not isinstance(stream.window, CountWindow) and "tuples" not in text:
        now = before[-1].time / 1_000_000
        assert live_results == Counter(r for r in first_results if r.end is None or r.end > now)
    rest = RecordBatch.of(after)
    assert results_of_batches(second, [rest]) == results_of_batches(first, [rest])


def results_of_single_batch(session: Session, records: Sequence[Record]) -> list[Result]:
    return session.take(RecordBatch.of(records))


def test_times_may_decrease_under_a_count_window() -> None:
    """A pattern with a window of time then processes tuples in order of arrival."""
    session = Session(Stream(SCHEMA, CountWindow(10)), keywords=False)
    session.add(pattern_query("A a ; B b where a.x = b.x within 5 us"))
    records = [Record(0, 9, ("t", 1, 1)), Record(1, 2, ("t", 1, 1)), Record(1, 20, ("t", 1, 1))]
    results = results_of_batches(session, split_into_batches(records, [1]))
    assert [[member.position for member in result.tuples] for result in results] == [[0, 1]]


def test_a_pattern_is_checked_before_it_is_added() -> None:
    stream = Stream(SCHEMA, Unbounded())
    with pytest.raises(PatternError):
        plan_of(pattern_query("A a ; ; B b"), stream)
    over_expression = replace(stream, window=ExpressionWindow("open when A close when B"))
    with pytest.raises(UsageError, match="a window expression is for keywords"):
        plan_of(pattern_query("A a ; B b"), over_expression)
    plan_of(pattern_query("A a ; B b within 10 minutes"), over_expression)
    plan_of(pattern_query("A a ; B b within 10 minutes"), stream)
    plan_of(pattern_query("A a ; B b"), stream)
    (note,) = plan_of(pattern_query("A a ; B b"), stream).notes
    assert note.startswith("the pattern has no window, so all tuples that it reads are kept")
    assert plan_of(pattern_query("A a ; B b within 10 minutes"), stream).notes == ()
    assert plan_of(pattern_query("A a ; B b"), replace(stream, finite=True)).notes == ()
    with pytest.raises(UsageError, match="did you mean 'pattern'"):
        plan_of(Query("A a ; B b", 5, "patern", name="p"), stream)
