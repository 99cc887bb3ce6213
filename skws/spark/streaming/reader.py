"""A live source for Spark: a feed and the commands of the run.

A batch of Spark has one or more of our micro-batches, as rows: one for each shard. Spark stores the offsets
before a batch runs, and requests the same range again after a failure: the feed reads it again, and commands
are read from their file.

The records are read in one process on the driver's machine (``FeedReader``). If a source can be divided and
has a backlog, this process only plans a micro-batch, and tasks read its parts (``PlanningReader``).
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain, pairwise
from pathlib import Path
from threading import current_thread, main_thread
from time import perf_counter
from typing import Final

import numpy as np
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition, SimpleDataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from skws.data.batch import NOTHING, Chunk, RecordBatch
from skws.formats.dead_letters import malformed, place
from skws.jobs.checkpoint import packed_tables
from skws.jobs.clock import Pace, Rest, replay_rate
from skws.jobs.control import JobCommand
from skws.jobs.intake import BadRecordPolicy, BatchSizer
from skws.memory import expect_long_lived_objects
from skws.queries.operator import changed
from skws.sources.addresses import parse_source
from skws.sources.feed import Backlog, Batch, BatchPlan, Feed, FeedPart, Offset, SystemClock
from skws.sources.partitions import PartitionedFeed, stream_time
from skws.sources.retry import RetryingFeed
from skws.spark.streaming.input_rows import InputRow, InputRows, RowsPartition, TaskReader
from skws.spark.streaming.layout import Layout
from skws.spark.streaming.messages import BatchHeader, MicroBatch
from skws.spark.streaming.run_directory import COMMANDS, ReplayControl, commands_between
from skws.spec.enums import OnError
from skws.spec.job import Job
from skws_purging.lifespans import ALWAYS
from skws_schema.model import Schema


@dataclass(frozen=True, slots=True)
class PolledBatch:
    """A batch, its records packed for micro-batches if that was done ahead, and the seconds for both.

    ``parts``: it has no records, since tasks read these parts. ``full``: there may be further records.
    """

    batch: Batch
    packed: Sequence[Sequence[bytes]] | None = None
    seconds: float = 0.0
    parts: Sequence[FeedPart] | None = None
    full: bool = False


class Prefetch:
    """Polls a feed ahead, in a thread, as long as it returns full batches.

    ``pack``: packs the records for micro-batches.
    """

    def __init__(self, feed: Feed, pack: Callable[[RecordBatch], Sequence[Sequence[bytes]]]) -> None:
        self._feed = feed
        self._pack = pack
        self._thread = ThreadPoolExecutor(1, "poll")
        self._next: tuple[Offset, int] | None = None
        self._ahead: tuple[Offset, Future[PolledBatch]] | None = None
        self._commit: Future[None] | None = None

    def poll(self, start: Offset, limit: int) -> PolledBatch:
        """As ``Feed.poll``."""
        start_time = perf_counter()
        batch_ahead = self._take_ahead(start)
        self._raise_late()
        result = batch_ahead or PolledBatch(self._feed.poll(start, limit))
        batch = result.batch
        # The offset after bad records has the horizon of those ahead of the clock, for one poll.
        if len(batch.read) < limit and not batch.ended and not batch.read.bad:
            batch = _join_batches(batch, self._feed.poll(batch.end, limit - len(batch.read)))
            result = result if batch is result.batch else PolledBatch(batch)
        is_full = len(batch.read) >= limit and not batch.ended
        self._next = (batch.end, limit) if is_full else None
        return replace(result, full=is_full, seconds=result.seconds or perf_counter() - start_time)

    def read_on(self) -> None:
        """Starts the next poll, after one that returned a full batch."""
        if self._next is not None:
            (start, limit), self._next = self._next, None
            self._ahead = start, self._thread.submit(self._poll, start, limit)

    def commit(self, end: Offset) -> None:
        """As ``Feed.commit``; during a poll, in its thread after it, since Spark waits for this call.

        The next call then raises its exception.
        """
        self._raise_late()
        if self._ahead is None:
            self._feed.commit(end)
        else:
            self._commit = self._thread.submit(self._feed.commit, end)

    def change_schema(self, schema: Schema) -> None:
        """As ``Feed.change_schema``; discards and repeats a poll made ahead."""
        self.idle_feed().change_schema(schema)
        self._ahead = None

    def idle_feed(self) -> Feed:
        """The feed, once the poll in the thread has ended, as only one thread at a time may use it."""
        if self._ahead is not None:
            self._ahead[1].exception()  # the next ``poll`` raises it
        self._raise_late()
        return self._feed

    def _raise_late(self) -> None:
        """Waits for a commit in the thread, and raises its exception."""
        if self._commit is not None:
            commit, self._commit = self._commit, None
            commit.result()

    def _poll(self, start: Offset, limit: int) -> PolledBatch:
        start_time = perf_counter()
        batch = self._feed.poll(start, limit)
        records = self._pack(batch.read.records)
        return PolledBatch(batch, records, perf_counter() - start_time)

    def _take_ahead(self, start: Offset) -> PolledBatch | None:
        if self._ahead is None:
            return None
        (start_read, future), self._ahead = self._ahead, None
        future.exception()
        return future.result() if start_read == start else None


def _join_batches(first: Batch, second: Batch) -> Batch:
    if not len(second.read) and (second.end, second.notices, second.ended) == (first.end, (), first.ended):
        return first
    chunk = Chunk.concat([first.read, second.read])
    return Batch(chunk, second.end, (*first.notices, *second.notices), second.ended)


_FIRST: Final = 50_000  # records in a batch of Spark
_MOST: Final = 600_000
_PART: Final = 200_000  # records in a micro-batch: columns of more exceed the processor's caches
_SHORT: Final = 3.0  # seconds for a batch; at the start of a run Spark itself takes half of them
_LONG: Final = 10.0
_OFFSET_SECONDS: Final = 5.0  # seconds between micro-batches with only a later offset
_BACKLOG_SECONDS: Final = 5.0  # seconds

Rows = Iterator[InputRow]


@dataclass(frozen=True, slots=True)
class Reading:
    """The arguments of a reader. ``start``: distinguishes starts of the run. ``run``: of the checkpoint.

    ``first``: the offset of Spark at which the layout begins; see ``beginning``. ``watched``: a listener of
    the driver wants records and internal figures. ``tasks``: the number of tasks that read a backlog; 0 if
    the source cannot be divided.
    """

    request: Job
    folder: Path
    start: str
    layout: Layout
    first: Offset
    run: str = ""
    watched: bool = False
    tasks: int = 0


def beginning(feed: Offset) -> Offset:
    """Spark's offset at the beginning of a run, from the offset of its feed."""
    return {
        "feed": feed,
        "commands": 0,
        "tables": False,
        "sequence": 0,
        "start": "",
        "ended": False,
        "tasks": 0,
    }


