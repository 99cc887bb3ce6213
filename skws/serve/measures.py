"""Metrics of the server, beside those of its job."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from skws.serve.hub import Hub
from skws.serve.streams import Streams

_LATEST: Final = 2_048  # searches


@dataclass(slots=True)
class Measures:
    """Counts since the process started."""

    searches: int = 0
    _seconds: deque[float] = field(default_factory=lambda: deque(maxlen=_LATEST))

    def searched(self, seconds: float) -> None:
        self.searches += 1
        self._seconds.append(seconds)

    def text(self, streams: Streams, hub: Hub) -> str:
        """In Prometheus' text format."""
        return generate_latest(_Collected(self, streams, hub)).decode()

    def quantile(self, share: float) -> float | None:
        """Of the seconds of the latest searches."""
        ordered = sorted(self._seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


class _Collected:
    def __init__(self, measures: Measures, streams: Streams, hub: Hub) -> None:
        self._measures = measures
        self._streams = streams
        self._hub = hub

    def collect(self) -> Iterator[Metric]:
        counters = (
            ("serve_searches", "Searches answered.", self._measures.searches),
            ("serve_streams_opened", "Event streams opened.", self._streams.opened),
            ("serve_streams_slow", "Event streams ended since they fell behind.", self._streams.slow),
            ("serve_events", "Events of saved searches.", self._hub.log.count),
        )
        for name, about, value in counters:
            yield CounterMetricFamily(f"skws_{name}", about, value=value)
        gauges = (
            ("serve_streams", "Open event streams.", len(self._streams)),
            ("serve_saved_searches", "Saved searches.", len(self._hub.saved)),
            ("serve_event_bytes", "Bytes of the events that are kept.", self._hub.log.bytes),
        )
        for name, about, value in gauges:
            yield GaugeMetricFamily(f"skws_{name}", about, value=value)
        summary = Metric("skws_serve_search_seconds", "Duration of the latest searches.", "summary")
        for share in (0.5, 0.95):
            seconds = self._measures.quantile(share)
            if seconds is not None:
                summary.add_sample("skws_serve_search_seconds", {"quantile": str(share)}, seconds)
        yield summary
