"""What a run on Spark tells of itself: metrics, and a line at its end."""

from __future__ import annotations

import time

from skws.jobs.metrics import Gauges, Metrics, State
from skws.spark.streaming.output_merger import OutputMerger
from skws.spec.job import Job
from skws.spec.query import Query
from skws_windows.window import MICROSECOND


class RunMetrics:
    """``began`` in microseconds of the run's clock."""

    def __init__(self, request: Job, source: str, gauges: Gauges, delivering: OutputMerger) -> None:
        self._engine = str(request.engine)
        self._source = source
        self._gauges = gauges
        self._delivering = delivering

    def metrics(
        self, began: int, now: int, state: State, standing: tuple[Query, ...], restarts: int
    ) -> Metrics:
        """All of it. Batches that came to nothing are counted, but tell no latency."""
        gauges, delivering = self._gauges, self._delivering
        latest = gauges.event_time
        return Metrics(
            at=round(time.time(), 3),
            state=state,
            engine=self._engine,
            source=self._source,
            uptime=round((now - began) / MICROSECOND, 3),
            batches=gauges.batches,
            batch_seconds=round(gauges.batch_seconds, 6),
            tuples=gauges.count("tuples"),
            deletions=gauges.count("deletions"),
            late=gauges.count("late"),
            bad=delivering.bad,
            rate=gauges.rate("tuples", now),
            live_tuples=delivering.live,
            operators=delivering.operators,
            waiting=delivering.waiting,
            results=gauges.count("results"),
            retractions=gauges.count("retractions"),
            event_time=None if latest is None else latest / MICROSECOND,
            behind=delivering.behind,
            latency_p50=gauges.latency(0.5),
            latency_p99=gauges.latency(0.99),
            log_bytes=delivering.log_bytes,
            restarts=restarts,
            relations=gauges.relations(now),
            queries=gauges.queries(standing, now),
            stages=gauges.stages(now),
        )

    def summary(self, seconds: float) -> str:
        """What was read, what was found, what was left out, and how long it took."""
        count = self._gauges.count
        parts = [f"{count('tuples'):,} tuples", f"{count('results'):,} results"]
        parts += [
            f"{many:,} {what}"
            for many, what in (
                (count("retractions"), "retractions"),
                (count("late"), "late"),
                (self._delivering.bad, "bad"),
                (count("deletions"), "deletions"),
            )
            if many
        ]
        return f"{', '.join(parts)} in {seconds:.1f} s"
