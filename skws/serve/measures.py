"""Metrics of the server, beside those of its job."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

if TYPE_CHECKING:  # Measures reads their counts
    from skws.serve.event_publisher import EventPublisher
    from skws.serve.streams import EventStreams

_LATEST: Final = 2_048  # searches


@dataclass(slots=True)
class Measures:
    """Counts since the process started."""

    streams: EventStreams
    hub: EventPublisher
    searches: int = 0
    _seconds: deque[float] = field(default_factory=lambda: deque(maxlen=_LATEST))

    def count_search(self, seconds: float) -> None:
        self.searches += 1
        self._seconds.append(seconds)

    def text(self) -> str:
        """The metrics in Prometheus' text format."""
        return generate_latest(self).decode()

    def collect(self) -> Iterator[Metric]:
        """The metrics as families, for the library that writes them."""
        counters = (
            ("serve_searches", "Searches answered.", self.searches),
            ("serve_streams_opened", "Event streams opened.", self.streams.opened_count),
            ("serve_streams_slow", "Event streams ended because they fell behind.", self.streams.slow),
            ("serve_events", "Events of saved searches.", self.hub.log.count),
        )
        for name, about, value in counters:
            yield CounterMetricFamily(f"skws_{name}", about, value=value)
        gauges = (
            ("serve_streams", "Open event streams.", len(self.streams)),
            ("serve_saved_searches", "Saved searches.", len(self.hub.saved)),
            ("serve_event_bytes", "Bytes of stored events.", self.hub.log.bytes),
        )
        for name, about, value in gauges:
            yield GaugeMetricFamily(f"skws_{name}", about, value=value)
        summary = Metric("skws_serve_search_seconds", "Duration of the latest searches.", "summary")
        ordered = sorted(self._seconds)
        for share in (0.5, 0.95) if ordered else ():
            seconds = ordered[min(len(ordered) - 1, int(share * len(ordered)))]
            summary.add_sample("skws_serve_search_seconds", {"quantile": str(share)}, seconds)
        yield summary
