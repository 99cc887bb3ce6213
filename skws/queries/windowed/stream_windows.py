"""Finds the windows of a stream or a replay, batch by batch, and draws windows on a time line."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import orjson

from skws.data.batch import Ints, RecordBatch
from skws.data.blocks import Block
from skws.formats import BadRecordLog, Replay
from skws.progress import Progress, ReportProgress, unreported
from skws.queries.evaluator import Counts
from skws.queries.windowed.window_plan import WindowPlan
from skws.sinks.text import value_text, visible
from skws_schema.model import AttributeType, Schema, Value
from skws_windows.guards.alphabet import ABSENT, TIME_COLUMN, FieldInfo, StreamRecord
from skws_windows.guards.letters import FieldColumn, exact, field_column, time_column
from skws_windows.processor.spans import Spans, Tracker
from skws_windows.processor.stream_processor import Processor, Window
from skws_windows.window import ExpressionWindow

if TYPE_CHECKING:
    from skws_windows.processor.live_starts import Key

RECENT: Final = 200
"""The number of ended windows that are remembered for drawing."""
LABEL: Final = 16


@dataclass(frozen=True, slots=True)
class WindowSpan:
    """A window in time, in microseconds; ``end`` is None while it is open."""

    key: Key
    start: int
    end: int | None


@dataclass(frozen=True, slots=True)
class Row:
    """The windows of one key as a line of characters.

    ``[`` and ``]`` mark the first and the last record of a window, with ``=``
    between them; ``>`` marks the edge of an open window, ``|`` a window of one cell.
    """

    label: str
    cells: str


def timeline(spans: Sequence[WindowSpan], now: int, width: int, rows: int = 8) -> list[Row]:
    """The windows of up to ``rows`` keys, open ones first, drawn in ``width`` cells up to ``now``.

    The first start is at the left edge. Later windows are drawn over earlier ones.
    """
    if not spans or width < 1:
        return []
    first_start = min(span.start for span in spans)
    duration = max(now - first_start, 1)
    return [
        Row(_label(key), _cells((s for s in spans if s.key == key), first_start, duration, width))
        for key in _keys(spans)[:rows]
    ]


def _keys(spans: Sequence[WindowSpan]) -> list[Key]:
    """The keys: first those with open windows, then the others, the latest end first."""
    open_keys = [s.key for s in spans if s.end is None]
    ended_spans = sorted((s for s in spans if s.end is not None), key=lambda s: -(s.end or 0))
    return list(dict.fromkeys([*open_keys, *(s.key for s in ended_spans)]))


def _cells(spans: Iterable[WindowSpan], first_start: int, duration: int, width: int) -> str:
    cells = [" "] * width
    for window_span in sorted(spans, key=lambda s: s.start):
        first = _cell(window_span.start, first_start, duration, width)
        last = width - 1 if window_span.end is None else _cell(window_span.end, first_start, duration, width)
        cells[first : last + 1] = "=" * (last - first + 1)
        cells[first] = "["
        if window_span.end is None:
            cells[last] = ">"
        else:
            cells[last] = "|" if first == last else "]"
    return "".join(cells)


def _cell(time: int, first_start: int, duration: int, width: int) -> int:
    return min(max((time - first_start) * width // duration, 0), width - 1)


def _label(key: Key) -> str:
    return ", ".join(_text(value) for value in key)


def _text(value: Value) -> str:
    return "-" if value is None else visible(value_text(value))


NOT_BEGUN: Final = orjson.dumps(None)
"""The serialized state of queries before their first record."""

_TYPES: Final = {
    AttributeType.NUMBER: np.dtype(np.float64),
    AttributeType.INTEGER: np.dtype(np.int64),
    AttributeType.TIMESTAMP: np.dtype(np.int64),
    AttributeType.BOOLEAN: np.dtype(np.bool_),
    AttributeType.TEXT: np.dtype(object),
}


class BatchSource:
    """The records of a batch, none of them a deletion."""

    def __init__(self, batch: RecordBatch) -> None:
        self._batch = batch
        self._blocks = list(batch.rows.by_block())
        self._columns: dict[FieldInfo, FieldColumn] = {}

    @property
    def relation(self) -> Ints:
        return self._batch.relation

    @property
    def time(self) -> Ints:
        return self._batch.time

    def record(self, row: int) -> StreamRecord:
        batch = self._batch
        return StreamRecord(batch.relation.item(row), batch.time.item(row), batch.rows.row(row))

    def column(self, info: FieldInfo) -> FieldColumn:
        if TIME_COLUMN in info.columns:
            return time_column(self.time)
        if info not in self._columns:
            self._columns[info] = self._read(info)
        return self._columns[info]

    def _read(self, info: FieldInfo) -> FieldColumn:
        size = len(self._batch)
        values = np.zeros(size, dtype=_TYPES[info.sort])
        present = np.zeros(size, dtype=bool)
        for block, positions, places in self._blocks:
            column = info.columns[block.relation]
            if column == ABSENT:
                continue
            block_column = _block_column(block, column, info.sort)
            if block_column.values.dtype == object:
                values = values.astype(object)
            values[positions], present[positions] = block_column.values[places], block_column.present[places]
        return (
            exact(FieldColumn(values, present)) if values.dtype == np.int64 else FieldColumn(values, present)
        )


def _block_column(block: Block, column: int, sort: AttributeType) -> FieldColumn:
    numbers = block.numbers(column)
    return field_column(block.values(column), sort) if numbers is None else FieldColumn(*numbers)


class FedBatch(NamedTuple):
    """The insertions of a batch, the position of the first one, and the windows that ended or are open."""

    inserted: RecordBatch
    begin: int
    spans: Spans


class StreamWindows:
    """Tracks the windows of an expression. Raises UsageError for an expression that cannot be read."""

    def __init__(self, schema: Schema, window: ExpressionWindow) -> None:
        request = WindowPlan.of_text(schema, window.text)
        self.fields = [request.alphabet.fields[name] for name in request.expression.per]
        self.tracker = Tracker(request.compiled(), request.alphabet)
        self._state: bytes | None = None
        self._recent: deque[WindowSpan] = deque(maxlen=RECENT)

    def feed(self, batch: RecordBatch) -> FedBatch:
        """Read the next batch; returns its insertions and the windows after it."""
        deletes = batch.deletes()
        insertions = batch.take(~deletes) if deletes.any() else batch
        self._state = None
        begin = self.tracker.position
        fed = FedBatch(insertions, begin, self.tracker.feed(BatchSource(insertions)))
        self._recent.extend(self._ended_spans(fed))
        return fed

    def window_spans(self) -> list[WindowSpan]:
        """The windows that ended last, in order of their ends, then the open ones, oldest first."""
        open_spans = [WindowSpan(key, start, None) for key, start in self.tracker.open_since.items()]
        return [*self._recent, *sorted(open_spans, key=lambda span: span.start)]

    def state(self) -> bytes:
        """The state of the tracker as JSON, cached until the next batch."""
        if self._state is None:
            self._state = orjson.dumps(self.tracker.state())
        return self._state

    def _ended_spans(self, windows: FedBatch) -> Iterator[WindowSpan]:
        """The windows that end in a batch; only the last ones, as many as timelines show."""
        recent, closed = slice(-RECENT, None), windows.spans.closed
        ends = windows.inserted.time[closed.last[recent] - windows.begin].tolist()
        keys = self.tracker.values(closed.key[recent])
        for key, start, end in zip(keys, closed.began[recent].tolist(), ends, strict=True):
            yield WindowSpan(tuple(key), start, end)


def windows(
    processor: Processor,
    replay: Replay,
    log: BadRecordLog,
    counts: Counts,
    *,
    limit: int | None = None,
    report: ReportProgress = unreported,
) -> Iterator[Window]:
    """The windows of a replay by their ends; ignores deletions. Raises BadRecordsError, SourceError."""

    def reported(bytes_read: int) -> None:
        report(Progress("reading", bytes_read, replay.size_bytes))

    batches = replay.batches(log, reported)
    windows = (window for batch in batches for window in _windows_of(processor, batch, counts))
    for window in islice(windows, limit):
        counts.results += 1
        yield window


def _windows_of(processor: Processor, batch: RecordBatch, counts: Counts) -> Iterator[Window]:
    deletes = batch.deletes()
    if deletes.any():
        counts.deletions += int(deletes.sum())
        batch = batch.take(np.flatnonzero(~deletes))
    return processor.process_batch(BatchSource(batch))
