"""Patterns over window expressions: all tuples of a result are in one window.

The tracker of windows reads a batch first, so the start of the oldest open
window is known for each tuple. A match waits until a window ends that holds
it. Deletions are left out, as in all patterns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress
from typing import Any, Final, NamedTuple

import numpy as np
import orjson

from skws.data.batch import Record, RecordBatch
from skws.queries.evaluator import Load, OrderedBatch
from skws.queries.operator import Operator, StreamState
from skws.queries.patterns.result import PatternResult
from skws.queries.patterns.stream import History, formed, marks_of
from skws.queries.patterns.text import PatternQuery, read_query
from skws.queries.windowed.members import ClosedWindows, Holding
from skws.queries.windowed.stream_windows import NOT_BEGUN, BatchSource, Found, StreamWindows, WindowSpan
from skws.results.model import LiveResult
from skws.spec.query import Query
from skws_patterns.evaluator import Evaluator, Mark, Valuation
from skws_schema.evolution import SchemaChange, nameable
from skws_schema.model import Row, Schema
from skws_windows.guards.letters import Ints
from skws_windows.processor.spans import ANY, Closed, Code, Spans, keyless
from skws_windows.window import FOREVER, MICROSECOND, ExpressionWindow

_ALL: Final = (ANY,)
"""The lane of all keys together."""


class Held(NamedTuple):
    """A tuple that a window may hold; ``oldest``: the first position that may be in one with it."""

    position: int
    relation: int
    row: Row
    time: int
    key: Code
    oldest: int
    successor: bool | None = None


class Match(NamedTuple):
    """A match that waits for a window of its key to end; ``lane`` has its tuples."""

    marks: Sequence[Mark]
    key: Code
    lane: _Lane


class WindowedPattern:
    """Evaluates a pattern over the windows of an expression; records come in order of time.

    Where all relations that the pattern reads have the fields of ``per``, each
    key has runs of its own; else runs join tuples of several keys, which are
    dropped later. ``windows``: those of the expression, which several patterns
    may share; they read each batch first.
    """

    def __init__(
        self,
        query: PatternQuery,
        schema: Schema,
        window: ExpressionWindow,
        windows: StreamWindows,
    ) -> None:
        self.query = query
        self.window = window
        self.tracker = windows.tracker
        self._schema = schema
        self._reads = sorted(query.pcea.relations)
        self._by_key = all(
            field.columns[relation] >= 0 for field in windows.fields for relation in self._reads
        )
        self._lanes: dict[Code, _Lane] = {}
        self._waiting: list[Match] = []
        self._closed = ClosedWindows(self.tracker)

    @property
    def live_tuples(self) -> int:
        """The number of tuples that a window may hold."""
        return sum(len(lane.history) for lane in self._lanes.values())

    @property
    def runs(self) -> int:
        """The number of remembered entries of runs."""
        return sum(lane.evaluator.entries() for lane in self._lanes.values())

    @property
    def waiting(self) -> int:
        """The number of matches that wait for a window to end."""
        return len(self._waiting)

    def codes(self) -> Iterator[Ints]:
        """The codes of the keys of all that it remembers."""
        yield self._keys()
        yield from self._closed.keys()
        if self._by_key and self._lanes:
            yield np.array(list(self._lanes), dtype=np.int64)
        else:
            for lane in self._lanes.values():
                yield lane.codes(len(self.tracker.fields))

    def ended(self, found: Found) -> list[tuple[int, int, str, PatternResult]]:
        """The results whose first window ends in a batch, in order.

        Before each result are the positions of its window's end and of its last tuple, and its id.
        """
        inserted, begin, spans = found
        if not len(inserted):
            return []
        self._take(self._held(inserted, begin, spans))
        results = self._due(spans.closed, inserted.time, begin)
        self._closed.add(spans.closed)
        self._forget(spans)
        return results

    def held(self) -> dict[str, Any]:
        """The state without the windows, in plain values."""
        tuples = sorted(seen for lane in self._lanes.values() for seen in lane.history.tuples())
        return {"tuples": tuples, "closed": self._closed.state()}

    def hold(self, state: dict[str, Any]) -> None:
        """Inverse of ``held``, after the windows are restored."""
        records = [Record(relation, time, tuple(row), False) for _, relation, row, time, _ in state["tuples"]]
        keys = self.tracker.keys(BatchSource(RecordBatch.of(records))).tolist()
        tuples = zip(state["tuples"], records, keys, strict=True)
        # Remembered tuples may all be in one window.
        self._take(
            Held(position, record.relation, record.row, record.time, tuple(key), ANY, successor)
            for (position, *_, successor), record, key in tuples
        )
        ends = self._first_ends(self._closed.restore(state["closed"]))
        self._waiting = list(compress(self._waiting, (ends == FOREVER).tolist()))

    def _held(self, batch: RecordBatch, begin: int, spans: Spans) -> Iterator[Held]:
        """The tuples of a batch that the pattern reads and a window may hold."""
        position = np.arange(begin, begin + len(batch))
        held = (spans.leaving(position, batch.time, spans.key) >= position) & ~keyless(spans.key)
        read = np.flatnonzero(held & np.isin(batch.relation, self._reads))
        lane = spans.key[read] if self._by_key else np.full((len(read), 1), ANY)
        oldest = spans.leaving.since(position[read], lane)
        columns = (position[read].tolist(), batch.relation[read].tolist(), batch.rows.taken(read))
        keys = map(tuple, spans.key[read].tolist())
        return map(Held, *columns, batch.time[read].tolist(), keys, oldest.tolist())

    def _take(self, tuples: Iterable[Held]) -> None:
        for held in tuples:
            code = held.key if self._by_key else _ALL
            lane = self._lanes.get(code)
            if lane is None:
                lane = self._lanes[code] = _Lane(self.query, self._schema, self.window)
            for marks in lane.take(held):
                key = lane.key(marks)
                if key is not None:
                    self._waiting.append(Match(marks, key, lane))

    def _due(self, closed: Closed, time: Ints, begin: int) -> list[tuple[int, int, str, PatternResult]]:
        """The results of matches that windows hold; these wait no longer."""
        if not len(closed.last) or not self._waiting:
            return []
        ends = self._first_ends(closed)
        due = []
        for place in np.flatnonzero(ends < FOREVER).tolist():
            marks, _, lane = self._waiting[place]
            end = int(ends[place])
            result = formed(self.query.text, lane.history, marks, time.item(end - begin) / MICROSECOND)
            due.append((end, marks[-1][0], result.id, result))
        self._waiting = list(compress(self._waiting, (ends == FOREVER).tolist()))
        return sorted(due, key=lambda each: each[:3])

    def _first_ends(self, closed: Closed) -> Ints:
        """The end of the first window that holds each match, or FOREVER."""
        first = np.array([match.marks[0][0] for match in self._waiting], dtype=np.int64)
        last = np.array([match.marks[-1][0] for match in self._waiting], dtype=np.int64)
        return Holding(closed).ends(first, last, self._keys())

    def _keys(self) -> Ints:
        keys = np.array([match.key for match in self._waiting], dtype=np.int64)
        return keys.reshape(len(self._waiting), len(self.tracker.fields))

    def _forget(self, spans: Spans) -> None:
        """Forget tuples and matches that no window can hold any more."""
        if self._waiting:
            first = np.array([match.marks[0][0] for match in self._waiting], dtype=np.int64)
            times = [match.lane.history.at(match.marks[0][0])[0] for match in self._waiting]
            left = spans.leaving(first, np.array(times, dtype=np.int64), self._keys())
            self._waiting = list(compress(self._waiting, (left == FOREVER).tolist()))
        for code, oldest in spans.leaving.open_after() if self._by_key else ((_ALL, self._oldest()),):
            lane = self._lanes.get(code)
            if lane is not None:
                lane.forget(FOREVER if oldest is None else oldest)
            if oldest is None:
                self._lanes.pop(code, None)
        # For keys without records in the batch, matches go with their first tuples. None is lost: windows
        # that end later begin at starts that are live now, or come later.
        self._waiting = [match for match in self._waiting if match.marks[0][0] in match.lane.history]

    def _oldest(self) -> int | None:
        return min(self.tracker.open.values(), default=None)


class _Lane:
    """Runs over the tuples of one key, or of all."""

    def __init__(self, query: PatternQuery, schema: Schema, window: ExpressionWindow) -> None:
        self.evaluator = Evaluator(query.pcea, len(schema.relations), window)
        self.history = History(schema, window, query.keywords)
        self._relations = schema.relations
        self._latest: dict[tuple[int, Row], int] = {}  # positions at which keys of relations were last seen
        self._keys: dict[int, Code] = {}

    def take(self, held: Held) -> Iterator[Sequence[Mark]]:
        """The matches that the next tuple completes, with marks in order; read them before the next tuple."""
        position, relation, row, time, key, oldest, successor = held
        follows = self._follows(held)
        self.history.add(position, relation, row, position, time, follows if successor is None else successor)
        self._keys[position] = key
        self.evaluator.position = position - 1
        self.evaluator.reach = position - oldest
        found: Iterable[Valuation] = ()
        if self.evaluator.update(relation, row):
            found = self.evaluator.results()
        return map(marks_of, found)

    def codes(self, fields: int) -> Ints:
        """The codes of its tuples' keys, a column for each of the fields."""
        return np.array(list(self._keys.values()), dtype=np.int64).reshape(-1, fields)

    def key(self, marks: Sequence[Mark]) -> Code | None:
        """The window's key in the tuples, ANY for fields that none has; None if they differ."""
        agreed = []
        for values in zip(*(self._keys[position] for position, _ in marks), strict=True):
            own = set(values) - {ANY}
            if len(own) > 1:
                return None
            agreed.append(own.pop() if own else ANY)
        return tuple(agreed)

    def forget(self, oldest: int) -> None:
        """Forget tuples before a position: no window holds them."""
        self.history.forget(oldest)
        if len(self._keys) > 2 * len(self.history):
            self._keys = {position: key for position, key in self._keys.items() if position >= oldest}
            self._latest = {key: position for key, position in self._latest.items() if position >= oldest}

    def _follows(self, held: Held) -> bool:
        """Whether a window may hold a tuple of the same key of the relation."""
        own = self._relations[held.relation].key_of(held.row)
        if own is None:
            return False
        key = held.relation, own
        before = self._latest.get(key, ANY)
        self._latest[key] = held.position
        return before >= held.oldest


