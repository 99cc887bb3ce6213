"""The stream processor for window expressions (window paper, Section 4).

A batch of records is split by key and turned into letters at once. Each key's stream has its own live starts,
for as long as these differ from new ones. A window is emitted with its last record. The cost of a record
depends on the number of groups of starts with different futures and on the number of windows that end, but
not on the number of open windows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from skws_schema.model import Value
from skws_windows.automata.k_sla import trim
from skws_windows.automata.regular import Pair, WindowExpression
from skws_windows.guards.alphabet import Alphabet, FieldInfo, StreamRecord
from skws_windows.guards.letters import FieldColumn, Ints, Letters, RecordColumns, RecordSource, RowSource
from skws_windows.processor.live_starts import Key, LiveStarts, Window, needs_one_start
from skws_windows.processor.macrostates import CACHE_SIZE, Configurations
from skws_windows.processor.panes import Aggregate, panes


class KeyRecords(NamedTuple):
    """The new records of one key: [begin, end) of the batch; the first ``early`` lack a full lookback."""

    key: tuple[Value, ...]
    begin: int
    end: int
    early: int


@dataclass(frozen=True, slots=True)
class SplitBatch:
    """Records key by key; ``arrival`` is a record's index in the batch (-1 for one from an earlier batch)."""

    source: RecordSource
    arrival: Ints
    parts: list[KeyRecords]


class ReorderedRecords:
    """Records of a source and earlier records, reordered: ``indices`` indexes their concatenation."""

    def __init__(self, source: RecordSource, earlier: RowSource, indices: Ints) -> None:
        self._source = source
        self._earlier = earlier
        self._indices = indices
        self.relation: Ints = np.concatenate([source.relation, earlier.relation])[indices]
        self.time: Ints = np.concatenate([source.time, earlier.time])[indices]

    def column(self, info: FieldInfo) -> FieldColumn:
        new, earlier = self._source.column(info), self._earlier.column(info)
        values = np.concatenate([new.values, earlier.values])
        return FieldColumn(
            values[self._indices], np.concatenate([new.present, earlier.present])[self._indices]
        )

    def record(self, index: int) -> StreamRecord:
        source_index, size = self._indices.item(index), len(self._source.relation)
        return (
            self._source.record(source_index)
            if source_index < size
            else self._earlier.record(source_index - size)
        )


class KeyStreams:
    """The last k records of each key's stream. A record with NULL in a key's field belongs to no stream."""

    def __init__(self, k: int, per: Sequence[str], alphabet: Alphabet) -> None:
        self._k = k
        self._infos = [alphabet.fields[name] for name in per]
        self._last: dict[tuple[Value, ...], list[StreamRecord]] = {}

    def state(self) -> list[Any]:
        """The last records of each key, in plain values."""
        return [(key, list(map(tuple, records))) for key, records in self._last.items()]

    def restore(self, state: list[Any]) -> None:
        self._last = {
            tuple(key): [StreamRecord(relation, time, tuple(row)) for relation, time, row in records]
            for key, records in state
        }

    def sorted(self, source: RecordSource) -> SplitBatch:
        """A batch split by key, keys in order of their first record."""
        size = len(source.relation)
        if not self._infos and not self._k:
            return SplitBatch(source, np.arange(size), [KeyRecords((), 0, size, 0)])
        keys, codes = self._keys(source) if self._infos else ([()], np.zeros(size, dtype=np.int64))
        order = np.argsort(codes, kind="stable") if self._infos else np.arange(size)
        ends = np.cumsum(np.bincount(codes + 1, minlength=len(keys) + 1))
        earlier = RowSource.of([record for key in keys for record in self._last.get(key, ())])
        indices: list[Ints] = []
        parts: list[KeyRecords] = []
        next_index, begin = size, 0
        for number, key in enumerate(keys):
            records_of_key = order[ends[number] : ends[number + 1]]
            tail = len(self._last.get(key, ()))
            # Earlier records are indexed after those of the batch.
            indices += [np.arange(next_index, next_index + tail), records_of_key]
            next_index += tail
            parts.append(
                KeyRecords(
                    key,
                    begin + tail,
                    begin + tail + len(records_of_key),
                    min(self._k - tail, len(records_of_key)),
                )
            )
            begin += tail + len(records_of_key)
        sources = np.concatenate(indices) if indices else np.zeros(0, dtype=np.int64)
        split = SplitBatch(
            ReorderedRecords(source, earlier, sources), np.where(sources < size, sources, -1), parts
        )
        if self._k:
            self._remember(split)
        return split

    def _keys(self, source: RecordSource) -> tuple[list[tuple[Value, ...]], Ints]:
        """The keys of a batch in order of occurrence, and the number of each record's key, -1 with a NULL."""
        columns = [source.column(info).to_list() for info in self._infos]
        # One value is hashed faster than a tuple of one.
        values: list[Any] = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        numbers: dict[Any, int] = {}
        keys: list[tuple[Value, ...]] = []
        for value in dict.fromkeys(values):
            key = (value,) if len(columns) == 1 else value
            numbers[value] = -1 if None in key else len(keys)
            if None not in key:
                keys.append(key)
        return keys, np.fromiter(map(numbers.__getitem__, values), np.int64, len(values))

    def _remember(self, split: SplitBatch) -> None:
        """Keep the last k records of each key, some of which may be from earlier batches."""
        for part in split.parts:
            begin = max(part.end - self._k, part.begin - len(self._last.get(part.key, ())))
            self._last[part.key] = [split.source.record(index) for index in range(begin, part.end)]


