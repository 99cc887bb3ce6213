"""A pattern over a stream, evaluated by its automaton."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from skws.data.batch import Ints, RecordBatch
from skws.queries.evaluator import Evaluator, Load, OrderedBatch
from skws.queries.patterns.pattern_text import PatternQuery
from skws.results.names import TupleNames
from skws.results.result import Result, ResultTuple
from skws.spec.query_spec import PATTERN, Query
from skws_patterns.tuple_evaluator import Mark, Valuation
from skws_patterns.tuple_evaluator import TupleEvaluator as Automaton
from skws_schema.budgets import Footprint, memory_checked, register
from skws_schema.errors import shown
from skws_schema.model import Row, Schema
from skws_windows.window import (
    FOREVER,
    MICROSECOND,
    CountWindow,
    Unbounded,
    Window,
    by_position,
    ticks_per_position,
)


@dataclass(slots=True)
class _Entry:
    """A tuple with the parts of its name."""

    relation: int
    row: Row
    tick: int
    time: int
    occurrence: int
    successor: bool
    shown_tuples: dict[frozenset[str], _ShownTuple] | None = None  # of tuples in results


class _ShownTuple(NamedTuple):
    """A tuple as results show it. ``identity``: its contribution to the ids of results."""

    tuple: ResultTuple
    identity: str


class History:
    """Remembers tuples while they can be in results. ``keywords``: for each label, those of its tuples."""

    def __init__(self, schema: Schema, window: Window, keywords: Mapping[str, tuple[str, ...]]) -> None:
        self._relations = schema.relations
        self._keywords = keywords
        self._by_count = by_position(window)
        self._names = TupleNames(schema, ticks_per_position(window))
        self._window = window
        self._tuples: OrderedDict[int, _Entry] = OrderedDict()
        self._instant: Counter[tuple[int, Row]] = Counter()
        self._tick = -FOREVER
        # Ticks at which keys were last seen, in two generations of a window each.
        self._keys: list[dict[tuple[int, Row], int]] = [{}, {}]
        self._turn = -FOREVER

    def __len__(self) -> int:
        return len(self._tuples)

    def add(self, position: int, relation: int, row: Row, tick: int, time: int) -> None:
        """Add the next tuple; ``tick``: the automaton's tick; ``time``: in microseconds."""
        tuples = self._tuples
        while tuples and self._window.end(next(iter(tuples.values())).tick) <= tick:
            tuples.popitem(last=False)
        key = self._relations[relation].key_of(row)
        occurrence = self._number(relation, row if key is None else key, tick)
        successor = key is not None and self._follows(relation, key, tick)
        tuples[position] = _Entry(relation, row, tick, time, occurrence, successor)

    def note_key(self, relation: int, row: Row, tick: int) -> None:
        """Note the key of a tuple that no result here has, as other tuples may have the same key."""
        key = self._relations[relation].key_of(row)
        if key is not None:
            self._number(relation, key, tick)
            self._follows(relation, key, tick)

    def _number(self, relation: int, values: Row, tick: int) -> int:
        """The number of earlier tuples of one instant with the same key, or the same row without a key."""
        if self._by_count:  # no two tuples start together
            return 0
        if tick != self._tick:
            self._instant.clear()
            self._tick = tick
        self._instant[relation, values] += 1
        return self._instant[relation, values] - 1

    def _follows(self, relation: int, values: Row, tick: int) -> bool:
        """True if another tuple of the key started less than a window ago; notes this one."""
        if tick >= self._turn:
            self._keys = [{}, self._keys[0]]
            self._turn = self._window.end(tick)
        key = relation, values
        last_tick = self._keys[0].get(key)
        if last_tick is None:
            last_tick = self._keys[1].get(key)
        self._keys[0][key] = tick
        return last_tick is not None and tick < self._window.end(last_tick)

    def __contains__(self, position: int) -> bool:
        return position in self._tuples

    def at(self, position: int) -> tuple[int, int]:
        """Time and tick of the tuple at a position."""
        entry = self._tuples[position]
        return entry.time, entry.tick

    def shown_tuple(self, position: int, labels: frozenset[str]) -> _ShownTuple:
        entry = self._tuples[position]
        if entry.shown_tuples is None:
            entry.shown_tuples = {}
        shown_tuple = entry.shown_tuples.get(labels)
        if shown_tuple is None:
            shown_tuple = entry.shown_tuples[labels] = self._make_shown(entry, position, sorted(labels))
        return shown_tuple

    def _make_shown(self, entry: _Entry, position: int, labels: list[str]) -> _ShownTuple:
        name = self._names.version(
            entry.relation, entry.row, entry.tick, entry.occurrence, follows=entry.successor
        )
        keywords = tuple(keyword for label in labels for keyword in self._keywords.get(label, ()))
        result_tuple = ResultTuple(name, keywords, tuple(labels), position)
        return _ShownTuple(result_tuple, "\x1f".join((name.digest.hex(), *labels)))


