"""Metrics in Prometheus' text format; apart from what publishes them, as its library loads slowly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client import Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from skws.jobs.metrics import Metrics
from skws.sinks.text import visible

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_HELP: Final = {
    "tuples": "Tuples taken in.",
    "deletions": "Deletions taken in.",
    "late": "Records dropped for coming too late.",
    "bad_records": "Input that was no record.",
    "results": "Results found.",
    "retractions": "Results retracted.",
    "batches": "Micro-batches worked on.",
    "restarts": "New starts of the query on Spark, after failures of what it runs on.",
    "batch_seconds": "How long the last micro-batch took.",
    "live_tuples": "Tuples in the window, with some that have ended and are not yet purged.",
    "operators": "Operators that ever had partial results.",
    "waiting_partials": "Partial results that wait in operators.",
    "log_bytes": "Records that a restart would read, in bytes, of one shard.",
    "event_time_seconds": "Latest time in the stream, since the epoch.",
    "event_time_lag_seconds": "How far the stream's latest time lies behind the clock.",
    "uptime_seconds": "Since the process started.",
    "paused": "1 while paused.",
}
_COUNTERS: Final = frozenset(
    {"tuples", "deletions", "late", "bad_records", "results", "retractions", "batches", "restarts"}
)


def text(metrics: Metrics) -> str:
    """All metrics in Prometheus' text format; names begin with ``skws_``."""
    return generate_latest(_Collected(metrics)).decode()


class _Collected:
    """Metrics as families, for the library that writes them."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        m = self._metrics
        lag = None if m.event_time is None else round(m.at - m.event_time, 3)
        values = {
            "tuples": m.tuples,
            "deletions": m.deletions,
            "late": m.late,
            "bad_records": m.bad,
            "results": m.results,
            "retractions": m.retractions,
            "batches": m.batches,
            "batch_seconds": m.batch_seconds,
            "live_tuples": m.live_tuples,
            "operators": m.operators,
            "waiting_partials": m.waiting,
            "log_bytes": m.log_bytes,
            "restarts": m.restarts,
            "event_time_seconds": m.event_time,
            "event_time_lag_seconds": lag,
            "uptime_seconds": m.uptime,
            "paused": int(m.state == "paused"),
        }
        for name, value in values.items():
            if value is not None:
                kind = CounterMetricFamily if name in _COUNTERS else GaugeMetricFamily
                family = kind(f"skws_{name}", _HELP[name], labels=("source", "engine"))
                family.add_metric((_shown(m.source), _shown(m.engine)), value)
                yield family
        yield _by("relation_tuples", "Tuples taken in.", "relation", {r.name: r.tuples for r in m.relations})
        found = {q.name: q.results for q in m.queries}
        yield _by("query_results", "Results found.", "query", found)
        gone = {q.name: q.retractions for q in m.queries}
        yield _by("query_retractions", "Results retracted.", "query", gone)
        spent = "Time spent in a stage: read, journal, engine, sinks, and what else Spark does."
        yield _by("stage_seconds", spent, "stage", {s.name: s.seconds for s in m.stages})
        if m.latency_p50 is not None and m.latency_p99 is not None:
            told = "From when a tuple was read to when its result was written, lately."
            latency = Metric("skws_latency_seconds", told, "summary")
            latency.add_sample("skws_latency_seconds", {"quantile": "0.5"}, m.latency_p50)
            latency.add_sample("skws_latency_seconds", {"quantile": "0.99"}, m.latency_p99)
            yield latency


def _by(name: str, told: str, label: str, values: Mapping[str, float]) -> CounterMetricFamily:
    """A counter with a value for each of some things."""
    family = CounterMetricFamily(f"skws_{name}", told, labels=(label,))
    for key, value in values.items():
        family.add_metric((_shown(key),), value)
    return family


def _shown(value: str) -> str:
    """A label as a terminal may be shown it; line ends stay, since they are escaped."""
    return "\n".join(map(visible, value.split("\n")))
