"""Counts of a run in this process, by the names of relations, which outlive a change of the schema."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from schema.model import Schema
from skws.records import Record
from skws.results.model import Result
from skws.watch.gauges import Latencies, Rates
from skws.watch.metrics import Metrics, QueryMetrics, RelationMetrics, State
from windows.window import MICROSECOND

_LATENCIES: Final = 512  # batches


class Tally:
    """What has come and what was found; times in microseconds of the run's clock."""

    def __init__(self, schema: Schema, now: int) -> None:
        self._schema = schema
        self._began = now
        self._counts: Counter[object] = Counter()
        self._rates = Rates()
        self._latencies = Latencies(_LATENCIES)
        self._batches = 0
        self._seconds = 0.0
        self.late = 0
        self.event_time: int | None = None

    @property
    def tuples(self) -> int:
        return self._counts["tuples"]

    def records(self, records: Sequence[Record]) -> None:
        """Records were taken in; there is at least one."""
        for relation, count in Counter(r.relation for r in records if not r.delete).items():
            self._counts["relation", self._schema.relations[relation].name] += count
            self._counts["tuples"] += count
        self._counts["deletions"] += sum(record.delete for record in records)
        latest = max(record.time for record in records)
        self.event_time = latest if self.event_time is None else max(self.event_time, latest)

    def results(self, results: Sequence[Result]) -> None:
        """Results were found."""
        for (op, query), count in Counter((r.op, r.query) for r in results).items():
            self._counts[op] += count
            self._counts[op, query] += count

    def worked(self, seconds: float, results: int) -> None:
        """A batch, from when it was read to when its results were told."""
        self._batches += 1
        self._seconds = seconds
        self._latencies.add(seconds, results)

    def forget(self, query: str) -> None:
        """A query stands no longer."""
        for op in "+-":
            del self._counts[op, query]

    def change_schema(self, schema: Schema) -> None:
        self._schema = schema

    def sample(self, now: int) -> None:
        """To be called often; rates are of the last seconds."""
        self._rates.sample(now, self._counts)

    def metrics(
        self,
        *,
        at: float,
        now: int,
        state: State,
        engine: str,
        source: str,
        bad: int,
        live_tuples: int,
        operators: int,
        waiting: int,
        behind: str,
        queries: Sequence[str],
    ) -> Metrics:
        """All of it, with what only the run knows."""
        counts = self._counts
        return Metrics(
            at=round(at, 3),
            state=state,
            engine=engine,
            source=source,
            uptime=(now - self._began) / MICROSECOND,
            batches=self._batches,
            batch_seconds=self._seconds,
            tuples=counts["tuples"],
            deletions=counts["deletions"],
            late=self.late,
            bad=bad,
            rate=self._rate("tuples", now),
            live_tuples=live_tuples,
            operators=operators,
            waiting=waiting,
            results=counts["+"],
            retractions=counts["-"],
            event_time=None if self.event_time is None else self.event_time / MICROSECOND,
            behind=behind,
            latency_p50=self._latencies.quantile(0.5),
            latency_p99=self._latencies.quantile(0.99),
            relations=tuple(self._relation(r.name, now) for r in self._schema.relations),
            queries=tuple(self._query(text, now) for text in queries),
        )

    def _relation(self, name: str, now: int) -> RelationMetrics:
        key = ("relation", name)
        return RelationMetrics(name, self._counts[key], self._rate(key, now))

    def _query(self, text: str, now: int) -> QueryMetrics:
        found = ("+", text)
        return QueryMetrics(text, text, self._counts[found], self._counts["-", text], self._rate(found, now))

    def _rate(self, key: object, now: int) -> float:
        return self._rates.of(key, now, self._counts[key])
