"""Metrics of a run to where they are asked for: a JSON file and a port, once a second."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from skws.watch.log import Log
from skws.watch.metrics import Metrics
from skws.watch.prometheus import ADDRESS, MetricsServer
from skws.watch.request import WatchRequest
from windows.window import MICROSECOND


class Publishing:
    """Publishes while it is entered; does nothing if nobody asked. Raises SkwsError if the port is taken."""

    def __init__(self, request: WatchRequest, log: Log) -> None:
        self._request = request
        self._log = log
        self._server: MetricsServer | None = None
        self._latest: Metrics | None = None
        self._at: int | None = None

    def __enter__(self) -> Publishing:
        if self._request.metrics_port is not None:
            self._server = MetricsServer(self._request.metrics_port, lambda: self._latest)
            url = f"http://{ADDRESS}:{self._server.port}/metrics"
            self._log.info("metrics", f"metrics at {url}", url=url)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self._server.close()

    def each_second(self, now: int, metrics: Callable[[], Metrics]) -> None:
        """To be called often; ``now`` in microseconds of the run's clock."""
        if self._at is None or now - self._at >= MICROSECOND:
            self._at = now
            self.publish(metrics)

    def publish(self, metrics: Callable[[], Metrics]) -> None:
        """At once, if anybody asked. Raises StateError."""
        if self._server is None and self._request.metrics_file is None:
            return
        self._latest = metrics()
        if self._request.metrics_file is not None:
            self._latest.write(self._request.metrics_file)
