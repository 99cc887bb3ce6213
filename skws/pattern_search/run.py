"""One run of a pattern over a replay."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from schema.model import Schema
from skws.batches import RecordBatch
from skws.choices import OnError
from skws.engine.collector import expect_long_lived_objects
from skws.pattern_search.result import PatternResult
from skws.pattern_search.stream import PatternStream
from skws.pattern_search.text import read_query
from skws.progress import Progress, ReportProgress, unreported
from skws.replay import BadRecordLog, Replay
from windows.window import Window


@dataclass(frozen=True, slots=True)
class PatternRequest:
    """What to look for, where, and how. ``window``: None for the pattern's own, else the schema's."""

    pattern: str
    schema: Schema
    replay: tuple[Path, ...]
    window: Window | None = None
    on_error: OnError = OnError.FAIL
    dead_letters: Path | None = None
    limit: int | None = None


@dataclass(slots=True)
class PatternCounts:
    """Tuples read, results given, deletions left out."""

    tuples: int = 0
    results: int = 0
    deletions: int = 0


class PatternSearch:
    """One run of a request. ``counts`` and ``bad`` are complete when the results have been read.

    Raises PatternError, QueryError, SourceError before anything is read.
    """

    def __init__(self, request: PatternRequest) -> None:
        self.request = request
        self.query = read_query(request.pattern, request.schema)
        self.replay = Replay.open(request.replay, request.schema)
        self.bad = BadRecordLog(request.on_error, request.dead_letters)
        self.counts = PatternCounts()
        self._stream = PatternStream(self.query, request.schema, request.window)

    def results(self, report: ReportProgress = unreported) -> Generator[PatternResult, None, None]:
        """Results as their last tuples come. Raises BadRecordsError, SourceError."""
        with self.bad:
            for result in islice(self._results(report), self.request.limit):
                self.counts.results += 1
                yield result

    def count(self, report: ReportProgress = unreported) -> int:
        """How many results there are, without forming them; with a limit, at most that many."""
        limit = self.request.limit
        with self.bad:
            for batch in self._batches(report):
                for found in self._stream.count(batch):
                    self.counts.results += found
                    if limit is not None and self.counts.results >= limit:
                        self.counts.results = limit
                        return limit
        return self.counts.results

    def _results(self, report: ReportProgress) -> Iterator[PatternResult]:
        for batch in self._batches(report):
            yield from self._stream.process(batch)

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
