"""A job over replay files, on any engine: its results, and counts of what was read and left out.

The command line and the tests search through this module. In process, the session of live searches runs over
a stream that ends.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from skws.data.batch import MEMORY_RECORDS, NO_RECORDS, Record, RecordBatch, records_of
from skws.formats import BadRecordLog, Replay, read_split
from skws.formats.dead_letters import Late, late_notice, late_record
from skws.formats.files import SPLIT_BYTES
from skws.index import pinned
from skws.keywords.plan import Plan
from skws.memory import expect_long_lived_objects
from skws.progress import Progress, ReportProgress, unreported
from skws.queries.evaluator import Counts, matches
from skws.queries.keywords.diagnosis import SAMPLE_RECORDS, EmptyResult, RecordSample
from skws.queries.keywords.searching import Searched
from skws.queries.keywords.stream_engine import StreamEngine
from skws.queries.kinds import plan_of
from skws.queries.partitioning.slices import SMALL
from skws.queries.session import Session, bounded_session
from skws.results.result import LiveResult, Result
from skws.spec.enums import EngineName, OnError
from skws.spec.job import Job
from skws.spec.query_spec import PATTERN
from skws_schema.budgets import explain_refusals
from skws_schema.errors import SourceError
from skws_schema.model import sourced

if TYPE_CHECKING:  # loaded only where it runs
    from skws.queries.partitioning.slice_tasks import SlicedRun


@dataclass(frozen=True, slots=True)
class Cuts:
    """Limits for the division of a replay among processes."""

    split_bytes: int = SPLIT_BYTES
    large: int = 32 << 20
    """The bytes from which several processes search a replay by default; for less, starting costs more."""
    min_slice: int = SMALL
    """The fewest records of a slice."""
    max_held: int = 4 * MEMORY_RECORDS
    """The most records, of parts that overlap in time, that all processes together may hold."""


USUAL_CUTS: Final = Cuts()


class Search:
    """One run of a job with one query. ``counts`` and ``bad`` are complete when the results have been read.

    ``plan``: the plan of keywords; None for other kinds. ``found`` and ``retracted`` are the numbers of
    results and retractions returned so far, which with a limit are fewer than the engine's. ``warning`` is
    about windows that may pile up; empty if none may. ``tell`` is called as soon as a record is late.
    ``cuts``: how the replay is divided.

    Raises QueryError, PatternError, UsageError, SourceError before anything is read.
    """

    def __init__(
        self,
        job: Job,
        tell: Callable[[str], None] = lambda _: None,
        cuts: Cuts = USUAL_CUTS,
    ) -> None:
        self.job = job
        self._cuts = cuts
        self._tell = tell
        self._stream = job.stream
        (self.query,) = job.named().values()
        self._query_plan = plan_of(self.query, self._stream)
        self.warning = self._query_plan.warning
        self.plan = self._keyword_plan()
        self.replay = Replay.open(job.replay, job.schema, split_bytes=cuts.split_bytes)
        self.notes = (*self._query_plan.notes, *self.replay.notes)
        self.bad = self._log = BadRecordLog(job.on_error, job.dead_letters)
        self.counts = Counts()
        self.found = 0
        self.retracted = self.updated = 0

    def results(self, report: ReportProgress = unreported) -> Generator[Result, None, None]:
        """Results in order of time; with a lateness, as they are found.

        Raises BadRecordsError, SourceError.
        """
        for result in self._limited_results(report):
            yield result.parsed

    def best(self, most: int, report: ReportProgress = unreported) -> Searched:
        """The ``most`` best results over the rows that are alive at the end of the replay, best first.

        For keywords with a ranking, without a window. Raises BadRecordsError, SourceError.
        """
        assert self.plan is not None  # noqa: S101 - of keywords
        expect_long_lived_objects()
        with self._run_context(report):
            tables = self.replay.tables(self._log, self._step(report, "loading tables"))
            engine = StreamEngine.holding(self.plan, tables, self._batches(report), self.counts)
            self._step(report, "searching")(self.replay.size_bytes)
            best_results = engine.search_once(self.plan, most)
        self.found = len(best_results.results)
        self.counts.results += self.found
        return best_results

    def json_lines(self, report: ReportProgress = unreported) -> Generator[bytes, None, None]:
        """The JSON forms of the results; those of other processes are passed on unchanged."""
        for result in self._limited_results(report):
            yield result.to_json()

    def count(self, report: ReportProgress = unreported) -> int:
        """The number of results, up to the limit; results of patterns are counted without being built."""
        if self.query.kind != PATTERN:
            for _ in self.results(report):
                pass
            return self.found
        limit = self.job.limit
        with self._run_context(report):
            for count in self._counts(report):
                self.found += count
                if limit is not None and self.found >= limit:
                    self.found = limit
                    break
        return self.found

    def _limited_results(self, report: ReportProgress) -> Iterator[LiveResult]:
        """The results up to the limit; those of other processes are still encoded."""
        with self._run_context(report):
            remaining = self.job.limit
            for result in self._all_results(report):
                if result.op == "~":
                    self.updated += 1
                    yield result
                    continue
                if result.op == "-":
                    self.retracted += 1
                else:
                    self.found += matches(result)
                yield result
                remaining = None if remaining is None else remaining - 1
                if remaining == 0:
                    return

    @property
    def jobs(self) -> int:
        """The number of processes for a search on this machine."""
        job = self.job
        if job.lateness is not None:
            return 1
        if job.jobs is not None:
            return job.jobs
        large = self.replay.size_bytes >= self._cuts.large and job.limit is None
        return min(_cores(), len(self.replay.splits)) if large else 1

    def _keyword_plan(self) -> Plan | None:
        plan = self._query_plan.search
        if plan is None:
            return None
        return replace(plan, lateness=self._stream.lateness)

    @contextmanager
    def _run_context(self, report: ReportProgress) -> Iterator[None]:
        if self.plan is not None and sourced(self.job.schema):
            schema = pinned(self.job.schema, report, self.bad)
            self.plan = replace(self.plan, schema=schema)
            self._stream = replace(self._stream, schema=schema)
            self._query_plan = self._query_plan.over(self._stream)
        with self.bad, explain_refusals():
            yield

    def _all_results(self, report: ReportProgress) -> Iterator[LiveResult]:
        with self._shared_run(report) as run:
            yield from self._local_results(report) if run is None else run.results(self.bad)

    def _counts(self, report: ReportProgress) -> Iterator[int]:
        with self._shared_run(report) as run:
            yield from self._local_counts(report) if run is None else run.counted(self.bad)

    @contextmanager
    def _shared_run(self, report: ReportProgress) -> Iterator[SlicedRun | None]:
        """The search, divided among tasks of Spark or processes; None if this process searches alone."""
        size_read = 0

        def on_read(size: int) -> None:
            nonlocal size_read
            size_read += size
            report(Progress("reading", size_read, self.replay.size_bytes))

        with self._sliced_run(report, on_read) as run:
            if run is None:
                yield None
                return
            try:
                yield run
            finally:
                self.counts = run.counts

    @contextmanager
    def _sliced_run(
        self, report: ReportProgress, on_read: Callable[[int], None]
    ) -> Iterator[SlicedRun | None]:
        jobs, inputs = self.jobs, (self.query, self._stream, self.replay)
        if self.job.engine is EngineName.SPARK:
            from skws.spark.replay import spark_run  # noqa: PLC0415 - loaded for Spark only

            with spark_run(*inputs, self.job.master, report, on_read) as shared:
                yield shared
            return
        if jobs == 1:
            yield None
            return
        from skws.parallel import ParallelSearch  # noqa: PLC0415 - only large replays start processes

        with ParallelSearch(*inputs, jobs, on_read, self._cuts.min_slice, self._cuts.max_held) as run:
            reason = run.divide(self.bad)
            if reason and run.has_read:
                self._log = BadRecordLog(OnError.SKIP)  # the bad records have been reported
            if reason and self.job.jobs is not None:
                self._tell(f"--jobs {jobs}: one process searches: {reason}")
            yield None if reason else run

    def _local_results(self, report: ReportProgress) -> Iterator[Result]:
        if self.plan is not None and self.job.lateness is not None:
            yield from self._results_by_arrival(self.plan, report)
            return
        session, batches = self._session(report)
        try:
            yield from session.load_tables(
                self.replay.tables(self._log, self._step(report, "loading tables"))
            )
            for batch in batches:
                yield from session.process(batch)
            yield from session.process(NO_RECORDS, ended=True)
        finally:
            self.counts = session.counts()

    def _local_counts(self, report: ReportProgress) -> Iterator[int]:
        session, batches = self._session(report)
        try:
            for batch in batches:
                yield session.count(batch)
        finally:
            self.counts = session.counts()

    def _session(self, report: ReportProgress) -> tuple[Session, Iterator[RecordBatch]]:
        """A session with the query, and the batches of the replay."""
        expect_long_lived_objects()
        return bounded_session([self._query_plan], self._stream, self._batches(report))

    def _batches(self, report: ReportProgress) -> Iterator[RecordBatch]:
        return self.replay.batches(self._log, self._step(report, "reading"))

    def _results_by_arrival(self, plan: Plan, report: ReportProgress) -> Iterator[Result]:
        """The results of records in the order of the files, each of which may be late."""
        expect_long_lived_objects()
        stream = records_of(self.replay.arrivals(self._log, self._step(report, "reading")))
        engine = StreamEngine.of(plan, self._on_late)
        self.counts = engine.counts
        yield from engine.load_tables(self.replay.tables(self._log, self._step(report, "loading tables")))
        yield from engine.process(stream)

    def _step(self, report: ReportProgress, step: str) -> Callable[[int], None]:
        size = self.replay.size_bytes
        return lambda done: report(Progress(step, done, size))

    def _on_late(self, record: Record, watermark: int) -> None:
        lateness = self._stream.lateness
        if self.counts.late == 1:  # the first one
            self._tell(late_notice(Late(record, watermark), self.job.schema, lateness))
        if self.job.on_error is OnError.DEAD_LETTER:
            self.bad.set_aside(late_record(record, self.job.schema, lateness))


def _cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def why_nothing(plan: Plan, replay: Replay, records: int = SAMPLE_RECORDS) -> EmptyResult:
    """Why there are no results, judging by the first records; empty if this process cannot read the replay.

    Files are read in order of size, so that large ones get the share of ``records`` that small ones do not
    use.
    """
    sample, remaining = RecordSample(plan), records
    try:
        for index, split in enumerate(sorted(replay.splits, key=attrgetter("size"))):
            share = max(1, remaining // (len(replay.splits) - index))
            remaining -= sample.add(read_split(split, plan.schema), share)
    except SourceError:  # the files may be on the cluster only
        return EmptyResult(())
    return sample.why_nothing()
