"""The stream processor for window expressions (window paper, Section 4).

A batch of records is turned into letters at once, whatever the keys; then
every key's stream goes its own way. A window is told with the record that it
ends with. The cost of a record is that of the groups of starts that differ in
their future, and of the windows that end: not of the windows that are open.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from windows.expressions.alphabet import Alphabet, StreamRecord
from windows.expressions.closure import trimmed
from windows.expressions.columns import Column, Columns, Ints
from windows.expressions.configurations import Configurations
from windows.expressions.expression import Pair, WindowExpression
from windows.expressions.keyed import Part, SplitBatch, Streams
from windows.expressions.letters import Letters
from windows.expressions.monoids import Aggregate
from windows.expressions.panes import panes
from windows.expressions.run import Key, Run, Window, one_is_enough
from windows.expressions.source import RowSource, Source


class Advance(NamedTuple):
    """A stream's new records on their way: its run, their places in the batch, its windows when read."""

    run: Run
    arrival: Ints
    windows: Iterator[Window]


class _Split(NamedTuple):
    """A batch by key, with letters, and the columns that are aggregated."""

    batch: SplitBatch
    letters: Ints
    fields: list[Column | None]


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
            yield from self.process_batch(RowSource.of(records))

    def process_batch(self, source: Source) -> Iterator[Window]:
        """The same for records as columns; times in microseconds, not decreasing.

        Windows come out as they are found if all records are of one stream,
        else when the whole batch is through.
        """
        split = self._split(source)
        if len(split.batch.parts) == 1:
            yield from self._advance(split.batch.parts[0], split)
            return
        found: list[tuple[int, Window]] = []
        for part in split.batch.parts:
            run = self._run(part.key)
            # Where the record at the position of a window's end stands in the batch.
            begin = part.begin - run.position
            windows = self._advance(part, split)
            found += [(split.batch.arrival.item(begin + window.last), window) for window in windows]
        found.sort(key=lambda pair: (pair[0], pair[1].first))
        yield from (window for _, window in found)

    def streams(self, source: Source) -> Iterator[Advance]:
        """The same stream by stream, for those who want the runs too."""
        split = self._split(source)
        for part in split.batch.parts:
            run = self._run(part.key)
            arrival = split.batch.arrival[part.begin : part.end]
            yield Advance(run, arrival, self._advance(part, split))

    def oldest_time(self, key: Key) -> int:
        """The time in microseconds at which the oldest open window of a key began."""
        run = self._runs[key]
        oldest = run.oldest
        return next(start.time for start in run.starts if start.position == oldest)

    def state(self) -> dict[str, Any]:
        """All that a processor without aggregates holds, in plain values."""
        runs = [(key, run.state()) for key, run in self._runs.items()]
        return {"records": self.records, "streams": self._streams.state(), "runs": runs}

    def restore(self, state: dict[str, Any]) -> None:
        """Hold what a ``state`` was of."""
        self.records = state["records"]
        self._streams.restore(state["streams"])
        self._runs = {}
        for key, run in state["runs"]:
            self._run(tuple(key)).restore(run)

    def _split(self, source: Source) -> _Split:
        self.records += len(source.relation)
        batch = self._streams.sorted(source)
        columns = Columns(self.alphabet, batch.source)
        fields = [None if a.field is None else columns.column(a.field) for a in self.aggregates]
        return _Split(batch, self._letters.of(columns), fields)

    def _run(self, key: Key) -> Run:
        if key not in self._runs:
            own = [panes(aggregate) for aggregate in self.aggregates]
            expression = self.expression
            self._runs[key] = Run(key, self._configurations, expression.selection, expression.limits, own)
        return self._runs[key]

    def _advance(self, part: Part, split: _Split) -> Iterator[Window]:
        """One stream's new records; the first ``early`` of them have no letter."""
        run = self._run(part.key)
        run.skip(part.early)
        here = slice(part.begin + part.early, part.end)
        for kept, column in zip(run.panes, split.fields, strict=True):
            own = None if column is None else Column(column.values[here], column.present[here])
            kept.feed(own, here.stop - here.start, run.position)
        return run.advance(split.letters[here], split.batch.source.time[here])


__all__ = ["Key", "Processor", "Window"]
