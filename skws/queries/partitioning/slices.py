"""Cuts a finite stream into slices of time that are answered independently of each other.

A slice yields the results that its own records complete. It first reads the records before them on which
those results may depend, as a job replays its log after a restart. That is one window in the simplest case.
It is two windows if the names of tuples depend on earlier ones (keys, patterns), or if results that are alive
when the slice begins compete with its own, with scores that depend on the window before them (the best k).

    read_pieces -> plan_slices -> pieces of each slice -> in_order -> SliceRun -> results

Tasks of Spark or processes on one machine run the slices; this module depends on neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain, pairwise
from typing import Final

import numpy as np

from skws.data.batch import NO_RECORDS, RecordBatch, TimedPart, merge_by_time
from skws.formats.splits import Holds, PackedPiece
from skws.queries.evaluator import Counts
from skws.queries.keywords.updates import Begin
from skws.queries.kinds import plans_over
from skws.queries.partitioning.parts import WHOLE, KeyPartitioning, Part, Partitioning, plan_keys
from skws.queries.session import Session, bounded_session
from skws.results.result import Result
from skws.spec.query_spec import KEYWORDS, PATTERN, TOP, Query, Stream
from skws_purging.lifespans import ALWAYS
from skws_windows.window import FOREVER, CountWindow, TimeWindow, Window, at_arrival

SMALL: Final = 20_000
"""The fewest records of a slice: starting a task costs more than searching fewer."""
_MOST_COST: Final = 0.9  # a stream is only cut if that takes at most this fraction of the time
_POINTS: Final = 16  # the number of times that represent the records of a piece


@dataclass(frozen=True, slots=True)
class Slice:
    """Reads records from ``context`` on; records from ``begin`` to before ``end`` produce the results.

    Times are in microseconds. ``position``: the number of insertions before the first piece that it reads.
    ``part``: the part of the keys whose records it reads, if the stream is cut by keys.
    """

    context: int = ALWAYS
    begin: int = ALWAYS
    end: int = FOREVER
    position: int = 0
    part: Part = WHOLE

    @property
    def is_first(self) -> bool:
        return self.begin == ALWAYS

    @property
    def has_tables(self) -> bool:
        """True if the results of tables alone belong to the slice."""
        return self.is_first and self.part.first

    @property
    def is_last(self) -> bool:
        return self.end == FOREVER

    def reads(self, piece: PackedPiece) -> bool:
        """True if the slice reads records of a piece of the stream."""
        return piece.last >= self.context and piece.first < self.end

    def share(self, piece: PackedPiece) -> float:
        """The fraction of a piece's records that the slice reads, if they are evenly spread over time."""
        begin, end = max(piece.first, self.context), min(piece.last + 1, self.end)
        return max(end - begin, 0) / (piece.last + 1 - piece.first)


@dataclass(frozen=True, slots=True)
class Slicing:
    """The slices in order of time; with ``keys``, one for each part of the keys.

    ``reason`` says why there is only one; else it is empty.
    """

    slices: tuple[Slice, ...] = (Slice(),)
    reason: str = ""
    keys: KeyPartitioning | None = None

    def parts_of(
        self, piece: PackedPiece, batch: RecordBatch
    ) -> Iterator[tuple[int, PackedPiece, RecordBatch]]:
        """A piece cut by keys: the records of each slice, with its number. All slices get tables whole."""
        assert self.keys is not None  # noqa: S101 - else slices read whole pieces
        for number, part_batch in enumerate(self.keys.divided(batch, len(self.slices))):
            if len(part_batch):
                first, last = (0, 0) if piece.holds is Holds.TABLE else part_batch.time[[0, -1]].tolist()
                yield number, replace(piece, first=first, last=last, size=len(part_batch)), part_batch


