"""Reads a source of skws for Spark: planned beside the driver, read in tasks.

A micro-batch is planned between two offsets of the feed; tasks of any executor read its parts. A source that
cannot be divided, or has few records, is polled beside the driver, and tasks get these records.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final, Protocol

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

from skws.data.batch import BadRecord, Chunk, Ints
from skws.data.packing import pack, unpack
from skws.formats.dead_letters import BadRecordLog, place, record_line
from skws.jobs.clock import Rest
from skws.jobs.intake import BatchSizer
from skws.library_inputs import schema_of
from skws.memory import MemoryShare
from skws.sources.addresses import parse_source
from skws.sources.feed import Batch, Feed, FeedPart, Offset, SystemClock
from skws.sources.partitions import PartitionEnds
from skws.sources.retry import RetryingFeed
from skws.spark.pieces import PARTS, shared_pieces
from skws.spark.streaming.layout import Layout
from skws.spec.enums import OnError
from skws.spec.job import AHEAD, Job, read_ahead
from skws_schema.errors import UsageError, nearest
from skws_schema.model import Schema
from skws_windows.window import MICROSECOND

RECORDS: Final = 50_000
_PART_RECORDS: Final = 100_000  # records that one task gets
_SHORT: Final = 3.0  # seconds that a micro-batch may take
_LONG: Final = 10.0
POLLS: Final = 40
"""The most polls of one micro-batch that wait for records, a few seconds: stopping a query waits for them."""
_POLICIES: Final = (OnError.FAIL, OnError.SKIP)


@dataclass(frozen=True, slots=True)
class Reading:
    """How a source is read. ``ahead``: as ``skws watch --ahead``; ``on_error``: fail or skip.

    ``records``: the approximate limits for the first micro-batch and for any other; the limit adapts to the
    time that Spark takes. ``tasks``: the number of tasks that read a micro-batch. ``idle``: how long to wait
    for a silent partition, in microseconds; once all have been silent for that time, shards are notified.
    Raises UsageError.
    """

    source: str
    schema: Schema
    ahead: str = AHEAD
    on_error: str = OnError.FAIL
    records: tuple[int, int] = (RECORDS, RECORDS)
    tasks: int = 8
    idle: int | None = None

    def __post_init__(self) -> None:
        if self.on_error not in _POLICIES:
            raise UsageError(f"format skws: on_error {self.on_error}: expected {' or '.join(_POLICIES)}")
        read_ahead(self.ahead)

    def open(self) -> Feed:
        """Raises UsageError, SourceError."""
        source = parse_source(self.source, ahead=read_ahead(self.ahead))
        return RetryingFeed(source, self.schema, SystemClock())

    def bad_records(self) -> BadRecordLog:
        return BadRecordLog(OnError(self.on_error), remedy=f"on_error={OnError.SKIP} skips bad records")


class Emit(Protocol):
    """Turns the records that a task reads into rows of a data source."""

    def __call__(
        self, place: int, part: FeedPart, chunks: Iterator[tuple[int | None, Chunk]]
    ) -> Iterator[pa.RecordBatch]:
        """``place``: that of ``part`` in the micro-batch. ``chunks``: with the number of the partition."""


SILENCE: Final = "silence"
"""In offsets: the number of times that all partitions became idle."""
_LINES: Final = pa.schema([("value", pa.string()), ("skws_partition", pa.int64())])  # see ``SkwsSource``


@dataclass(frozen=True, slots=True)
class Lines(Emit):
    """A row of ``SkwsSource`` for each record: the record as JSON, and the partition of its topic."""

    schema: Schema

    def __call__(
        self,
        place: int,  # noqa: ARG002 - as of Emit
        part: FeedPart,  # noqa: ARG002 - as of Emit
        chunks: Iterator[tuple[int | None, Chunk]],
    ) -> Iterator[pa.RecordBatch]:
        for _, chunk in chunks:
            lines = [record_line(record, self.schema).decode() for record in chunk.records.records()]
            partitions = chunk.partitions
            numbers = list(repeat(None, len(lines))) if partitions is None else partitions.tolist()
            yield pa.RecordBatch.from_arrays(
                [pa.array(lines, pa.string()), pa.array(numbers, pa.int64())], schema=_LINES
            )


@dataclass(frozen=True, slots=True)
class PolledPart(FeedPart):
    """Records that were read beside the driver, packed."""

    records: bytes
    bad: Sequence[BadRecord]
    partitions: Ints | None

    @classmethod
    def of(cls, chunk: Chunk) -> list[PolledPart]:
        """Divides the records so that no task gets too many."""
        entries = []
        for start in range(0, max(len(chunk.records), 1), _PART_RECORDS):
            rows = slice(start, start + _PART_RECORDS)
            numbers = None if chunk.partitions is None else chunk.partitions[rows]
            entries.append(cls(pack(chunk.records.take(rows)), [] if start else chunk.bad, numbers))
        return entries

    def read(self, schema: Schema) -> Iterator[Chunk]:  # noqa: ARG002 - it was used for reading
        yield Chunk(unpack(self.records), self.bad, self.partitions)


@dataclass(frozen=True, slots=True)
class Silence(FeedPart):
    """A part without records: all partitions have been silent."""

    def read(self, schema: Schema) -> Iterator[Chunk]:  # noqa: ARG002 - there are no records
        return iter(())


@dataclass(frozen=True, slots=True)
class Pieces(Emit):
    """Packed pieces for the shards of a search: columns SHARED. ``job``: the search."""

    job: Job
    layout: Callable[[], Layout]
    memory: MemoryShare

    def __call__(
        self, place: int, part: FeedPart, chunks: Iterator[tuple[int | None, Chunk]]
    ) -> Iterator[pa.RecordBatch]:
        schema = self.job.schema
        number, ends = len(schema.relations), PartitionEnds(self.job.stream.lateness, part.until)
        return shared_pieces(
            chunks,
            number * PARTS + place,
            schema,
            self.layout(),
            self.memory,
            ends,
            number,
            may_grow=part.may_grow,
            silent=isinstance(part, Silence),
        )


class SourcePartition(InputPartition):
    """A part of a micro-batch, with its place in the order of arrival."""

    def __init__(self, place: int, part: FeedPart) -> None:
        self.place = place
        self.part = part


class SourceReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches beside the driver, and reads their parts in tasks.

    Raises SourceError, BadRecordsError. Skipped bad records are reported on standard error, the first few of
    each task.
    """

    def __init__(self, reading: Reading, emit: Emit) -> None:
        self._reading = reading
        self._emit = emit
        self._open_feed: Feed | None = None
        first, most = reading.records
        self._sizer = BatchSizer(first, least=first, most=most, short=_SHORT, long=_LONG)
        self._last_poll: tuple[Offset, Offset, Chunk] | None = None
        self._offset: Offset = {}  # the feed's own object, which it recognises
        self._rest = Rest(SystemClock())
        # The approximate number of records in the last micro-batch, and its time.
        self._last_batch: tuple[int, float] | None = None
        self._silent_since: float | None = None  # None if unknown, and once shards are notified
        self._is_working = True  # on a micro-batch with records, perhaps of an earlier start
        self._ends_soon = False  # read the records that exist now, and end
        self._is_over = False

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The offset at which a new stream begins."""
        feed = self._feed()
        start = feed.start()
        for _ in feed.tables():
            pass  # a source returns its tables before its stream
        return {"feed": start}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """No limit: the reader limits micro-batches itself."""
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Ends the stream after the records that exist now."""
        self._ends_soon = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802, ARG002 - Spark's names
        """The offset at which the next micro-batch ends."""
        if self._is_over:
            return start
        feed, most = self._feed(), self._limit()
        position = self._offset if self._offset == start["feed"] else start["feed"]
        plan, is_answered = feed.plan(position, most), True
        if plan is not None:
            self._last_poll = None
            end, notices, count, has_rest = plan.end, plan.notices, most, plan.rest
        else:
            batch = self._poll(feed, position, most)
            self._last_poll = position, batch.end, batch.read
            end, notices, count, has_rest = batch.end, batch.notices, len(batch.read), len(batch.read) >= most
            is_answered = batch.answered
        for notice in notices:
            _print_notice(notice)
        has_moved, self._offset = end != position, end
        # A source that is unavailable has returned a notice, and no records yet.
        self._is_over = self._ends_soon and is_answered and not has_rest and (has_moved or not notices)
        now = time.monotonic()
        is_silent = not has_moved and is_answered and self._is_silent(now)
        silence = start.get(SILENCE, 0) + is_silent
        if has_moved:
            self._last_batch = count, now
            self._silent_since, self._is_working = now, True
        elif not is_answered:  # the source may have records
            self._silent_since, self._is_working = None, True
        elif self._is_working:
            # The micro-batch is complete, but tasks may have read it long after it was planned: notify shards
            # again.
            self._silent_since, self._is_working = now, False
        elif is_silent:
            self._silent_since = None
        self._rest.after(busy=has_moved or self._is_over)
        return {"feed": end, SILENCE: silence} if silence else {"feed": end}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The parts between two offsets; read beside the driver if the source cannot be divided."""
        first, last = start["feed"], end["feed"]
        parts: Sequence[FeedPart] | None
        if self._last_poll is not None and self._last_poll[:2] == (first, last):
            parts = PolledPart.of(self._last_poll[2])
        else:
            feed = self._feed()
            parts = feed.parts(first, last, self._reading.tasks)
            parts = PolledPart.of(feed.replay(first, last)) if parts is None else parts
        if first == last:
            parts = [Silence()]
        return [SourcePartition(place, part) for place, part in enumerate(parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a part, in a task."""
        assert isinstance(partition, SourcePartition)  # noqa: S101 - as ``partitions`` makes them
        return self._emit(partition.place, partition.part, self._chunks(partition.part))

    def commit(self, end: dict[str, Any]) -> None:
        """Lets the source forget completed batches."""
        self._feed().commit(end["feed"])

    def _chunks(self, part: FeedPart) -> Iterator[tuple[int | None, Chunk]]:
        log = self._reading.bad_records()
        for chunk in part.read(self._reading.schema):
            old_count = len(log.first)
            log.take(chunk.bad)
            for line in (
                *(f"{place(record)}: {record.reason}" for record in log.first[old_count:]),
                *log.news(),
            ):
                _print_notice(line)
            yield part.partition, chunk

    def _poll(self, feed: Feed, start: Offset, most: int) -> Batch:
        """Polls again while records are still being fetched, or the source is unavailable.

        Spark takes an unchanged offset for the end of the records: ``availableNow`` would end early.
        """
        batch = feed.poll(start, most)
        for _ in range(POLLS):
            if batch.answered or batch.end != start or batch.notices:
                break
            self._rest.after(busy=False)
            batch = feed.poll(start, most)
        return batch

    def _is_silent(self, now: float) -> bool:
        """True once there have been no records for the ``idle`` time."""
        idle = self._reading.idle
        return (
            idle is not None
            and not self._ends_soon
            and self._silent_since is not None
            and now - self._silent_since > 1.1 * idle / MICROSECOND  # clocks of executors differ
        )

    def _limit(self) -> int:
        if self._last_batch is not None:
            records, start_time = self._last_batch
            self._sizer.adapt(records, time.monotonic() - start_time)
            self._last_batch = None
        return self._sizer.limit

    def _feed(self) -> Feed:
        if self._open_feed is None:
            self._open_feed = self._reading.open()
        return self._open_feed


_OPTIONS: Final = ("source", "schema", "records", "ahead", "on_error")


def reader_of(options: dict[str, str]) -> SourceReader:
    """The reader for the options of ``format("skws")``. Raises UsageError, SchemaError."""
    for name in options:
        if name not in _OPTIONS:
            raise UsageError(f"format skws: no option {name!r}{nearest(name, _OPTIONS)}")
    for name in ("source", "schema"):
        if name not in options:
            raise UsageError(f"format skws: the option {name} is missing")
    records = options.get("records", str(RECORDS))
    if not records.isdecimal() or not int(records):
        raise UsageError(f"format skws: records {records}: expected a number above 0")
    schema, most = schema_of(options["schema"]), int(records)
    policies = options.get("ahead", AHEAD), options.get("on_error", OnError.FAIL)
    return SourceReader(Reading(options["source"], schema, *policies, (most, most)), Lines(schema))


def _print_notice(line: str) -> None:
    print(f"skws: {line}", file=sys.stderr)
