"""The columnar engine for live searches: micro-batches sorted by time, and streams begun in the middle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter

from skws.batches import RecordBatch
from skws.engine.columnar import ColumnarEngine
from skws.records import Record
from skws.results.model import Result
from skws.watch.request import WatchRequest


class LiveEngine(ColumnarEngine):
    """An engine for a request, without queries at first."""

    def __init__(self, request: WatchRequest, on_late: Callable[[Record], None]) -> None:
        super().__init__(request.schema, request.plan_window, on_late, lateness=request.lateness)

    def take(self, records: Sequence[Record]) -> list[Result]:
        """Work on a micro-batch. Sources that are many files give each its own order: time sorts them."""
        if not records:
            return []
        ordered = records if self.by_count else sorted(records, key=attrgetter("time"))
        return list(self.process_batches([RecordBatch.of(ordered)]))
