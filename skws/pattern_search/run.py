"""One run of a pattern over a replay."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from operator import itemgetter
from pathlib import Path

from patterns.evaluation import Evaluator, Mark, Valuation
from schema.model import Schema
from skws.engine.collector import expect_long_lived_objects
from skws.pattern_search.history import History
from skws.pattern_search.result import PatternResult
from skws.pattern_search.text import read_query
from skws.progress import Progress, ReportProgress, unreported
from skws.records import Record
from skws.replay import BadRecordLog, OnError, Replay
from windows.window import FOREVER, MICROSECOND, CountWindow, Unbounded, Window, parse_window


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
        self.window = request.window or self.query.window or parse_window(request.schema.window)
        self.replay = Replay.open(request.replay, request.schema)
        self.bad = BadRecordLog(request.on_error, request.dead_letters)
        self.counts = PatternCounts()
        self._evaluator = Evaluator(self.query.pcea, len(request.schema.relations), self.window)
        self._by_count = isinstance(self.window, CountWindow)

    def results(self, report: ReportProgress = unreported) -> Generator[PatternResult, None, None]:
        """Results as their last tuples come. Raises BadRecordsError, SourceError."""
        with self.bad:
            for result in islice(self._results(report), self.request.limit):
                self.counts.results += 1
                yield result

    def count(self, report: ReportProgress = unreported) -> int:
        """How many results there are, without forming them; with a limit, at most that many."""
        with self.bad:
            for tick, record in self._stream(report):
                if self._evaluator.update(record.relation, record.row, tick):
                    self.counts.results += self._evaluator.count()
                limit = self.request.limit
                if limit is not None and self.counts.results >= limit:
                    self.counts.results = limit
                    break
        return self.counts.results

    def _results(self, report: ReportProgress) -> Iterator[PatternResult]:
        history = History(self.request.schema, self.window, self.query.keywords)
        for tick, record in self._stream(report):
            history.add(record, tick)
            if self._evaluator.update(record.relation, record.row, tick):
                for valuation in self._evaluator.results():
                    yield self._result(valuation, history)

    def _stream(self, report: ReportProgress) -> Iterator[tuple[int, Record]]:
        """Insertions by time, each with its tick: the position for count windows, else its time."""
        expect_long_lived_objects()
        size = self.replay.size_bytes

        def reading(done: int) -> None:
            report(Progress("reading", done, size))

        for batch in self.replay.batches(self.bad, reading):
            for record in batch.records():
                if record.delete:
                    self.counts.deletions += 1
                    continue
                yield (self.counts.tuples if self._by_count else record.time), record
                self.counts.tuples += 1

    def _result(self, valuation: Valuation, history: History) -> PatternResult:
        marks = sorted(valuation, key=itemgetter(0))
        if len({position for position, _ in marks}) < len(marks):
            marks = _merged(marks)
        tuples = tuple([history.shown(position, labels) for position, labels in marks])
        return PatternResult(
            self.query.text,
            _result_id([member.identity for member in tuples]),
            history.at(marks[-1][0])[0].time / MICROSECOND,
            self._end(history.at(marks[0][0])[1]),
            tuples,
        )

    def _end(self, first: int) -> float | None:
        """When a result that began at a tick leaves the window, where positions do not tell."""
        if self._by_count or isinstance(self.window, Unbounded):
            return None
        end = self.window.end(first)
        return None if end >= FOREVER else end / MICROSECOND


def _merged(marks: list[Mark]) -> list[Mark]:
    """One mark for each position, where a tuple was read more than once."""
    labels: dict[int, frozenset[str]] = {}
    for position, marked in marks:
        labels[position] = labels.get(position, frozenset()) | marked
    return list(labels.items())


def _result_id(identities: list[str]) -> str:
    return blake2b("\x1e".join(sorted(identities)).encode(), digest_size=12).hexdigest()
