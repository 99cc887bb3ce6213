"""A stream that is cut into slices has the results of the whole stream, in the same order."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import fields

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from skws.data.batch import Record, RecordBatch, batched, merge_by_time
from skws.data.packing import unpack
from skws.formats.splits import Holds, PackedPiece, Packer
from skws.queries.evaluator import Counts
from skws.queries.partitioning.slices import SliceRun, Slicing, in_order, plan_slices
from skws.queries.session import Session
from skws.results.result import Result
from skws.spec.query_spec import KEYWORDS, Query, RankingChoice, Stream, TopChoice
from skws_schema.model import Schema
from skws_windows.window import CountWindow, TimeWindow, Unbounded, Window
from tests.queries.random_streams import STREAMS, TABLES, random_stream, without_dequeues
from tests.strategies import examples, length

Packed = list[tuple[PackedPiece, bytes]]
QUERIES = (
    Query("alpha beta -no", 4),
    Query("beta ; alpha", 3),
    Query("alhpa~ (b*ta OR !plain.x=1) keyed.y!=2 -n?e -link.x=0", 4),
    Query.of_pattern("plain a ; keyed b where a.x = b.y"),
    Query.of_keywords("alpha beta", RankingChoice(explain=True), TopChoice(3)),
    Query.of_keywords("alpha beta", RankingChoice("compact"), TopChoice(2, group=True)),
)


def session_results(query: Query, stream: Stream, records: Sequence[Record]) -> tuple[list[Result], Counts]:
    """The results of one session."""
    session = Session(stream, keywords=query.kind == KEYWORDS)
    session.add(query)
    tables = [record for record in records if stream.schema.relations[record.relation].table]
    results = session.load_tables(batched(tables))
    stream_records = sorted(
        (r for r in records if not stream.schema.relations[r.relation].table), key=lambda r: r.time
    )
    results += session.take(RecordBatch.of(stream_records))
    return results, session.counts()


def packed_pieces(records: Sequence[Record], schema: Schema, rng: random.Random) -> Packed:
    """The records as pieces of random splits."""
    pieces: Packed = []
    start = split = 0
    while start < len(records):
        end = start + rng.choice([1, 5, 20, 60])
        packer = Packer(split, schema)
        pieces += packer.records(RecordBatch.of(records[start:end]))
        pieces += packer.rest()
        start, split = end, split + 1
    return pieces


def sliced_results(
    query: Query, stream: Stream, pieces: Packed, slicing: Slicing
) -> tuple[list[Result], Counts]:
    """The results of independent slices."""
    results: list[Result] = []
    counts = Counts()
    for stream_slice in slicing.slices:
        slice_pieces = [
            each for each in pieces if each[0].holds is Holds.TABLE or stream_slice.reads(each[0])
        ]
        slice_pieces.sort(key=lambda each: (each[0].holds, each[0].first, each[0].place))
        run = SliceRun([query], stream, stream_slice)
        results += run.results(*in_order((piece, unpack(blob)) for piece, blob in slice_pieces))
        for field in fields(Counts):
            setattr(counts, field.name, getattr(counts, field.name) + getattr(run.counts, field.name))
    return results, counts


@pytest.mark.parametrize("schema", [STREAMS, TABLES], ids=["streams", "tables"])
@pytest.mark.parametrize(
    "query", QUERIES, ids=["keywords", "in order", "likenesses", "pattern", "best", "groups"]
)
@given(
    seed=st.integers(0, 10_000),
    window=st.sampled_from([TimeWindow(5), TimeWindow(12), TimeWindow(40), CountWindow(5), CountWindow(20)]),
)
@example(seed=122, window=TimeWindow(40))  # joins of equal fans
@examples(25, deadline=None)
def test_slices_have_the_results_of_the_whole_stream(
    schema: Schema, query: Query, seed: int, window: Window
) -> None:
    """Includes slices of time over a stream that is out of order."""
    rng = random.Random(seed)
    records = without_dequeues(
        schema, random_stream(schema, seed, length(130, 250), 5, 0 if seed % 2 else 0.02)
    )
    if isinstance(window, TimeWindow) and seed % 3 == 0:
        rng.shuffle(records)
    stream = Stream(schema, window, finite=True)
    named_query = query.named("q", 4)
    pieces = packed_pieces(records, schema, rng)
    slicing = plan_slices([piece for piece, _ in pieces], [named_query], stream, window, 2, least=10)
    expected, counts = session_results(named_query, stream, records)
    results, counts_of_slices = sliced_results(named_query, stream, pieces, slicing)
    assert results == expected
    assert (counts_of_slices.tuples, counts_of_slices.deletions, counts_of_slices.excluded) == (
        counts.tuples,
        counts.deletions,
        counts.excluded,
    )
    assert (counts_of_slices.static, counts_of_slices.unmatched_deletions) == (
        counts.static,
        counts.unmatched_deletions,
    )


@given(seed=st.integers(0, 10_000))
def test_pieces_are_merged_by_time_and_by_arrival(seed: int) -> None:
    rng = random.Random(seed)
    records = [Record(0, rng.randrange(20), (str(number), None, None)) for number in range(60)]
    pieces = packed_pieces(records, STREAMS, rng)
    pieces.sort(key=lambda each: (each[0].first, each[0].place))
    merged_records = merge_by_time((piece.first, piece.place, unpack(blob)) for piece, blob in pieces)
    assert [record for batch in merged_records for record in batch.records()] == sorted(
        records, key=lambda r: r.time
    )


def _pieces(number: int, size: int, step: int) -> Iterator[PackedPiece]:
    for split in range(number):
        yield PackedPiece(split, 0, Holds.RECORDS, split * step, split * step + step - 1, size)


@pytest.mark.parametrize(
    ("window", "tasks", "slices"),
    [
        (TimeWindow(10), 2, 8),
        (TimeWindow(10), 1, 1),
        (TimeWindow(100), 2, 2),
        (TimeWindow(100), 8, 8),
        (TimeWindow(400), 2, 1),
        (TimeWindow(5000), 2, 1),
        (CountWindow(100), 2, 4),
        (CountWindow(10_000), 2, 1),
        (Unbounded(), 2, 1),
    ],
)
def test_the_number_of_slices_balances_their_overlap(window: Window, tasks: int, slices: int) -> None:
    """Over 1,000 microseconds; with a keyed relation, each slice includes two windows before it."""
    stream, named_query = Stream(STREAMS, window, finite=True), Query("alpha").named("q", 4)
    slicing = plan_slices(_pieces(100, 100, 10), [named_query], stream, window, tasks, least=100)
    assert len(slicing.slices) == slices
    assert bool(slicing.reason) == (slices == 1)


def test_more_slices_are_chosen_if_nearly_as_fast() -> None:
    stream, named_query = Stream(STREAMS, TimeWindow(10), finite=True), Query("alpha").named("q", 4)
    pieces = list(_pieces(100, 100, 10))
    for tolerance, slices in ((0.0, 2), (0.11, 8)):
        slicing = plan_slices(pieces, [named_query], stream, TimeWindow(10), 2, 100, tolerance)
        assert len(slicing.slices) == slices


def test_count_windows_need_a_stream_in_order() -> None:
    stream, named_query = Stream(STREAMS, CountWindow(5), finite=True), Query("alpha").named("q", 4)
    overlapping = [*_pieces(50, 100, 10), PackedPiece(50, 0, Holds.RECORDS, 100, 300, 100)]
    slicing = plan_slices(overlapping, [named_query], stream, CountWindow(5), 2, least=100)
    assert "out of order" in slicing.reason
