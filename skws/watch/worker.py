"""The engine with its standing queries: a micro-batch in, results and late records out."""

from __future__ import annotations

from dataclasses import dataclass

from skws.late import late_record
from skws.records import BadRecord, Record
from skws.results.model import Result
from skws.watch.entry import Entry
from skws.watch.live_engine import LiveEngine
from skws.watch.request import WatchRequest
from skws.watch.standing import StandingQueries


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a micro-batch came to. ``late``: as dead letters."""

    results: list[Result]
    late: list[BadRecord]


class Worker:
    """Works on micro-batches, one after the other."""

    def __init__(self, request: WatchRequest) -> None:
        self._request = request
        self._late: list[BadRecord] = []
        self.engine = LiveEngine(request, self._on_late)
        self.standing = StandingQueries(request, self.engine)

    def load_tables(self, records: list[Record]) -> None:
        """Static tables, before all else; their results come in the snapshots of queries."""
        for _ in self.engine.load_tables(records):
            pass

    def work(self, entry: Entry) -> Outcome:
        """Commands first, then records."""
        results: list[Result] = []
        for command in entry.commands:
            results += self.standing.apply(command)
        results += self.engine.take(entry.records)
        late, self._late = self._late, []
        return Outcome(results, late)

    def _on_late(self, record: Record) -> None:
        self._late.append(late_record(record, self._request.schema, self._request.lateness))
