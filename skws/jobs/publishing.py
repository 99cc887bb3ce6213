"""Publishes the metrics of a job once a second: to a JSON file, and over HTTP."""

from __future__ import annotations

import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Final

from skws.durable import explained
from skws.hosts import LOOPBACK, asks_for
from skws.jobs.control import RunControl
from skws.jobs.log import Log
from skws.jobs.metrics import Metrics
from skws.spec.job import Job
from skws_schema.errors import SkwsError
from skws_windows.window import MICROSECOND

ADDRESS: Final = "127.0.0.1"


class MetricsServer:
    """Serves ``/metrics`` and ``/metrics.json`` on 127.0.0.1 in a thread; other Host headers are refused.

    ``latest`` returns the metrics, None before the first. Raises SkwsError if the port is taken.
    """

    def __init__(self, port: int, latest: Callable[[], Metrics | None]) -> None:
        with explained(f"metrics port {port}", SkwsError):
            self._server = _Server((ADDRESS, port), _handler(latest))
        self.port: int = self._server.server_address[1]
        self._thread = Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    """Prints nothing if a client, such as a probe of the port, resets its connection."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _handler(latest: Callable[[], Metrics | None]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            metrics = latest()
            if not asks_for(self.headers.get("Host"), LOOPBACK):
                self._answer(403, "text/plain", b"expected localhost or 127.0.0.1 as the host\n")
            elif self.path not in {"/metrics", "/metrics.json"}:
                self._answer(404, "text/plain", b"expected /metrics or /metrics.json\n")
            elif metrics is None:
                self._answer(503, "text/plain", b"not started yet\n")
            elif self.path == "/metrics":
                from skws.jobs.prometheus import CONTENT_TYPE, text  # noqa: PLC0415 - takes a while to load

                self._answer(200, CONTENT_TYPE, text(metrics).encode())
            else:
                self._answer(200, "application/json", metrics.to_json())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is given
            """Scrapes are not logged."""

        def _answer(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


class Publishing:
    """Publishes while it is entered, if the job asks for it. Raises SkwsError if the port is taken."""

    def __init__(self, request: Job, log: Log, control: RunControl) -> None:
        self._request = request
        self._log = log
        self._control = control
        self._server: MetricsServer | None = None
        self._last_time: int | None = None

    def __enter__(self) -> Publishing:
        if self._request.metrics_port is not None:
            self._server = MetricsServer(self._request.metrics_port, lambda: self._control.status().metrics)
            url = f"http://{ADDRESS}:{self._server.port}/metrics"
            self._log.info("metrics", f"metrics at {url}", url=url)
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()

    def each_second(self, now: int, metrics: Callable[[], Metrics]) -> None:
        """Publish if a second has passed; ``now``: microseconds of the job's clock."""
        if self._last_time is None or now - self._last_time >= MICROSECOND:
            self._last_time = now
            self.publish(metrics)

    def publish(self, metrics: Callable[[], Metrics]) -> None:
        """Publish now. Raises StateError if the file cannot be written."""
        if self._server is None and self._request.metrics_file is None:
            return
        latest = metrics()
        self._control.publish(latest)
        if self._request.metrics_file is not None:
            latest.write(self._request.metrics_file)
