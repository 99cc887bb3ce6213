"""The windows of a stream, found once for all who read the same batches."""

from __future__ import annotations

from typing import NamedTuple

import orjson

from schema.model import Schema
from skws.batches import RecordBatch
from skws.windowing.request import WindowsRequest
from skws.windowing.source import BatchSource
from windows.expressions.spans import Spans, Tracker
from windows.window import ExpressionWindow


class Found(NamedTuple):
    """The insertions of a batch, the position of the first, and what windows did meanwhile."""

    inserted: RecordBatch
    begin: int
    spans: Spans


class StreamWindows:
    """A tracker that takes each batch once, however many ask. Raises UsageError for what cannot be read."""

    def __init__(self, schema: Schema, window: ExpressionWindow) -> None:
        request = WindowsRequest(schema, window.text)
        self.fields = [request.alphabet.fields[name] for name in request.expression.per]
        self.tracker = Tracker(request.compiled(), request.alphabet)
        self._last: RecordBatch | None = None
        self._found: Found | None = None
        self._state: bytes | None = None

    def feed(self, batch: RecordBatch) -> Found | None:
        """What the next batch does; None if nothing is inserted."""
        if self._last is not batch:
            self._last, self._found = batch, self._feed(batch)
        return self._found

    def state(self) -> bytes:
        """All that the tracker holds, as JSON; made once for all who ask between two batches."""
        if self._state is None:
            self._state = orjson.dumps(self.tracker.state())
        return self._state

    def _feed(self, batch: RecordBatch) -> Found | None:
        deletes = batch.deletes()
        inserted = batch.taken(~deletes) if deletes.any() else batch
        if not len(inserted):
            return None
        self._state = None
        begin = self.tracker.position
        return Found(inserted, begin, self.tracker.feed(BatchSource(inserted)))
