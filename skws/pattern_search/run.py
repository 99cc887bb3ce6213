"""One run of a pattern over a replay."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from schema.errors import UsageError
from schema.model import Schema
from skws.batches import RecordBatch
from skws.choices import EngineName, OnError, check_master
from skws.engine.collector import expect_long_lived_objects
from skws.pattern_search.replayed import ReplayedPattern
from skws.pattern_search.result import PatternResult
from skws.pattern_search.text import read_query
from skws.progress import Progress, ReportProgress, unreported
from skws.replay import BadRecordLog, Replay
from windows.window import ExpressionWindow, Window, parse_window

if TYPE_CHECKING:
    from skws.spark.patterns import PatternBatch
    from skws.windowing.pattern import WindowedPattern


@dataclass(frozen=True, slots=True)
class PatternRequest:
    """What to look for, where, and how. ``window``: None for the pattern's own, else the schema's.

    ``master``: Spark's. ``allow_unbounded_windows``: also if windows of an
    expression can pile up without bound. Raises UsageError for what does not go together.
    """

    pattern: str
    schema: Schema
    replay: tuple[Path, ...]
    window: Window | None = None
    on_error: OnError = OnError.FAIL
    dead_letters: Path | None = None
    limit: int | None = None
    engine: EngineName = EngineName.SPARK
    master: str | None = None
    allow_unbounded_windows: bool = False

    def __post_init__(self) -> None:
        if self.engine is EngineName.LOCAL and self.master is not None:
            raise UsageError("--master needs --engine spark: the local engine runs in this process")
        check_master(self.master)


@dataclass(slots=True)
class PatternCounts:
    """Tuples read, results given, deletions left out."""

    tuples: int = 0
    results: int = 0
    deletions: int = 0


class PatternSearch:
    """One run of a request. ``counts`` and ``bad`` are complete when the results have been read.

    Results come in order of the positions of their last tuples.
    Raises PatternError, QueryError, SourceError before anything is read.
    """

    def __init__(self, request: PatternRequest) -> None:
        self.request = request
        self.query = read_query(request.pattern, request.schema)
        self.replay = Replay.open(request.replay, request.schema)
        self.bad = BadRecordLog(request.on_error, request.dead_letters)
        self.counts = PatternCounts()
        self.warning = ""
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
                with self._started(report) as run:
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

    @property
    def _spark(self) -> bool:
        return self.request.engine is EngineName.SPARK

    def _on_spark(self, report: ReportProgress) -> Iterator[PatternResult]:
        with self._started(report) as run:
            yield from run.results(self.request.limit)

    @contextmanager
    def _started(self, report: ReportProgress) -> Iterator[PatternBatch]:
        """A run on Spark whose bad records have been dealt with."""
        from skws.spark.patterns import PatternBatch  # noqa: PLC0415 - only who asks for Spark loads it
        from skws.spark.search import running_spark  # noqa: PLC0415
        from skws.spark.windowed_patterns import WindowedPatternBatch  # noqa: PLC0415

        request = self.request
        kind = WindowedPatternBatch if isinstance(self._window, ExpressionWindow) else PatternBatch
        with (
            running_spark(request.master, report) as spark,
            kind(spark, request.pattern, request.schema, request.window, self.replay) as run,
        ):
            for record in run.bad_records():
                self.bad.add(record)
            self.counts.tuples, self.counts.deletions = run.tuples, run.deletions
            yield run

    def _batches(self, report: ReportProgress) -> Iterator[RecordBatch]:
        expect_long_lived_objects()
        size = self.replay.size_bytes

        def reading(done: int) -> None:
            report(Progress("reading", done, size))

        for batch in self.replay.batches(self.bad, reading):
            deletions = int(batch.deletes().sum())
            self.counts.deletions += deletions
            self.counts.tuples += len(batch) - deletions
            yield batch


def _admitted(request: PatternRequest, window: ExpressionWindow) -> str:
    from skws.windowing.admission import admit  # noqa: PLC0415 - z3 and more, for who has an expression

    return admit(request.schema, window, allowed=request.allow_unbounded_windows)
