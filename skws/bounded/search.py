"""A pattern that shows attributes over a replay, in memory that does not grow with it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import islice

from schema.errors import UsageError
from skws.bounded.replayed import Added
from skws.bounded.result import SqlResult
from skws.bounded.selected import SelectedRun, names_of, refuse_unbounded_selection, selected, told
from skws.pattern_search import PatternRequest, ReplayRun
from skws.progress import ReportProgress, unreported
from skws.tables.whole import with_sources
from windows.window import parse_window


class SelectedSearch(ReplayRun):
    """One run of a request, ``select`` being shown.

    A result may count several matches.
    Raises PatternError, QueryError, SourceError, and UsageError for a pattern that is not bounded.
    """

    def __init__(self, request: PatternRequest, select: str) -> None:
        self._shown = names_of(select)
        self._pattern = selected(request.pattern, request.schema, self._shown)
        window = request.window or self._pattern.window or parse_window(request.schema.window)
        refuse_unbounded_selection(self._pattern, window)
        super().__init__(request)

    def results(self, report: ReportProgress = unreported) -> Generator[SqlResult, None, None]:
        """What the tuples of each time add, in order of time. Raises BadRecordsError, SourceError."""
        with self.bad:
            found = self._on_spark(report) if self._spark else self._here(report)
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
        for batch in self._batches(report):
            for record in batch.records():
                if not record.delete:
                    yield from map(self._told, run.take(record.relation, record.time, record.row))
        yield from map(self._told, run.end())

    def _on_spark(self, report: ReportProgress) -> Iterator[SqlResult]:
        from skws.spark.selected import SelectedBatch  # noqa: PLC0415 - only who asks for Spark loads it

        with self._started(SelectedBatch, report, shown=self._shown) as run:
            yield from run.results()

    def _told(self, added: Added) -> SqlResult:
        return told(self._pattern, added)
