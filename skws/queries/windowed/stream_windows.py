"""The windows of a stream, as those see them who read it by batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import orjson

from skws.data.batch import RecordBatch
from skws.queries.windowed.request import WindowsRequest
from skws.queries.windowed.source import BatchSource
from skws.queries.windowed.window_span import RECENT, WindowSpan
from skws_schema.model import Schema
from skws_windows.processor.spans import Spans, Tracker
from skws_windows.window import ExpressionWindow


class Found(NamedTuple):
    """The insertions of a batch, the position of the first, and what windows did meanwhile."""

    inserted: RecordBatch
    begin: int
    spans: Spans


class StreamWindows:
    """The tracker of an expression, and what it told of late. Raises UsageError for what cannot be read."""

    def __init__(self, schema: Schema, window: ExpressionWindow) -> None:
        request = WindowsRequest(schema, window.text)
        self.fields = [request.alphabet.fields[name] for name in request.expression.per]
        self.tracker = Tracker(request.compiled(), request.alphabet)
        self._state: bytes | None = None
        self._recent: deque[WindowSpan] = deque(maxlen=RECENT)

    def feed(self, batch: RecordBatch) -> Found:
        """What the next batch does."""
        deletes = batch.deletes()
        inserted = batch.taken(~deletes) if deletes.any() else batch
        self._state = None
        begin = self.tracker.position
        found = Found(inserted, begin, self.tracker.feed(BatchSource(inserted)))
        self._recent.extend(self._ended(found))
        return found

    def stretches(self) -> list[WindowSpan]:
        """The windows that ended last, in order of their ends, and those that are open, oldest first."""
        still = [WindowSpan(key, start, None) for key, start in self.tracker.open_since.items()]
        return [*self._recent, *sorted(still, key=lambda stretch: stretch.start)]

    def state(self) -> bytes:
        """All that the tracker holds, as JSON; made once for all who ask between two batches."""
        if self._state is None:
            self._state = orjson.dumps(self.tracker.state())
        return self._state

    def _ended(self, found: Found) -> Iterator[WindowSpan]:
        """The last windows of a batch that timelines still show."""
        shown, closed = slice(-RECENT, None), found.spans.closed
        ends = found.inserted.time[closed.last[shown] - found.begin].tolist()
        keys = self.tracker.values(closed.key[shown])
        for key, start, end in zip(keys, closed.began[shown].tolist(), ends, strict=True):
            yield WindowSpan(tuple(key), start, end)


class SharedStreamWindows(StreamWindows):
    """Takes each batch once, however many ask what it does."""

    def __init__(self, schema: Schema, window: ExpressionWindow) -> None:
        super().__init__(schema, window)
        self._last: RecordBatch | None = None
        self._found: Found | None = None

    def feed(self, batch: RecordBatch) -> Found:
        if self._found is None or self._last is not batch:
            self._last, self._found = batch, super().feed(batch)
        return self._found
