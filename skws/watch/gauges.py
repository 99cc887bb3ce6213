"""Counting while a live search runs: totals, rates of the last seconds, latencies."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from skws.live.standing import Standing
from skws.records import Record
from skws.results.model import LiveResult
from skws.watch.metrics import Metrics, QueryMetrics, RelationMetrics, StageMetrics, State
from skws.watch.request import WatchRequest
from skws.watch.worker import Worker
from windows.window import MICROSECOND

_SAMPLES: Final = 11  # one a second: rates are of the last ten seconds
_LATENCIES: Final = 2048  # batches


@dataclass(slots=True)
class Rates:
    """How much counters grew a second, from samples of them."""

    _samples: deque[tuple[int, dict[object, int]]] = field(default_factory=lambda: deque(maxlen=_SAMPLES))

    def sample(self, now: int, counters: Mapping[object, int]) -> None:
        """``now`` in microseconds."""
        if not self._samples or now - self._samples[-1][0] >= MICROSECOND:
            self._samples.append((now, dict(counters)))

    def of(self, key: object, now: int, count: int) -> float:
        if not self._samples or self._samples[0][0] >= now:
            return 0.0
        since, counters = self._samples[0]
        return (count - counters.get(key, 0)) * MICROSECOND / (now - since)


class Latencies:
    """How long results took lately, by batches."""

    def __init__(self, batches: int) -> None:
        self._known: deque[tuple[float, int]] = deque(maxlen=batches)

    def add(self, seconds: float, results: int) -> None:
        """A batch without results tells nothing."""
        if results:
            self._known.append((seconds, results))

    def quantile(self, quantile: float) -> float | None:
        """Of the results lately, in seconds; each counts as one. None without any."""
        ordered = sorted(self._known)
        rest = quantile * sum(count for _, count in ordered)
        for seconds, count in ordered:
            rest -= count
            if rest <= 0:
                return seconds
        return None


class Gauges:
    """What a live search has seen since its process started."""

    def __init__(self, request: WatchRequest, now: int) -> None:
        self.schema = request.schema
        self._engine = str(request.engine)
        self._began = now
        self._found = 0  # results since the last batch
        self.counters: Counter[object] = Counter()
        self.batches = 0
        self.batch_seconds = 0.0
        self.event_time: int | None = None
        self._rates = Rates()
        self._latencies = Latencies(_LATENCIES)

    @property
    def told(self) -> int:
        """Results and retractions so far."""
        return self.counters["results"] + self.counters["retractions"]

    def delivered(
        self, records: Sequence[Record], results: Sequence[LiveResult], late: Sequence[Record] = ()
    ) -> None:
        """Records were worked on, and their results delivered; ``late`` ones are left out of the tuples."""
        counters = self.counters
        self._taken(records, 1)
        self._taken(late, -1)
        counters["late"] += len(late)
        for (op, query), count in Counter((r.op, r.query) for r in results).items():
            counters["results" if op == "+" else "retractions"] += count
            counters[op, query] += count
        self._found += len(results)
        if records:
            latest = max(record.time for record in records)
            self.event_time = latest if self.event_time is None else max(self.event_time, latest)

    def _taken(self, records: Sequence[Record], sign: int) -> None:
        for relation, count in Counter(r.relation for r in records if not r.delete).items():
            self.counters["relation", relation] += sign * count
            self.counters["tuples"] += sign * count
        self.counters["deletions"] += sign * sum(record.delete for record in records)

    def worked(self, seconds: float) -> None:
        """A batch, from when it was read to when its results were written."""
        self.batches += 1
        self.batch_seconds = seconds
        self._latencies.add(seconds, self._found)
        self._found = 0

    def spent(self, stage: str, seconds: float) -> None:
        """So long in a stage."""
        self.counters["stage", stage] += round(seconds * MICROSECOND)

    def forget(self, query: str) -> None:
        """A query stands no longer: if it comes back, it is counted anew."""
        for op in "+-":
            del self.counters[op, query]

    def count(self, name: str) -> int:
        return self.counters[name]

    def rate(self, key: object, now: int) -> float:
        """A second, in the last ten of them."""
        return round(self._rates.of(key, now, self.counters[key]), 3)

    def sample(self, now: int) -> None:
        """To be called about once a second."""
        self._rates.sample(now, self.counters)

    def metrics(
        self,
        now: int,
        *,
        state: State,
        source: str,
        behind: str,
        bad: int,
        worker: Worker,
        log_bytes: int = 0,
    ) -> Metrics:
        """All of it, with what the engine holds. ``now`` in microseconds of the run's clock."""
        load = worker.live.load()
        return Metrics(
            at=round(time.time(), 3),
            state=state,
            engine=self._engine,
            source=source,
            uptime=round((now - self._began) / MICROSECOND, 3),
            batches=self.batches,
            batch_seconds=round(self.batch_seconds, 6),
            tuples=self.count("tuples"),
            deletions=self.count("deletions"),
            late=self.count("late"),
            bad=bad,
            rate=self.rate("tuples", now),
            live_tuples=load.live,
            operators=load.operators,
            waiting=load.waiting,
            results=self.count("results"),
            retractions=self.count("retractions"),
            event_time=None if self.event_time is None else self.event_time / MICROSECOND,
            behind=behind,
            latency_p50=self.latency(0.5),
            latency_p99=self.latency(0.99),
            log_bytes=log_bytes,
            relations=self.relations(now),
            queries=self.queries(worker.standing.shown(), now),
            stages=self.stages(now),
        )

    def relations(self, now: int) -> tuple[RelationMetrics, ...]:
        gone = self.schema.evolution.removed_relations
        relations = enumerate(self.schema.relations)
        keys = [(relation.name, ("relation", at)) for at, relation in relations if at not in gone]
        return tuple(RelationMetrics(name, self.counters[key], self.rate(key, now)) for name, key in keys)

    def queries(self, standing: Iterable[Standing], now: int) -> tuple[QueryMetrics, ...]:
        return tuple(
            QueryMetrics(
                one.name,
                one.query,
                self.counters["+", one.query],
                self.counters["-", one.query],
                self.rate(("+", one.query), now),
            )
            for one in standing
        )

    def stages(self, now: int) -> tuple[StageMetrics, ...]:
        """In order of the first use."""
        keys = [key for key in self.counters if isinstance(key, tuple) and key[0] == "stage"]
        return tuple(
            StageMetrics(
                key[1], self.counters[key] / MICROSECOND, round(self.rate(key, now) / MICROSECOND, 3)
            )
            for key in keys
        )

    def latency(self, quantile: float) -> float | None:
        """Of the results lately."""
        return self._latencies.quantile(quantile)
