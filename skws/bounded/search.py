"""A pattern that shows attributes over a replay, in memory that does not grow with it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import islice

from schema.errors import UsageError
from skws.bounded.replayed import Added
from skws.bounded.result import SqlResult
from skws.bounded.selected import SelectedRun, names_of, refuse_unbounded_selection, selected, told
from skws.choices import EngineName
from skws.pattern_search import PatternCounts, PatternRequest
from skws.progress import Progress, ReportProgress, unreported
from skws.replay import BadRecordLog, Replay
from skws.tables.whole import with_sources
from windows.window import parse_window


class SelectedSearch:
    """One run of a request, ``select`` being shown; it has what ``PatternSearch`` has.

    A result may count several matches.
    Raises PatternError, QueryError, SourceError, and UsageError for a pattern that is not bounded.
    """

    def __init__(self, request: PatternRequest, select: str) -> None:
        self.request = request
        self.warning = ""
        self.counts = PatternCounts()
        self._shown = names_of(select)
        self._pattern = selected(request.pattern, request.schema, self._shown)
        window = request.window or self._pattern.window or parse_window(request.schema.window)
        refuse_unbounded_selection(self._pattern, window)
        self.replay = Replay.open(request.replay, request.schema)
        self.bad = BadRecordLog(request.on_error, request.dead_letters)

    def results(self, report: ReportProgress = unreported) -> Generator[SqlResult, None, None]:
        """What the tuples of each time add, in order of time. Raises BadRecordsError, SourceError."""
        with self.bad:
            found = self._on_spark(report) if self.request.engine is EngineName.SPARK else self._here(report)
            for result in islice(found, self.request.limit):
                self.counts.results += result.count
                yield result

    def count(self, report: ReportProgress = unreported) -> int:
        """How many matches there are. Raises UsageError if a limit is set, which is of results."""
        if self.request.limit is not None:
            raise UsageError("--format count with --select does not go together with --limit")
        return sum(result.count for result in self.results(report))

    def _here(self, report: ReportProgress) -> Iterator[SqlResult]:
        run = SelectedRun(self._pattern, with_sources(self.request.schema, self.replay.tables(self.bad)))
        size = self.replay.size_bytes

        def reading(done: int) -> None:
            report(Progress("reading", done, size))

        for batch in self.replay.batches(self.bad, reading):
            for record in batch.records():
                if record.delete:
                    self.counts.deletions += 1
                    continue
                self.counts.tuples += 1
                yield from map(self._told, run.take(record.relation, record.time, record.row))
        yield from map(self._told, run.end())

    def _on_spark(self, report: ReportProgress) -> Iterator[SqlResult]:
        from skws.spark.search import running_spark  # noqa: PLC0415 - only who asks for Spark loads it
        from skws.spark.selected import SelectedBatch  # noqa: PLC0415

        request = self.request
        with (
            running_spark(request.master, report) as spark,
            SelectedBatch(spark, request.pattern, self._shown, request.schema, self.replay) as run,
        ):
            for record in run.bad_records():
                self.bad.add(record)
            self.counts.tuples, self.counts.deletions = run.tuples, run.deletions
            yield from run.results()

    def _told(self, added: Added) -> SqlResult:
        return told(self._pattern, self.request.pattern, added)