def plan_slices(
    pieces: Iterable[PackedPiece],
    queries: Sequence[Query],
    stream: Stream,
    window: Window,
    tasks: int,
    least: int = SMALL,
    evening: float = 0.11,
) -> Slicing:
    """Cut a stream for ``tasks`` that run at a time, into at most four slices per task to balance the load.

    ``window``: of the queries. ``least``: the fewest records of a slice. ``evening``: the fraction by which
    more slices, each with the window before it, may take longer than fewer.
    """
    records = sorted((p for p in pieces if p.holds is Holds.RECORDS), key=lambda p: (p.first, p.place))
    reason = why_whole(queries, window) or _why_uncut(records, queries, window)
    if reason:
        return Slicing(reason=reason)
    size = sum(piece.size for piece in records)
    by_position = _by_position(queries, window)
    has_keys = any(relation.key for relation in stream.schema.relations)
    windows = 2 if by_position or has_keys or any(one.kind == TOP for one in queries) else 1
    number = min(4 * tasks, size // max(least, 1)) if tasks > 1 else 1
    if number < 2:
        return Slicing(reason="one task is enough")
    plans: list[tuple[float, Slicing]] = []
    while number > 1:
        slices = _cut(records, _quantiles(records, number), window, windows)
        sizes_read = [sum(one.share(piece) * piece.size for piece in records) for one in slices]
        plans.append((max(*sizes_read, sum(sizes_read) / tasks), Slicing(tuple(slices))))
        number //= 2
    least_duration = min(duration for duration, _ in plans)
    if least_duration > _MOST_COST * size:
        return Slicing(reason="windows are as long as the slices would be")
    return next(slicing for duration, slicing in plans if duration <= least_duration * (1 + evening))


def plan_parts(
    pieces: Iterable[PackedPiece],
    queries: Sequence[Query],
    stream: Stream,
    window: Window,
    tasks: int,
    least: int = SMALL,
) -> Slicing | None:
    """Cut a stream by keys if it cannot be cut by time: one part per task. None if keys do not divide it."""
    size = sum(piece.size for piece in pieces if piece.holds is Holds.RECORDS)
    number = min(tasks, size // max(least, 1))
    keys = plan_keys(queries, stream, window)
    if number < 2 or isinstance(keys, str):
        return None
    parts = (Part(part, number, Partitioning.KEYS) for part in range(number))
    return Slicing(tuple(Slice(part=part) for part in parts), keys=keys)


def why_whole(queries: Sequence[Query], window: Window) -> str:
    """The reason why the queries prevent any stream from being cut; empty if there is none."""
    if any(one.kind not in (KEYWORDS, PATTERN, TOP) for one in queries):
        return "a query of this kind keeps a state of the whole stream"
    if not isinstance(window, TimeWindow | CountWindow):
        return "no window bounds the records that a result depends on"
    return ""


def _why_uncut(records: Sequence[PackedPiece], queries: Sequence[Query], window: Window) -> str:
    if any(piece.dequeues for piece in records) and any(one.kind != PATTERN for one in queries):
        return "a deletion of a row without a key ends the oldest equal row, however old"
    in_order = all((a.last, a.place) < (b.first, b.place) for a, b in pairwise(records))
    if _by_position(queries, window) and not in_order:
        return "positions in a stream out of order are only known after sorting"
    return ""


def _by_position(queries: Sequence[Query], window: Window) -> bool:
    """True if results depend on positions in the stream; results of patterns show positions."""
    return isinstance(window, CountWindow) or any(one.kind == PATTERN for one in queries)


def _quantiles(records: Sequence[PackedPiece], number: int) -> list[int]:
    """The times at which ``number`` slices of about the same size begin, without the first one."""
    steps = np.linspace(0, 1, _POINTS)
    firsts = np.array([piece.first for piece in records])
    spans = np.array([piece.last for piece in records]) - firsts
    times = (firsts[:, None] + (spans[:, None] * steps).astype(np.int64)).ravel()
    weights = np.repeat([piece.size for piece in records], _POINTS)
    order = np.argsort(times, kind="stable")
    totals = np.cumsum(weights[order])
    positions = np.searchsorted(totals, totals[-1] * np.arange(1, number) / number)
    return sorted({int(time) for time in times[order][positions]} - {int(times.min())})


def _cut(records: Sequence[PackedPiece], bounds: Sequence[int], window: Window, windows: int) -> list[Slice]:
    insertions_before = np.concatenate([[0], np.cumsum([piece.insertions for piece in records])])
    slices = []
    for begin, end in zip([ALWAYS, *bounds], [*bounds, FOREVER], strict=True):
        context = ALWAYS if begin == ALWAYS else _context(records, begin, window, windows)
        slice_ = Slice(context, begin, end)
        first = next((position for position, piece in enumerate(records) if slice_.reads(piece)), 0)
        slices.append(replace(slice_, position=int(insertions_before[first])))
    return slices


def _context(records: Sequence[PackedPiece], begin: int, window: Window, windows: int) -> int:
    """The time of the first record that results from ``begin`` on may depend on."""
    if isinstance(window, TimeWindow):
        return begin - windows * window.length
    assert isinstance(window, CountWindow)  # noqa: S101 - others are not cut
    needed = windows * (window.size + 1)
    for piece in reversed(records):
        needed -= piece.insertions if piece.last < begin else 0
        if needed <= 0:
            return piece.first
    return ALWAYS


class SliceRun:
    """Answers one slice by a session.

    Reads the tables, and the records of the stream in order. Raises SkwsError as ``Session`` does.
    """

    def __init__(self, queries: Sequence[Query], stream: Stream, slice_: Slice) -> None:
        self._queries = queries
        self._stream = stream
        self._slice = slice_
        self._session: Session | None = None
        self._counts_before = Counts()
        self._skipped = 0  # insertions of the batches that come before the slice's context
        self._copied = 0  # truncations, which all parts of the keys get and only the first one counts

    @property
    def counts(self) -> Counts:
        """The counts of the slice's own records so far."""
        if self._session is None:
            return Counts()
        counts = less(self._session.counts(), self._counts_before)
        counts.deletions -= self._copied
        return counts

    @property
    def end(self) -> int:
        """The time at which the slice ends, in microseconds."""
        return self._slice.end

    def begins(self) -> tuple[Begin, ...]:
        """The begins of the results that its own records updated."""
        begins = {} if self._session is None else self._session.begins()
        return tuple(chain.from_iterable(begins.values()))

    def results(self, tables: Sequence[RecordBatch], batches: Iterable[RecordBatch]) -> Iterator[Result]:
        """The results of the slice in order."""
        session, results, slice_batches = self._start(tables, batches)
        if self._slice.has_tables:
            yield from results
        for batch in self._own_records(session, slice_batches):
            if not self._slice.part.first:
                self._copied += int(batch.truncations().sum())
            yield from session.process(batch)
        if self._slice.is_last:
            yield from session.process(NO_RECORDS, ended=True)
        else:  # results that expire before the next slice's records may need more records than that reads
            yield from self._pass_to(session, self._slice.end)

    def count(self, tables: Sequence[RecordBatch], batches: Iterable[RecordBatch]) -> Iterator[int]:
        """The numbers of results, batch by batch, without forming them; the only query is a pattern."""
        session, _, slice_batches = self._start(tables, batches)
        yield from map(session.count, self._own_records(session, slice_batches))

    def _start(
        self, tables: Sequence[RecordBatch], batches: Iterable[RecordBatch]
    ) -> tuple[Session, list[Result], Iterator[RecordBatch]]:
        """A session with the tables, the results of tables alone, and the records that the slice reads."""
        slice_batches = self._records_read(batches)
        first = next(slice_batches, NO_RECORDS)  # comes after all tables
        session, slice_batches = bounded_session(
            plans_over(self._queries, self._stream),
            self._stream,
            chain([first], slice_batches),
            self._slice.part,
        )
        self._session = session
        results = session.load_tables(tables)
        if not self._slice.has_tables:
            self._counts_before = session.counts()
        if not self._slice.is_first:
            position = self._slice.position + self._skipped
            session.seek(position, at_arrival(position) if self._stream.by_count else self._slice.context)
        return session, results, slice_batches

    def _own_records(self, session: Session, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        """The slice's own records; processes the records before them, without counting them."""
        has_begun = self._slice.is_first
        for batch in batches:
            context_size = 0 if has_begun else int(np.searchsorted(batch.time, self._slice.begin))
            if context_size:
                context, batch = batch.cut(context_size)  # noqa: PLW2901 - the rest of it
                session.replay(context)
                self._counts_before = session.counts()
            if len(batch):
                if not has_begun:
                    self._pass_to(session, self._slice.begin)
                has_begun = True
                yield batch
        if not has_begun:
            self._pass_to(session, self._slice.begin)

    def _pass_to(self, session: Session, time: int) -> list[Result]:
        """Advance to just before a time without records; returns the changes as results expire."""
        return [] if self._stream.by_count else session.advance(time - 1)

    def _records_read(self, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        for batch in batches:
            begin, end = np.searchsorted(batch.time, [self._slice.context, self._slice.end]).tolist()
            if begin:
                self._skipped += batch.take(slice(begin)).insertions
            if end > begin:
                yield batch if end - begin == len(batch) else batch.take(slice(begin, end))


def summed(counts: Counts, other_counts: Counts) -> Counts:
    """The sum of two slices' counts, but the maximum of ``kept``."""
    sums = {
        field.name: getattr(counts, field.name) + getattr(other_counts, field.name)
        for field in fields(Counts)
    }
    return Counts(**{**sums, "kept": max(counts.kept, other_counts.kept)})


def less(counts: Counts, before: Counts) -> Counts:
    """The counts since ``before``; ``kept`` is unchanged."""
    differences = {
        field.name: getattr(counts, field.name) - getattr(before, field.name) for field in fields(Counts)
    }
    return Counts(**{**differences, "kept": counts.kept})


def in_order(
    pieces: Iterable[tuple[PackedPiece, RecordBatch]],
) -> tuple[list[RecordBatch], Iterator[RecordBatch]]:
    """The tables among the pieces of a slice, and its records in order of time.

    The pieces of tables come first, in order of arrival, then the pieces of the stream by their first times.
    """
    tables: list[RecordBatch] = []
    batches = merge_by_time(_without_tables(iter(pieces), tables))
    first = next(batches, NO_RECORDS)  # after this, the tables have been read
    return tables, chain([first], batches)


def _without_tables(
    pieces: Iterator[tuple[PackedPiece, RecordBatch]], tables: list[RecordBatch]
) -> Iterator[TimedPart]:
    """The pieces of the stream; before the first one, adds all table pieces to ``tables``."""
    for piece, batch in pieces:
        if piece.holds is Holds.TABLE:
            tables.append(batch)
        else:
            yield piece.first, piece.place, batch
