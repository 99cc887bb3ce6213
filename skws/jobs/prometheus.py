"""Metrics in Prometheus' text format; a separate module, since the client library loads slowly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client import Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from skws.jobs.metrics import Metrics
from skws.sinks.text import visible

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_COUNTERS: Final = {
    "tuples": "Tuples read.",
    "deletions": "Deletions read.",
    "late": "Records dropped because they came too late.",
    "bad_records": "Malformed records.",
    "results": "Results found.",
    "retractions": "Results retracted.",
    "updates": "Results updated.",
    "batches": "Micro-batches processed.",
    "restarts": "Restarts of the query on Spark, after failures.",
}
_GAUGES: Final = {
    "batch_seconds": "Duration of the last micro-batch.",
    "live_tuples": "Tuples in the window, including expired ones that are not yet purged.",
    "operators": "Operators that ever had partial results.",
    "waiting_partials": "Partial results waiting in operators.",
    "log_bytes": "Bytes of the records that a restart would read, of one shard.",
    "behind_bytes": "Bytes of the database's log that are not read yet.",
    "kept_bytes": "Bytes of the log that the database keeps for the replication slot.",
    "event_time_seconds": "Latest time in the stream, since the epoch.",
    "event_time_lag_seconds": "Lag of the stream's latest time behind the clock.",
    "uptime_seconds": "Seconds since the process started.",
    "paused": "1 while paused.",
}
_FIELDS: Final = {
    "bad_records": "bad",
    "waiting_partials": "waiting",
    "event_time_seconds": "event_time",
    "uptime_seconds": "uptime",
}
"""Fields of ``Metrics`` with another name in Prometheus."""


def text(metrics: Metrics) -> str:
    """All metrics in Prometheus' text format; names begin with ``skws_``."""
    return generate_latest(_Collector(metrics)).decode()


class _Collector:
    """The metrics as families of the client library, which writes them."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        m = self._metrics
        lag = None if m.event_time is None else round(m.at - m.event_time, 3)
        derived = {"event_time_lag_seconds": lag, "paused": int(m.state == "paused")}
        for name, help_text in (_COUNTERS | _GAUGES).items():
            value = derived[name] if name in derived else getattr(m, _FIELDS.get(name, name))
            if value is not None:
                kind = CounterMetricFamily if name in _COUNTERS else GaugeMetricFamily
                family = kind(f"skws_{name}", help_text, labels=("source", "engine"))
                family.add_metric((_label(m.source), _label(m.engine)), value)
                yield family
        yield _labelled_family(
            "relation_tuples", "Tuples read.", "relation", {r.name: r.tuples for r in m.relations}
        )
        results = {q.name: q.results for q in m.queries}
        yield _labelled_family("query_results", "Results found.", "query", results)
        retractions = {q.name: q.retractions for q in m.queries}
        yield _labelled_family("query_retractions", "Results retracted.", "query", retractions)
        stage_help = "Seconds spent in a stage: read, journal, engine, sinks, and the rest on Spark."
        yield _labelled_family("stage_seconds", stage_help, "stage", {s.name: s.seconds for s in m.stages})
        if m.latency_p50 is not None and m.latency_p99 is not None:
            help_text = "Read-to-write latency over recent batches."
            latency = Metric("skws_latency_seconds", help_text, "summary")
            latency.add_sample("skws_latency_seconds", {"quantile": "0.5"}, m.latency_p50)
            latency.add_sample("skws_latency_seconds", {"quantile": "0.99"}, m.latency_p99)
            yield latency


def _labelled_family(
    name: str, help_text: str, label: str, values: Mapping[str, float]
) -> CounterMetricFamily:
    family = CounterMetricFamily(f"skws_{name}", help_text, labels=(label,))
    for key, value in values.items():
        family.add_metric((_label(key),), value)
    return family


def _label(value: str) -> str:
    """A label without control characters; line ends stay, since they are escaped."""
    return "\n".join(map(visible, value.split("\n")))