class WindowedPatterns(Operator):
    """Patterns over the same windows, which are found once for all, from the next record on."""

    def __init__(self, state: StreamState, window: ExpressionWindow) -> None:
        self._state = state
        self._window = window
        self._windows = self._new_windows()
        self._begun = False
        self._queries: dict[str, Query] = {}
        self._patterns: dict[str, WindowedPattern] = {}

    @property
    def waits(self) -> bool:
        """Windows that are open at the end give no results."""
        return self._state.order.waits

    def load_tables(self, records: Sequence[Record]) -> list[LiveResult]:  # noqa: ARG002
        """Patterns read no tables."""
        return []

    def add(self, queries: Sequence[Query]) -> list[LiveResult]:
        schema = nameable(self._state.stream.schema)
        for query in queries:
            read = read_query(query.text, schema)
            self._queries[query.name] = query
            self._patterns[query.name] = WindowedPattern(read, schema, self._window, self._windows)
        return []

    def remove(self, query: Query) -> None:
        del self._queries[query.name], self._patterns[query.name]

    def process(self, accepted: RecordBatch, arrived: OrderedBatch) -> dict[str, Iterable[LiveResult]]:  # noqa: ARG002
        if not len(arrived.batch):
            return {}
        if not self._begun:
            self._begun = True
            self._windows.tracker.position = arrived.position
        found = self._windows.feed(arrived.batch)
        results: dict[str, Iterable[LiveResult]] = {
            name: [result for *_, result in pattern.ended(found)] for name, pattern in self._patterns.items()
        }
        tracker = self._windows.tracker
        if tracker.crowded:
            tracker.keep(codes for pattern in self._patterns.values() for codes in pattern.codes())
        return results

    def change_schema(self, change: SchemaChange, text: str) -> dict[str, list[LiveResult]]:  # noqa: ARG002
        states, queries = self.snapshot(), list(self._queries.values())
        self._windows = self._new_windows()
        self.restore(states, queries)
        return {}

    def snapshot(self) -> dict[str, bytes]:
        """As JSON; the windows' part is written once for all that share them."""
        if not self._begun:
            return dict.fromkeys(self._queries, NOT_BEGUN)
        windows = orjson.Fragment(self._windows.state())
        return {
            name: orjson.dumps({"tracker": windows, **pattern.held()})
            for name, pattern in self._patterns.items()
        }

    def restore(self, states: Mapping[str, bytes], queries: Sequence[Query]) -> None:
        held = {query.name: orjson.loads(states[query.name]) for query in queries}
        self._begun = None not in held.values()
        if self._begun:
            self._windows.tracker.restore(held[queries[0].name]["tracker"])
        self.add(queries)
        if self._begun:
            for name, state in held.items():
                self._patterns[name].hold(state)

    def origin(self, state: bytes) -> bytes:
        """Patterns whose windows have equal states find them together."""
        held = orjson.loads(state)
        return NOT_BEGUN if held is None else orjson.dumps(held["tracker"])

    def load(self) -> Load:
        return Load.together([Load(p.live_tuples, p.runs, p.waiting) for p in self._patterns.values()])

    def window_spans(self) -> list[WindowSpan]:
        return self._windows.window_spans()

    def _new_windows(self) -> StreamWindows:
        return StreamWindows(nameable(self._state.stream.schema), self._window)
