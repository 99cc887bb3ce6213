"""One run of a pattern over a replay."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager
from itertools import islice
from typing import TYPE_CHECKING

from skws.pattern_search.replayed import ReplayedPattern
from skws.pattern_search.request import PatternRequest, ReplayRun
from skws.pattern_search.result import PatternResult
from skws.pattern_search.text import read_query
from skws.progress import ReportProgress, unreported
from windows.window import ExpressionWindow, parse_window

if TYPE_CHECKING:
    from skws.spark.patterns import PatternBatch
    from skws.windowing.pattern import WindowedPattern


class PatternSearch(ReplayRun):
    """One run of a request. Results come in order of the positions of their last tuples.

    Raises PatternError, QueryError, SourceError before anything is read.
    """

    def __init__(self, request: PatternRequest) -> None:
        self.query = read_query(request.pattern, request.schema)
        super().__init__(request)
        window = request.window or self.query.window or parse_window(request.schema.window)
        if isinstance(window, ExpressionWindow):
            self.warning = _admitted(request, window)
        else:
            self._replayed = ReplayedPattern(self.query, request.schema, window)
        self._window = window

    def results(self, report: ReportProgress = unreported) -> Generator[PatternResult, None, None]:
        """Results as their last tuples come. Raises BadRecordsError, SourceError."""
        with self.bad:
            found = self._on_spark(report) if self._spark else self._results(report)
            for result in islice(found, self.request.limit):
                self.counts.results += 1
                yield result

    def count(self, report: ReportProgress = unreported) -> int:
        """How many results there are, without forming them; with a limit, at most that many."""
        limit = self.request.limit
        with self.bad:
            if self._spark:
                with self._run_on_spark(report) as run:
                    found = run.count()
                self.counts.results = found if limit is None else min(found, limit)
                return self.counts.results
            for found in self._counted(report):
                self.counts.results += found
                if limit is not None and self.counts.results >= limit:
                    self.counts.results = limit
                    return limit
        return self.counts.results

    def _results(self, report: ReportProgress) -> Iterator[PatternResult]:
        if isinstance(self._window, ExpressionWindow):
            windowed = self._over_windows()
            for batch in self._batches(report):
                yield from windowed.process(batch)
            return
        for batch in self._batches(report):
            for _, result in self._replayed.results(self._replayed.stream.tuples(batch)):
                yield result

    def _counted(self, report: ReportProgress) -> Iterator[int]:
        if isinstance(self._window, ExpressionWindow):
            yield from (1 for _ in self._results(report))
            return
        for batch in self._batches(report):
            yield from self._replayed.count(self._replayed.stream.tuples(batch))

    def _over_windows(self) -> WindowedPattern:
        from skws.windowing.pattern import WindowedPattern  # noqa: PLC0415 - for who has an expression

        assert isinstance(self._window, ExpressionWindow)  # noqa: S101 - who calls has looked
        return WindowedPattern(self.query, self.request.schema, self._window)

    def _on_spark(self, report: ReportProgress) -> Iterator[PatternResult]:
        with self._run_on_spark(report) as run:
            yield from run.results(self.request.limit)

    def _run_on_spark(self, report: ReportProgress) -> AbstractContextManager[PatternBatch]:
        from skws.spark.patterns import PatternBatch  # noqa: PLC0415 - only who asks for Spark loads it
        from skws.spark.windowed_patterns import WindowedPatternBatch  # noqa: PLC0415

        kind = WindowedPatternBatch if isinstance(self._window, ExpressionWindow) else PatternBatch
        return self._started(kind, report, window=self.request.window)


def _admitted(request: PatternRequest, window: ExpressionWindow) -> str:
    from skws.windowing.admission import admit  # noqa: PLC0415 - z3 and more, for who has an expression

    return admit(request.schema, window, allowed=request.allow_unbounded_windows)