def marks_of(valuation: Valuation) -> Sequence[Mark]:
    """Marks in order of position, one for each tuple, even if it was read more than once."""
    marks = sorted(valuation, key=itemgetter(0))
    if len({position for position, _ in marks}) == len(marks):
        return marks
    labels: dict[int, frozenset[str]] = {}
    for position, mark_labels in marks:
        labels[position] = labels.get(position, frozenset()) | mark_labels
    return list(labels.items())


def formed(
    query: Query, history: History, marks: Sequence[Mark], end: float | None, *, snapshot: bool = False
) -> Result:
    """The result of marks in order; ``end``: in seconds since the epoch."""
    shown_tuples = [history.shown_tuple(position, labels) for position, labels in marks]
    identity = _result_id([each.identity for each in shown_tuples])
    start = history.at(marks[-1][0])[0] / MICROSECOND
    return Result.of_tuples(
        query, identity, start, end, tuple([each.tuple for each in shown_tuples]), snapshot=snapshot
    )


def _result_id(identities: list[str]) -> str:
    return blake2b("\x1e".join(sorted(identities)).encode(), digest_size=12).hexdigest()


class ReadTuple(NamedTuple):
    position: int
    relation: int
    row: Row
    time: int


class PatternStream(Evaluator):
    """Evaluates a pattern over records in order of time; deletions are left out.

    ``own``: True for the tuples, by relation and row, that results may have; None for
    all. Others are only counted, and remembered by their keys. ``name``: of the query; its text if empty.

    The state is rebuilt from the records of the last two windows: a result
    spans one, and the name of a tuple may depend on the window before it.
    Call ``seek`` with their position first.
    """

    def __init__(
        self,
        query: PatternQuery,
        schema: Schema,
        window: Window,
        own: Callable[[int, Row], bool] | None = None,
        name: str = "",
    ) -> None:
        self.query = query
        self._query = Query(query.text, kind=PATTERN, name=name)
        self.window = self.keeps = window
        self.position = 0  # of the next insertion in the stream
        self._by_count = isinstance(window, CountWindow)
        self._automaton = Automaton(query.pcea, len(schema.relations), window)
        self._history = History(schema, window, query.keywords)
        self._is_own = own
        self._reads = sorted(query.pcea.relations)
        self._now = -FOREVER
        self._formed = 0  # results of the last call of ``begin`` or ``take``
        register(self)

    def footprint(self) -> Footprint:
        numbers = (
            f"{self._formed:,} results of a batch, {self.runs:,} entries of runs and"
            f" {self.live_tuples:,} live tuples"
        )
        return Footprint(self._formed + self.entries(), f"pattern {shown(self.query.text)} holds {numbers}")

    def seek(self, position: int) -> None:
        """Move to the position of the next insertion."""
        self.position = position

    def begin(self, past: Iterable[OrderedBatch]) -> Iterable[Result]:
        return sorted(self.alive_after(map(self._placed, past)), key=_place)

    def take(self, arrived: OrderedBatch) -> Iterable[Result]:
        """The results that the next tuples complete.

        They are sorted, as the automaton's order of results of one tuple depends on tuples long forgotten.
        """
        return sorted(self._counted(self.process(*self._placed(arrived))), key=_place)

    def load(self) -> Load:
        return Load(self.live_tuples, 1, self.runs)

    def _counted(self, results: Iterable[Result]) -> Iterator[Result]:
        """The same results; counts them as held, since their reader collects a batch of them."""
        self._formed = 0
        for self._formed, result in enumerate(results, 1):
            yield result

    def _placed(self, arrived: OrderedBatch) -> tuple[RecordBatch, Ints | None]:
        """The records in order; moves to their position first, as dropped records have positions, too."""
        self.seek(arrived.position)
        return self._ordered(arrived)

    def _ordered(self, arrived: OrderedBatch) -> tuple[RecordBatch, Ints | None]:
        """The records; a time before the latest, as a count window allows, is replaced by the latest."""
        batch = arrived.batch
        if not self._by_count and len(batch):
            batch = batch.without_decreasing_times(self._now)
        return batch, arrived.given_positions

    def process(self, batch: RecordBatch, positions: Ints | None = None) -> Iterator[Result]:
        """The results that a batch completes, in order of their last tuples.

        ``positions``: of the records; None if they are consecutive.
        """
        for _ in self.completing(self.tuples(batch, positions)):
            yield from self.results()

    def alive_after(self, batches: Iterable[tuple[RecordBatch, Ints | None]]) -> list[Result]:
        """The results that are alive after batches, as snapshots. ``batches``: see ``process``."""
        results_with_ends = []
        for batch, positions in batches:
            for _ in self.completing(self.tuples(batch, positions)):
                for valuation in memory_checked(self._automaton.results()):
                    first = self._history.at(min(valuation)[0])[1]
                    results_with_ends.append(
                        (self.window.end(first), self.result_of(valuation, snapshot=True))
                    )
                    self._formed = len(results_with_ends)
        return [result for end, result in results_with_ends if end > self._now]

    @property
    def live_tuples(self) -> int:
        """The number of remembered tuples."""
        return len(self._history)

    @property
    def runs(self) -> int:
        """The number of remembered entries of runs."""
        return self._automaton.entries()

    def entries(self) -> int:
        """The number of remembered entries of runs and tuples."""
        return self.runs + self.live_tuples

    def completing(self, tuples: Iterable[ReadTuple], *, remember: bool = True) -> Iterator[ReadTuple]:
        """Process tuples; yields each one that completes results.

        ``remember``: False if results are only counted, so their tuples are not needed.
        """
        automaton, history = self._automaton, self._history
        for arrival in memory_checked(tuples):
            position, relation, row, time = arrival
            tick = self.tick(arrival)
            if self._is_own is not None and not self._is_own(relation, row):
                history.note_key(relation, row, tick)
                continue
            automaton.position = position - 1
            if remember:
                history.add(position, relation, row, tick, time)
            if automaton.update(relation, row, tick):
                yield arrival

    def tick(self, arrival: ReadTuple) -> int:
        """The tick of a tuple: a position, or a time in microseconds."""
        return arrival.position if self._by_count else arrival.time

    def remember(self, arrival: ReadTuple) -> None:
        """Remember a tuple for results that other code finds."""
        self._history.add(arrival.position, arrival.relation, arrival.row, self.tick(arrival), arrival.time)

    def catch_up(self, tuples: Iterable[tuple[int, int, Row, int]]) -> None:
        """Pass remembered tuples to the automaton: position, relation, row, tick."""
        for position, relation, row, tick in tuples:
            self._automaton.position = position - 1
            self._automaton.update(relation, row, tick)

    def results(self) -> Iterator[Result]:
        """The results that the last tuple completes."""
        return map(self.result_of, memory_checked(self._automaton.results()))

    def result_count(self) -> int:
        """The number of results that the last tuple completes, without forming them."""
        return self._automaton.count()

    def tuples(self, batch: RecordBatch, positions: Ints | None = None) -> Iterator[ReadTuple]:
        """The tuples of a batch that the pattern reads; others only occupy a position."""
        is_insertion = ~batch.deletes()
        if positions is None:
            next_positions: Ints = self.position + np.cumsum(is_insertion)
            positions = next_positions - is_insertion
            self.position = int(next_positions[-1]) if len(next_positions) else self.position
        elif len(positions):
            self.position = int(positions[-1]) + int(is_insertion[-1])
        if len(batch):
            last = self.position - 1 if self._by_count else int(batch.time[-1])
            self._now = max(self._now, last)
        rows = np.flatnonzero(is_insertion & np.isin(batch.relation, self._reads))
        columns = (positions[rows].tolist(), batch.relation[rows].tolist(), batch.rows.take(rows))
        return map(ReadTuple, *columns, batch.time[rows].tolist())

    def result_of(self, valuation: Valuation, *, snapshot: bool = False) -> Result:
        """The result of a valuation whose tuples are remembered."""
        marks = marks_of(valuation)
        end = self._end(self._history.at(marks[0][0])[1])
        return formed(self._query, self._history, marks, end, snapshot=snapshot)

    def _end(self, first: int) -> float | None:
        """The time at which a result that began at a tick leaves a window of time; None for other windows."""
        if self._by_count or isinstance(self.window, Unbounded):
            return None
        end = self.window.end(first)
        return None if end >= FOREVER else end / MICROSECOND


def _place(result: Result) -> tuple[int, str]:
    return result.tuples[-1].position or 0, result.id
