"""The stream processor for window expressions (window paper, Section 4).

A batch of records is turned into letters at once, whatever the keys; then
every key's stream goes its own way. A window is told with the record that it
ends with. The cost of a record is that of the groups of starts that differ in
their future, and of the windows that end: not of the windows that are open.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from schema.model import Row, Value
from windows.expressions.alphabet import Alphabet, StreamRecord
from windows.expressions.closure import trimmed
from windows.expressions.columns import Column, Columns, Ints
from windows.expressions.configurations import Configurations
from windows.expressions.expression import Pair, WindowExpression
from windows.expressions.keyed import Streams
from windows.expressions.letters import Letters
from windows.expressions.monoids import Aggregate
from windows.expressions.panes import panes
from windows.expressions.run import Ended, Run, one_is_enough

Key: TypeAlias = tuple[Value, ...]


class Window(NamedTuple):
    """A window: positions (from 0, in the key's stream), times in microseconds, and its aggregates."""

    first: int
    last: int
    start: int
    end: int
    key: Key
    aggregates: tuple[Value, ...]


class Processor:
    """Finds the windows of an expression. ``records`` counts what came in."""

    def __init__(
        self, expression: WindowExpression, alphabet: Alphabet, aggregates: Sequence[Aggregate] = ()
    ) -> None:
        self.expression = expression
        self.alphabet = alphabet
        self.aggregates = tuple(aggregates)
        self.records = 0
        self._letters = Letters(expression.guards)
        pairs = [Pair(pair.before, trimmed(pair.window)) for pair in expression.pairs]
        one = one_is_enough(expression.selection, expression.limits)
        self._configurations = Configurations(pairs, self._letters, one=one)
        self._streams = Streams(expression.k, expression.per, alphabet)
        self._runs: dict[Key, Run] = {}

    @property
    def open_starts(self) -> int:
        """Starts of which a window may still end, over all keys."""
        return sum(run.open_starts for run in self._runs.values())

    @property
    def panes(self) -> int:
        """Panes kept, over all keys and aggregates."""
        return sum(len(panes) for run in self._runs.values() for panes in run.panes)

    def process(self, records: Sequence[StreamRecord]) -> Iterator[Window]:
        """The windows that end with these records, in order of their ends, then of their starts."""
        if records:
            relation, time, rows = zip(*records, strict=True)
            yield from self.process_batch(np.array(relation), np.array(time), rows)

    def process_batch(self, relation: Ints, time: Ints, rows: Sequence[Row]) -> Iterator[Window]:
        """The same for records as columns; times in microseconds, not decreasing.

        Windows come out as they are found if all records are of one stream,
        else when the whole batch is through.
        """
        self.records += len(rows)
        batch = self._streams.sorted(relation, time, rows)
        columns = Columns(self.alphabet, batch.relation, batch.time, batch.rows)
        letters = self._letters.of(columns)
        fields = [None if a.field is None else columns.column(a.field) for a in self.aggregates]
        if len(batch.parts) == 1:
            part = batch.parts[0]
            for ended in self._advance(
                part.key, letters, batch.time, fields, part.begin, part.end, part.early
            ):
                yield self._window(part.key, ended, batch.time, part.begin + part.early)
            return
        found: list[tuple[int, Window]] = []
        for part in batch.parts:
            begin = part.begin + part.early
            for ended in self._advance(
                part.key, letters, batch.time, fields, part.begin, part.end, part.early
            ):
                window = self._window(part.key, ended, batch.time, begin)
                found.append((batch.arrival.item(begin + ended.offset), window))
        found.sort(key=lambda pair: (pair[0], pair[1].first))
        yield from (window for _, window in found)

    def _advance(
        self,
        key: Key,
        letters: Ints,
        time: Ints,
        fields: Sequence[Column | None],
        begin: int,
        end: int,
        early: int,
    ) -> Iterator[Ended]:
        """One stream's records, those between two places of the batch; the first ``early`` have no letter."""
        run = self._runs.get(key)
        if run is None:
            own = [panes(aggregate) for aggregate in self.aggregates]
            run = Run(self._configurations, self.expression.selection, self.expression.limits, own)
            self._runs[key] = run
        run.skip(early)
        begin += early
        for kept, column in zip(run.panes, fields, strict=True):
            part = None if column is None else Column(column.values[begin:end], column.present[begin:end])
            kept.feed(part, end - begin, run.position)
        return run.advance(letters[begin:end], time[begin:end])

    def _window(self, key: Key, ended: Ended, time: Ints, begin: int) -> Window:
        start = ended.start
        last = self._runs[key].position + ended.offset
        return Window(
            start.position, last, start.time, time.item(begin + ended.offset), key, ended.aggregates
        )
