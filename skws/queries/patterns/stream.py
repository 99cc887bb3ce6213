"""One pattern over one stream: batches of records in, results out. What searches and live searches run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from skws.data.batch import Ints, RecordBatch
from skws.queries.patterns.history import History, formed, marks_of
from skws.queries.patterns.result import PatternResult
from skws.queries.patterns.text import PatternQuery
from skws_patterns.evaluation.evaluator import Evaluator
from skws_patterns.evaluation.heap import Valuation
from skws_schema.errors import PatternError
from skws_schema.memory import Held, memory_checked, register
from skws_schema.model import Row, Schema
from skws_windows.window import (
    FOREVER,
    MICROSECOND,
    CountWindow,
    ExpressionWindow,
    Unbounded,
    Window,
    parse_window,
)


class ReadTuple(NamedTuple):
    """A tuple that a pattern reads. ``successor``: as in the names of keyed tuples, None if not known yet."""

    position: int
    relation: int
    row: Row
    time: int
    successor: bool | None = None


class PatternStream:
    """Evaluates a pattern over records in order of time; deletions are left out.

    ``window``: None for the pattern's own, else the schema's; it is the one
    that holds. A stream that goes on elsewhere is rebuilt from the records of
    its last two windows: a result spans one, and the name of a tuple may
    depend on the window before it. Before that, ``seek`` their position.
    ``own``: which tuples by relation and row results may be made of, None for
    all; the others are only counted, and remembered by their keys.
    """

    def __init__(
        self,
        query: PatternQuery,
        schema: Schema,
        window: Window | None = None,
        own: Callable[[int, Row], bool] | None = None,
    ) -> None:
        self.query = query
        self.window = window or query.window or parse_window(schema.window)
        if isinstance(self.window, ExpressionWindow):
            raise PatternError("windows of an expression are for skws.queries.windowed.pattern")
        self.position = 0  # where the next tuple stands in the stream
        self._by_count = isinstance(self.window, CountWindow)
        self._evaluator = Evaluator(query.pcea, len(schema.relations), self.window)
        self._history = History(schema, self.window, query.keywords)
        self._own = own
        self._reads = sorted(query.pcea.relations)
        self._now = -FOREVER
        register(self)

    def held(self) -> Held:
        """What the pattern holds."""
        told = f"{self.runs:,} entries of runs and {self.live_tuples:,} live tuples"
        return Held(self.entries(), f"pattern {self.query.text!r} holds {told}")

    def seek(self, position: int) -> None:
        """The next tuple stands there in the stream."""
        self.position = position

    def process(self, batch: RecordBatch, positions: Ints | None = None) -> Iterator[PatternResult]:
        """The results that a batch completes, as their last tuples come.

        ``positions`` of its tuples, where they are not one after the other.
        """
        for _ in self.completing(self.tuples(batch, positions)):
            yield from self.results()

    def rebuild(self, batch: RecordBatch, positions: Ints | None = None) -> None:
        """Take in records whose results have been told."""
        for _ in self.completing(self.tuples(batch, positions)):
            pass

    def snapshot(self, batches: Iterable[tuple[RecordBatch, Ints | None]]) -> list[PatternResult]:
        """Take in the records up to now, as ``process`` takes them; gives the results alive at the end."""
        found = []
        for batch, positions in batches:
            for _ in self.completing(self.tuples(batch, positions)):
                for valuation in memory_checked(self._evaluator.results()):
                    first = self._history.at(min(valuation)[0])[1]
                    found.append((self.window.end(first), self.formed(valuation, snapshot=True)))
        return [result for end, result in found if end > self._now]

    @property
    def live_tuples(self) -> int:
        """Tuples that are remembered."""
        return len(self._history)

    @property
    def runs(self) -> int:
        """Entries of runs that are remembered."""
        return self._evaluator.entries()

    def entries(self) -> int:
        """How much is remembered: entries of runs, and tuples."""
        return self.runs + self.live_tuples

    def completing(
        self, tuples: Iterable[ReadTuple], begin: int = -FOREVER, *, remember: bool = True
    ) -> Iterator[ReadTuple]:
        """Take in tuples; stops at each that completes results, from tick ``begin`` on.

        ``remember``: what results are formed of, or else they can only be counted.
        """
        evaluator, history = self._evaluator, self._history
        for taken in memory_checked(tuples):
            position, relation, row, time, successor = taken
            tick = position if self._by_count else time
            if self._own is not None and not self._own(relation, row):
                history.pass_by(relation, row, tick)
                continue
            evaluator.position = position - 1
            if remember:
                history.add(position, relation, row, tick, time, successor)
            if evaluator.update(relation, row, tick) and tick >= begin:
                yield taken

    def tick(self, taken: ReadTuple) -> int:
        """When a tuple comes by the window's clock: a position or a time in microseconds."""
        return taken.position if self._by_count else taken.time

    def remember(self, taken: ReadTuple) -> None:
        """Take in a tuple for results that are found elsewhere."""
        self._history.add(
            taken.position, taken.relation, taken.row, self.tick(taken), taken.time, taken.successor
        )

    def catch_up(self, tuples: Iterable[tuple[int, int, Row, int]]) -> None:
        """Have the automaton read tuples that are remembered: position, relation, row, tick."""
        for position, relation, row, tick in tuples:
            self._evaluator.position = position - 1
            self._evaluator.update(relation, row, tick)

    def results(self) -> Iterator[PatternResult]:
        """The results that the last tuple completes."""
        return map(self.formed, memory_checked(self._evaluator.results()))

    def how_many(self) -> int:
        """How many results the last tuple completes, without forming them."""
        return self._evaluator.count()

    def tuples(self, batch: RecordBatch, positions: Ints | None = None) -> Iterator[ReadTuple]:
        """The tuples of a batch that the pattern reads; the others are only counted."""
        inserted = ~batch.deletes()
        if positions is None:
            reached: Ints = self.position + np.cumsum(inserted)
            positions = reached - inserted
            self.position = int(reached[-1]) if len(reached) else self.position
        elif len(positions):
            self.position = int(positions[-1]) + 1
        if len(batch):
            last = self.position - 1 if self._by_count else int(batch.time[-1])
            self._now = max(self._now, last)
        read = np.flatnonzero(inserted & np.isin(batch.relation, self._reads))
        columns = (positions[read].tolist(), batch.relation[read].tolist(), batch.rows.taken(read))
        return map(ReadTuple, *columns, batch.time[read].tolist())

    def formed(self, valuation: Valuation, *, snapshot: bool = False) -> PatternResult:
        """The result of a valuation whose tuples are remembered."""
        marks = marks_of(valuation)
        end = self._end(self._history.at(marks[0][0])[1])
        return formed(self.query.text, self._history, marks, end, snapshot=snapshot)

    def _end(self, first: int) -> float | None:
        """When a result that began at a tick leaves the window, where positions do not tell."""
        if self._by_count or isinstance(self.window, Unbounded):
            return None
        end = self.window.end(first)
        return None if end >= FOREVER else end / MICROSECOND
