"""The live search of one process: a micro-batch in, results and late records out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from skws.batches import RecordBatch
from skws.late import Late
from skws.live.search import LiveSearch, Told
from skws.records import Record
from skws.results.model import LiveResult
from skws.watch.entry import Entry
from skws.watch.request import WatchRequest
from skws.watch.standing import StandingQueries


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a micro-batch came to. ``late``: what came too late for it."""

    results: list[LiveResult]
    late: list[Late]


class Worker:
    """Works on micro-batches, one after the other.

    ``past``: the log before the micro-batch of a number, for queries that come with it.
    """

    def __init__(self, request: WatchRequest, past: Callable[[int], Iterable[Told]] = lambda _: ()) -> None:
        self._request = request
        self._late: list[Late] = []
        self._number = 0
        self.live = LiveSearch(
            request.stream,
            on_late=self._on_late,
            keywords=request.asks_keywords,
            past=lambda: past(self._number),
        )
        self.standing = StandingQueries(request, self.live)

    def load_tables(self, records: Sequence[Record]) -> None:
        """Static tables, before all else; their results come in the snapshots of queries."""
        self.live.load_tables(records)

    def work(self, entry: Entry) -> Outcome:
        """Commands first, then records."""
        results = self._obey(entry)
        results += self.live.take(RecordBatch.of(entry.records), ended=entry.ended)
        late, self._late = self._late, []
        return Outcome(results, late)

    def recall(self, entry: Entry) -> None:
        """Do again what was done and delivered by an earlier process."""
        self._obey(entry)
        self.live.recall(RecordBatch.of(entry.records), ended=entry.ended)
        self._late.clear()

    def _obey(self, entry: Entry) -> list[LiveResult]:
        self._number = entry.number
        return [result for command in entry.commands for result in self.standing.apply(command)]

    def _on_late(self, record: Record, reached: int) -> None:
        self._late.append(Late(record, reached))