class Advance(NamedTuple):
    """A key's new records: its live starts, the records' indices in the batch, and its windows, lazily."""

    run: LiveStarts
    arrival: Ints
    windows: Iterator[Window]


class _Split(NamedTuple):
    """A batch by key, with its letters and the columns to aggregate."""

    batch: SplitBatch
    letters: Ints
    fields: list[FieldColumn | None]


class Processor:
    """Finds the windows of an expression. ``records`` counts the records read.

    ``counting``: positions count a key's records from its first one, so the number of its records is kept
    forever. Otherwise positions start at 0 again whenever no window is open and the state is that before the
    key's first record. ``cache_size``: the most macrostates, moves and groups of starts to cache.
    """

    def __init__(
        self,
        expression: WindowExpression,
        alphabet: Alphabet,
        aggregates: Sequence[Aggregate] = (),
        cache_size: int = CACHE_SIZE,
        *,
        counting: bool = True,
    ) -> None:
        self.expression = expression
        self.alphabet = alphabet
        self.aggregates = tuple(aggregates)
        self.records = 0
        self._letters = Letters(expression.guards)
        pairs = [Pair(pair.before, trim(pair.window)) for pair in expression.pairs]
        single_start = needs_one_start(expression.selection, expression.limits)
        self._configurations = Configurations(
            pairs, self._letters, single_start=single_start, cache_size=cache_size
        )
        self._streams = KeyStreams(expression.k, expression.per, alphabet)
        self._runs: dict[Key, LiveStarts] = {}  # those that differ from new ones
        self._counts: dict[Key, int] | None = {} if counting else None  # records of the other keys

    @property
    def open_starts(self) -> int:
        """The number of starts with a window that may still end, over all keys."""
        return sum(run.open_starts for run in self._runs.values())

    @property
    def panes(self) -> int:
        """The number of panes, over all keys and aggregates."""
        return sum(len(panes) for run in self._runs.values() for panes in run.panes)

    def process(self, records: Sequence[StreamRecord]) -> Iterator[Window]:
        """The windows that end with these records, in order of their ends, then of their starts."""
        if records:
            yield from self.process_batch(RowSource.of(records))

    def process_batch(self, source: RecordSource) -> Iterator[Window]:
        """``process`` for records as columns; times in microseconds, not decreasing.

        Windows are yielded as they are found if all records have one key, else at the end of the batch.
        """
        split = self._split(source)
        if len(split.batch.parts) == 1:
            yield from self._advance(split.batch.parts[0], split)
            return
        windows_by_end: list[tuple[int, Window]] = []
        for part in split.batch.parts:
            run = self._run(part.key)
            # From a position in the key's stream to an index in the split batch.
            begin = part.begin - run.position
            windows = self._advance(part, split)
            windows_by_end += [(split.batch.arrival.item(begin + window.last), window) for window in windows]
        windows_by_end.sort(key=lambda pair: (pair[0], pair[1].first))
        yield from (window for _, window in windows_by_end)

    def streams(self, source: RecordSource) -> Iterator[Advance]:
        """The new records and windows of each key."""
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
        """The state of a processor without aggregates, in plain values."""
        runs = [(key, run.state()) for key, run in self._runs.items()]
        counts = None if self._counts is None else list(self._counts.items())
        return {"records": self.records, "streams": self._streams.state(), "runs": runs, "counts": counts}

    def restore(self, state: dict[str, Any]) -> None:
        self.records = state["records"]
        self._streams.restore(state["streams"])
        self._counts = None if state["counts"] is None else {tuple(key): n for key, n in state["counts"]}
        self._runs = {}
        for key, run in state["runs"]:
            self._run(tuple(key)).restore(run)

    def _split(self, source: RecordSource) -> _Split:
        self.records += len(source.relation)
        batch = self._streams.sorted(source)
        columns = RecordColumns(self.alphabet, batch.source)
        fields = [None if a.field is None else columns.column(a.field) for a in self.aggregates]
        return _Split(batch, self._letters.of(columns), fields)

    def _run(self, key: Key) -> LiveStarts:
        if key not in self._runs:
            key_panes = [panes(aggregate) for aggregate in self.aggregates]
            expression = self.expression
            position = 0 if self._counts is None else self._counts.pop(key, 0)
            self._runs[key] = LiveStarts(
                key, self._configurations, expression.selection, expression.limits, key_panes, position
            )
        return self._runs[key]

    def _advance(self, part: KeyRecords, split: _Split) -> Iterator[Window]:
        """One stream's new records; the first ``early`` of them have no letter."""
        run = self._run(part.key)
        run.skip(part.early)
        chunk = slice(part.begin + part.early, part.end)
        for key_panes, column in zip(run.panes, split.fields, strict=True):
            chunk_column = (
                None if column is None else FieldColumn(column.values[chunk], column.present[chunk])
            )
            key_panes.feed(chunk_column, chunk.stop - chunk.start, run.position)
        yield from run.advance(split.letters[chunk], split.batch.source.time[chunk])
        if run.is_initial:
            del self._runs[part.key]
            if self._counts is not None:
                self._counts[part.key] = run.position


__all__ = ["Key", "Processor", "Window"]
