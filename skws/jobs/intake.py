"""The input of a job: its source and replication slot, the size of batches, bad records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple, TypeVar

from skws.data.batch import NOTHING, BadRecord, RecordBatch, large_batches
from skws.formats.dead_letters import BadRecordLog, dead_letter, encoded_each, malformed, place
from skws.jobs.control import RunControl
from skws.jobs.log import Log
from skws.results.result import EncodedResult, LiveResult
from skws.sources.feed import Backlog, Batch, Feed, Offset, Source
from skws.sources.horizon import FAR_AHEAD
from skws.sources.partitions import PartitionedFeed
from skws.sources.retry import retry
from skws.spec.enums import OnError
from skws.spec.job import Job
from skws_schema.errors import SourceError
from skws_schema.model import Schema
from skws_windows.window import MICROSECOND

T = TypeVar("T")

LEAST: Final = 256
MOST: Final = 16_384  # larger batches gain little
RESULTS: Final = 50_000
"""The approximate number of results of one batch; they are all in memory."""
_FIRST_REPORT: Final = 3 * MICROSECOND
_LAG_EVERY: Final = 5 * MICROSECOND  # it takes a query to a database


@dataclass(slots=True)
class BatchSizer:
    """The number of records to request: as many as can be processed in a fraction of a second.

    ``limit``: the current number, between ``least`` and ``most``. Batches that take less than ``short``
    seconds grow, those over ``long`` seconds shrink.

    Slow sinks, or queries with very many results, make batches small, so that memory and latency stay
    bounded. If a batch of any size takes about the same time, as with thousands of queries, small batches
    would only take longer in total: a batch may then take up to four times the shortest time so far.

    Records with very many results come in batches of fewer than ``least``: after a batch with more than
    ``results`` results, the next one is smaller in proportion.
    """

    limit: int = LEAST
    least: int = LEAST
    most: int = MOST
    short: float = 0.1
    long: float = 0.3
    results: int = RESULTS
    _least_seconds: float = field(default=inf, init=False)

    def adapt(self, records: int, seconds: float, results: int = 0) -> None:
        """Adapt to a batch: the number of its records, how long it took, the number of its results."""
        if results > self.results:
            self.limit = max(1, min(records, self.limit) * self.results // results)
            return
        if self.limit < self.least:
            if 2 * results < self.results:
                self.limit = min(self.limit * 2, self.least, self.most)
            return
        # Rises a little with each batch, since the shortest time may grow.
        self._least_seconds = min(self._least_seconds * 1.05, seconds)
        if seconds > max(self.long, 4 * self._least_seconds):
            self.limit = max(self.least, self.limit // 2)
        elif records >= self.limit and seconds < max(self.short, 2 * self._least_seconds):
            self.limit = min(self.most, self.limit * 2)


class BadRecordPolicy:
    """Applies the policy to bad records; ``bad`` counts and logs them."""

    def __init__(self, on_error: OnError) -> None:
        self._keeps_letters = on_error is OnError.DEAD_LETTER
        # Dead letters are written with their batch, so here they are only counted.
        self.bad = BadRecordLog(OnError.SKIP if self._keeps_letters else on_error)
        self._first: BadRecord | None = None
        self._first_reported = False

    def refuse(self, bad: Sequence[BadRecord]) -> tuple[str, ...]:
        """The dead letters of bad records, if the policy keeps them: lines without line ends.

        Raises BadRecordsError at the first bad record if the policy is to fail.
        """
        for record in bad:
            self.bad.add(record)
        others = (record for record in malformed(bad) if FAR_AHEAD not in record.reason)
        self._first = self._first or next(others, None)
        return self.dead_letter_lines(malformed(bad)) if self._keeps_letters else ()

    def news(self) -> tuple[str, ...]:
        """A line on the first bad record, once, and on each new reason for which values were passed over."""
        lines = self.bad.news()
        if self._first is None or self._first_reported:
            return lines
        self._first_reported = True
        return (f"bad record: {place(self._first)}: {self._first.reason}; others are counted", *lines)

    def writable(self, results: Sequence[LiveResult]) -> tuple[list[LiveResult], list[BadRecord]]:
        """The results that can be written as JSON, with it; the others are counted under any policy."""
        good, bad = encoded_each(results, _encode)
        for record in bad:
            self.bad.note(record)
        return good, bad

    @staticmethod
    def dead_letter_lines(bad: Sequence[BadRecord]) -> tuple[str, ...]:
        return tuple(dead_letter(record).decode().rstrip("\n") for record in bad)


def _encode(result: LiveResult) -> LiveResult:
    return EncodedResult(result.to_json(), result.parsed)


class StaticTables(NamedTuple):
    """Rows of static tables in large batches, and bad records, each in order of arrival."""

    batches: Sequence[RecordBatch] = ()
    bad: Sequence[BadRecord] = ()


NO_TABLES: Final = StaticTables()


class Input:
    """The source of a job and its feed. ``opened``: the source was opened for a new run."""

    def __init__(self, source: Source, control: RunControl, log: Log, request: Job) -> None:
        self.source = source
        self._request = request
        self.opened = False
        self._control = control
        self._log = log
        self._feed: Feed | None = None
        self._backlog = (Backlog(), 0)

    @property
    def feed(self) -> Feed:
        assert self._feed is not None  # noqa: S101 - it is opened first
        return self._feed

    def resume(self, schema: Schema) -> bool:
        """Open the source, and wait while it is unavailable; False if the job was stopped first."""
        self._feed = self._retry(lambda: self._open(schema))
        return self._feed is not None

    def begin(self, schema: Schema) -> tuple[Offset, StaticTables] | None:
        """Open the source for a new run; returns its first offset, and the present rows of static tables.

        Waits while the source is unavailable. Returns None if the job was stopped first.
        """

        def attempt() -> tuple[Offset, StaticTables]:
            if self._feed is not None:
                self._feed.close()  # its connection may be the reason why the source could not start
            feed = self._feed = self._open(schema)
            offset = feed.start()
            self.opened = True
            return offset, NO_TABLES if feed.tables_pending else self._tables(feed)

        return self._retry(attempt)

    def _tables(self, feed: Feed) -> StaticTables:
        """The present rows of static tables; if they take long, some lines report their number."""
        clock, bad, rows = self._control.clock, list[BadRecord](), 0
        began, interval = clock.now(), _FIRST_REPORT

        def batches() -> Iterator[RecordBatch]:
            nonlocal rows, interval
            for chunk in feed.tables():
                bad.extend(chunk.bad)
                rows += len(chunk)
                if clock.now() - began > interval:
                    self._log.info("tables", f"reading static tables: {rows:,} rows so far", rows=rows)
                    interval *= 2
                yield chunk.records

        tables = StaticTables(large_batches(batches()), bad)
        if interval > _FIRST_REPORT:
            self._log.info("tables", f"loading static tables: {rows:,} rows", rows=rows)
        return tables

    @property
    def tables_pending(self) -> bool:
        """True while rows of static tables are still to come."""
        return self._feed is not None and self._feed.tables_pending

    def poll(self, start: Offset, limit: int) -> Batch:
        """Records after an offset; nothing while the job is paused."""
        if self._feed is None or self._control.pace.paused:
            return Batch(NOTHING, start)
        batch = self._feed.poll(start, limit)
        for notice in batch.notices:
            self._log.warning("source", notice)
        return batch

    def poll_tables(self) -> StaticTables:
        """New rows of static tables; nothing while the job is paused."""
        return NO_TABLES if self._control.pace.paused else self._tables(self.feed)

    def change_schema(self, schema: Schema) -> None:
        """Read all further records with another schema. Raises SourceError."""
        if self._feed is not None:
            self._feed.change_schema(schema)

    def commit(self, offset: Offset) -> None:
        """Let the source forget everything up to an offset."""
        if self._feed is not None:
            self._feed.commit(offset)

    def backlog(self, offset: Offset, now: int, *, ended: bool) -> Backlog:
        """The backlog of the source, at most a few seconds old unless the source has ``ended``."""
        backlog, time = self._backlog
        if self._feed is not None and not ended and (not time or now - time >= _LAG_EVERY):
            backlog = self._feed.backlog(offset)
            self._backlog = (backlog, now)
        return backlog

    def close(self, *, resumable: bool) -> None:
        """Close the feed. A run that cannot be resumed leaves nothing at the source."""
        if self._feed is not None:
            self._feed.close()
            if self.opened and not resumable:
                leave_nothing(self.source, self._log)

    def _open(self, schema: Schema) -> Feed:
        feed, stream = self.source.open(schema), self._request.stream
        if stream.by_count or not feed.partitioned:
            return feed
        return PartitionedFeed(feed, self._control.clock, stream.lateness, self._request.idle)

    def _retry(self, attempt: Callable[[], T]) -> T | None:
        """The result of ``attempt``, retried while the source is unavailable; None if the job was stopped."""
        control = self._control
        return retry(attempt, control.clock, control.wait, lambda line: self._log.warning("source", line))


def leave_nothing(source: Source, notes: Log) -> None:
    """Drop the slot of a run that cannot be resumed, and log it."""
    try:
        line = source.leave_nothing()
    except SourceError as error:
        line = str(error)
    if line:
        notes.info("source", line)