class FeedReader(SimpleDataSourceStreamReader):
    """Reads for Spark, in a process of its own. Raises SourceError, BadRecordsError.

    A batch has ``first`` records at first and up to ``most`` later, a micro-batch of it about ``part``. A
    planned batch is one micro-batch.
    """

    def __init__(
        self, reading: Reading, *, first: int = _FIRST, most: int = _MOST, part: int = _PART
    ) -> None:
        self._reading = reading
        self._part = part
        shards = 1 if reading.layout.keys is None else reading.layout.shards
        # If a key divides the records, each shard gets a part of a planned micro-batch.
        self._most_planned = part * shards if reading.tasks else 0
        self._most_polled = most
        self._policy = reading.request.on_error
        self._intake = BadRecordPolicy(self._policy)
        self._sizer = BatchSizer(first, most=max(most, self._most_planned), short=_SHORT, long=_LONG)
        self._last_batch: tuple[int, float] | None = None  # records in the last micro-batch, and its time
        self._rest = Rest(SystemClock())
        self._feed: Prefetch | None = None
        self._schema = reading.request.schema
        self._changes: tuple[str, ...] = ()  # of the schema, up to ``_commands_read``
        self._commands_read = 0
        self._pace = Pace(SystemClock(), replay_rate(reading.request))
        self._replay_control = ReplayControl()
        self._last_rows_time, self._backlog_time = time.monotonic(), -_BACKLOG_SECONDS
        # The end of the last poll without records: Spark's offset, and the feed's.
        self._empty_poll: tuple[Offset, Offset] | None = None
        self._next_plan: tuple[Offset, BatchPlan] | None = None  # of the batch after an offset of the feed
        self._parts: Sequence[FeedPart] | None = None  # of the last batch

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        return self._reading.first

    def read(self, start: Offset) -> tuple[Rows, Offset]:
        """The records after ``start``, and the offset at their end."""
        is_first = start["start"] != self._reading.start
        if start["ended"] and not is_first:
            self._rest.after(busy=False)
            return iter(()), start
        self._apply_control(ReplayControl.of(self._reading.folder))
        feed_start = (
            self._empty_poll[1] if self._empty_poll and self._empty_poll[0] == start else start["feed"]
        )
        commands, read_to = self._commands(start["commands"], None)
        feed = self._prefetch(read_to)
        poll = (
            PolledBatch(Batch(NOTHING, feed_start))
            if self._replay_control.paused
            else self._poll(feed, feed_start)
        )
        batch, self._parts = poll.batch, poll.parts
        end = {
            "feed": batch.end,
            "commands": read_to,
            "tables": True,
            "sequence": start["sequence"] + self._number(batch.read.records),
            "start": self._reading.start,
            "ended": batch.ended,
            "tasks": 0 if poll.parts is None else self._reading.tasks,
        }
        time_advances = stream_time(batch.end) != stream_time(start["feed"])
        has_records = len(batch.read) > 0 or poll.parts is not None
        busy = bool(has_records or commands or batch.notices or time_advances or is_first or batch.ended)
        self._rest.after(busy=busy)
        if not busy and not self._has_moved(start, batch.end):
            return iter(()), start
        backlog = self._backlog(batch.end)
        rows = self._rows(start, end, poll, commands, backlog)
        self._last_batch = (
            len(batch.read) if poll.parts is None else self._plan_limit,
            time.monotonic(),
        )
        self._look_ahead(feed, poll)
        return rows, end

    def readBetweenOffsets(self, start: Offset, end: Offset) -> Rows:  # noqa: N802 - Spark's name
        """Reads the records between two offsets again, unless tasks read them."""
        feed = self._prefetch(end["commands"]).idle_feed()
        chunk, self._parts = _divided(feed, start["feed"], end["feed"], end["tasks"])
        poll = PolledBatch(Batch(chunk, end["feed"]))
        commands, _ = self._commands(start["commands"], end["commands"])
        return self._rows(start, end, poll, commands, None)

    def commit(self, end: Offset) -> None:
        self._prefetch().commit(end["feed"])

    def planning(self) -> PlanningReader:
        """A reader for Spark whose tasks read planned batches."""
        return PlanningReader(self)

    def parts(self, end: Offset) -> list[PlannedPart]:
        """The parts of the batch up to ``end``, which was just read; none if its rows have all records."""
        number, layout = end["sequence"], self._reading.layout
        return [
            PlannedPart(part, place, number, self._schema, layout, self._policy)
            for place, part in enumerate(self._parts or (), 1)
        ]

    def _poll(self, feed: Prefetch, start: Offset) -> PolledBatch:
        """The planned batch after ``start``, or the next records."""
        most = self._most()
        (plan_start, plan), self._next_plan = self._next_plan or (None, None), None
        if plan is None or plan_start != start:
            return feed.poll(start, most)
        chunk, parts = _divided(feed.idle_feed(), start, plan.end, self._reading.tasks)
        return PolledBatch(Batch(chunk, plan.end, plan.notices), parts=parts, full=plan.rest)

    def _look_ahead(self, feed: Prefetch, poll: PolledBatch) -> None:
        """After a full batch: plans the next one, or starts to read it."""
        if poll.full and self._plan_limit:
            plan = feed.idle_feed().plan(poll.batch.end, self._plan_limit)
            if plan is not None:
                self._next_plan = poll.batch.end, plan
                return
        feed.read_on()

    @property
    def _plan_limit(self) -> int:
        """The approximate number of records of a planned micro-batch; 0 if tasks read none."""
        return min(self._sizer.limit, self._most_planned)

    def _apply_control(self, control: ReplayControl) -> None:
        """Applies the pause and the speed of a replay."""
        if control == self._replay_control:
            return
        self._replay_control = control
        self._pace.set_rate(replay_rate(self._reading.request) if control.speed is None else control.speed)
        if control.paused:
            self._pace.pause()
        else:
            self._pace.resume()

    def _prefetch(self, commands: int | None = None) -> Prefetch:
        """The feed, which reads with the schema after an offset of the commands."""
        request = self._reading.request
        if commands is not None and commands != self._commands_read:
            is_later = commands > self._commands_read
            start, changes = (self._commands_read, self._changes) if is_later else (0, ())
            job_commands, _ = self._commands(start, commands)
            changes += tuple(command.schema for command in job_commands if command.op == "schema")
            if changes != self._changes:
                schema = reduce(changed, changes, request.stream).schema
                if self._feed is not None:
                    self._feed.change_schema(schema)
                self._next_plan = None
                self._changes, self._schema = changes, schema
            self._commands_read = commands
        if self._feed is None:
            source = parse_source(
                request.source,
                folder=self._reading.folder / "source",
                clock=self._pace,
                ahead=request.ahead,
            )
            feed: Feed = RetryingFeed(source, self._schema, SystemClock())
            if not request.stream.by_count:
                feed = PartitionedFeed(feed, SystemClock(), request.stream.lateness, request.idle)
            self._feed = Prefetch(feed, self._pack_batches)
        return self._feed

    def _backlog(self, feed: Offset) -> Backlog | None:
        """The backlog, at intervals, since it takes a query to a database."""
        if time.monotonic() < self._backlog_time + _BACKLOG_SECONDS:
            return None
        self._backlog_time = time.monotonic()
        return self._prefetch().idle_feed().backlog(feed)

    def _most(self) -> int:
        """The number of records to read, from the time that Spark took for the last ones."""
        if self._last_batch is not None:
            records, read_time = self._last_batch
            self._sizer.adapt(records, time.monotonic() - read_time)
            self._last_batch = None
        return min(self._sizer.limit, self._most_polled)

    def _has_moved(self, start: Offset, feed: Offset) -> bool:
        """True if the source has advanced without records for us, and it is time to commit its offset."""
        if feed == start["feed"] or time.monotonic() - self._last_rows_time < _OFFSET_SECONDS:
            self._empty_poll = start, feed
            return False
        return True

    def _rows(
        self,
        start: Offset,
        end: Offset,
        poll: PolledBatch,
        commands: tuple[JobCommand, ...],
        backlog: Backlog | None,
    ) -> Rows:
        """A row for each shard and micro-batch; the first one also has everything besides the records."""
        self._last_rows_time, self._empty_poll = time.monotonic(), None
        read_time = time.time()
        start_time = time.perf_counter()
        bad_count, chunk = len(self._intake.bad.first), poll.batch.read
        dead_letters = self._intake.refuse(chunk.bad)
        first, number = start["sequence"] + 1, end["sequence"] - start["sequence"]
        parts = self._cut(chunk.records, number)
        blobs = self._pack_batches(chunk.records, number) if poll.packed is None else poll.packed
        head = BatchHeader(
            read_time,
            commands,
            dead_letters,
            len(malformed(chunk.bad)),
            tuple(f"{place(record)}: {record.reason}" for record in self._intake.bad.first[bad_count:]),
            (*poll.batch.notices, *self._intake.news()),
            backlog=backlog,
            watched=self._reading.watched,
            reading=poll.seconds + time.perf_counter() - start_time,
        )
        tables = b"" if start["tables"] else packed_tables(self._reading.folder)
        rows: list[InputRow] = []
        old_final, final = stream_time(start["feed"]), stream_time(end["feed"])
        for index, (part, packed) in enumerate(zip(parts, blobs, strict=True)):
            last, part_final = index == number - 1, final
            if final is not None and part.latest is not None and not last:
                # Later parts have no earlier records than this one.
                part_final = max(ALWAYS if old_final is None else old_final, min(final, part.latest))
            head = replace(head, number=first + index, ended=end["ended"] and last, final=part_final)
            rows += shard_rows(self._reading.layout, head, tables, part, packed)
            head, tables = BatchHeader(read_time, watched=head.watched), b""
        return iter(rows)

    def _pack_batches(self, records: RecordBatch, number: int | None = None) -> list[list[bytes]]:
        """The records of ``number`` micro-batches, packed."""
        parts = self._cut(records, self._number(records) if number is None else number)
        return [self._reading.layout.pack(part) for part in parts]

    def _cut(self, records: RecordBatch, number: int) -> list[RecordBatch]:
        """Cuts records into ``number`` parts of about the same size, without changing the results.

        Records are cut in order of time, under a count window in order of arrival; records of one time stay
        together.
        """
        if number == 1 or not len(records):
            return [records] * number
        if not self._reading.request.stream.by_count and (np.diff(records.time) < 0).any():
            records = records.take(np.argsort(records.time, kind="stable"))
        instants = np.append(np.flatnonzero(np.diff(records.time)) + 1, len(records))
        ends = instants[np.searchsorted(instants, np.arange(1, number) * len(records) // number)]
        bounds = [0, *ends.tolist(), len(records)]
        return [records.take(slice(*part)) for part in pairwise(bounds)]

    def _commands(self, start: int, end: int | None) -> tuple[tuple[JobCommand, ...], int]:
        """The commands written so far after an offset; the driver has checked all of them."""
        return commands_between(self._reading.folder / COMMANDS, self._reading.run, start, end)

    def _number(self, records: RecordBatch) -> int:
        """The number of micro-batches for some records."""
        return max(1, -(-len(records) // self._part))


def _divided(feed: Feed, start: Offset, end: Offset, tasks: int) -> tuple[Chunk, Sequence[FeedPart] | None]:
    """The records between two offsets in parts for ``tasks``, or, if they cannot be divided, the records.

    A batch that begins in the middle of a row group of Parquet cannot be divided; the next one can.
    """
    parts = feed.parts(start, end, tasks) if tasks else None
    return (feed.replay(start, end), None) if parts is None else (NOTHING, parts)


def open_reader(reading: Reading) -> FeedReader:
    """The reader of a process that Spark has started for it; the driver ends this process."""
    if current_thread() is main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        expect_long_lived_objects()
    return FeedReader(reading)


def shard_rows(
    layout: Layout,
    head: BatchHeader,
    tables: bytes,
    records: RecordBatch,
    packed: Sequence[bytes],
    position: int = 0,
) -> Rows:
    """A micro-batch, or the part of one at ``position``, for each shard.

    ``packed``: all records, or those of each shard.
    """
    if layout.keys is None:
        blob = MicroBatch(head, tables, packed[0]).to_bytes()
        yield from ((group, head.number, position, blob) for group in layout.groups)
        return
    head = replace(head, reached=records.latest)
    other_head = replace(head, letters=(), bad=0, reasons=(), notices=(), task_notices=(), backlog=None)
    heads = [head, *[other_head] * (layout.shards - 1)]
    for group, shard_head, blob in zip(layout.groups, heads, packed, strict=True):
        yield group, head.number, position, MicroBatch(shard_head, tables, blob).to_bytes()


_PLACE_BITS: Final = 40  # the index of a record in its micro-batch begins with the place of its part


class PlannedPart(RowsPartition):
    """A part of a planned micro-batch, which a task reads, divides and packs for the shards.

    ``place``: its place among the parts, from 1. ``number``: that of the micro-batch.
    """

    def __init__(
        self, part: FeedPart, place: int, number: int, schema: Schema, layout: Layout, policy: OnError
    ) -> None:
        self._part = part
        self._place = place
        self._number = number
        self._schema = schema
        self._layout = layout
        self._policy = policy

    def rows(self) -> Rows:
        """A row for each shard. Raises SourceError, BadRecordsError."""
        read_time, start_time = time.time(), time.perf_counter()
        chunk = Chunk.concat(self._part.read(self._schema))
        intake = BadRecordPolicy(self._policy)
        dead_letters = intake.refuse(chunk.bad)
        packed = self._layout.pack(chunk.records, self._place << _PLACE_BITS)
        head = BatchHeader(
            read_time,
            letters=dead_letters,
            bad=len(malformed(chunk.bad)),
            reasons=tuple(f"{place(record)}: {record.reason}" for record in intake.bad.first),
            task_notices=intake.news(),
            number=self._number,
            reading=time.perf_counter() - start_time,
        )
        return shard_rows(self._layout, head, b"", chunk.records, packed, self._place)


class PlanningReader(DataSourceStreamReader):
    """Plans the reading of a source that can be divided: rows of a ``FeedReader``, and parts for tasks."""

    def __init__(self, reader: FeedReader) -> None:
        self._reader = reader
        self._read: tuple[Offset, Offset, list[InputPartition]] | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        return self._reader.initialOffset()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """No limit: the reader limits micro-batches itself."""
        return ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802, ARG002 - Spark's names
        """The offset at which the next batch ends."""
        rows, end = self._reader.read(start)
        self._read = start, end, self._partitions(rows, end)
        return end

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The rows between two offsets that exist already, and the parts that tasks read."""
        read, self._read = self._read, None
        if read is not None and read[:2] == (start, end):
            return read[2]
        return self._partitions(self._reader.readBetweenOffsets(start, end), end)

    def _partitions(self, rows: Rows, end: Offset) -> list[InputPartition]:
        return [*map(InputRows, _portions(rows)), *self._reader.parts(end)]

    def read(self, partition: InputPartition) -> Rows:
        """The rows of a partition, in a task."""
        assert isinstance(partition, RowsPartition)  # noqa: S101 - as ``partitions`` makes them
        return partition.rows()

    def commit(self, end: Offset) -> None:
        self._reader.commit(end)

    def __reduce__(self) -> tuple[type[TaskReader], tuple[()]]:
        """Tasks need nothing but their partitions."""
        return TaskReader, ()


_PORTION_BYTES: Final = 16 << 20  # Spark refuses tasks of more than 128 MB


def _portions(rows: Rows) -> Iterator[list[InputRow]]:
    """Rows for several tasks, so that none gets too many bytes; a longer row is cut."""
    portion: list[InputRow] = []
    size = 0
    for row in chain.from_iterable(map(_pieces, rows)):
        if portion and size + len(row[-1]) > _PORTION_BYTES:
            yield portion
            portion, size = [], 0
        portion.append(row)
        size += len(row[-1])
    yield portion


def _pieces(row: InputRow) -> Iterator[InputRow]:
    """A row at place 0, cut into rows at the places up to 0."""
    group, number, _, blob = row
    count = max(1, -(-len(blob) // _PORTION_BYTES))
    for index in range(count):
        piece = blob[index * _PORTION_BYTES : (index + 1) * _PORTION_BYTES]
        yield group, number, index + 1 - count, piece
