"""Metrics in Prometheus' text format, and a server on the loopback address that gives them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Final

from schema.errors import SkwsError
from skws.hosts import LOOPBACK, asks_for
from skws.results.writers.text import visible
from skws.watch.metrics import Metrics

ADDRESS: Final = "127.0.0.1"
_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_HELP: Final = {
    "tuples_total": "Tuples taken in.",
    "relation_tuples_total": "Tuples taken in, by relation.",
    "deletions_total": "Deletions taken in.",
    "late_total": "Records dropped for coming too late.",
    "bad_records_total": "Input that was no record.",
    "results_total": "Results found.",
    "retractions_total": "Results retracted.",
    "query_results_total": "Results found, by standing query.",
    "query_retractions_total": "Results retracted, by standing query.",
    "batches_total": "Micro-batches worked on.",
    "stage_seconds_total": "Time spent in a stage: read, journal, engine, sinks, and what else Spark does.",
    "batch_seconds": "How long the last micro-batch took.",
    "live_tuples": "Tuples in the window, with some that have ended and are not yet purged.",
    "operators": "Operators that ever had partial results.",
    "waiting_partials": "Partial results that wait in operators.",
    "log_bytes": "Records that a restart would read, in bytes, of one shard.",
    "restarts_total": "New starts of the query on Spark, after failures of what it runs on.",
    "event_time_seconds": "Latest time in the stream, since the epoch.",
    "event_time_lag_seconds": "How far the stream's latest time lies behind the clock.",
    "uptime_seconds": "Since the process started.",
    "paused": "1 while paused.",
    "latency_seconds": "From when a tuple was read to when its result was written, lately.",
}


def text(metrics: Metrics) -> str:
    """All metrics; names begin with ``skws_``."""
    lines: list[str] = []
    for name, samples in _families(metrics):
        kind = "counter" if name.endswith("_total") else "gauge"
        lines += [f"# HELP skws_{name} {_HELP[name]}", f"# TYPE skws_{name} {kind}"]
        lines += [f"skws_{name}{labels} {value}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def _families(m: Metrics) -> Iterator[tuple[str, Iterable[tuple[str, float | None]]]]:
    lag = None if m.event_time is None else round(m.at - m.event_time, 3)
    for name, value in (
        ("tuples_total", m.tuples),
        ("deletions_total", m.deletions),
        ("late_total", m.late),
        ("bad_records_total", m.bad),
        ("results_total", m.results),
        ("retractions_total", m.retractions),
        ("batches_total", m.batches),
        ("batch_seconds", m.batch_seconds),
        ("live_tuples", m.live_tuples),
        ("operators", m.operators),
        ("waiting_partials", m.waiting),
        ("log_bytes", m.log_bytes),
        ("restarts_total", m.restarts),
        ("event_time_seconds", m.event_time),
        ("event_time_lag_seconds", lag),
        ("uptime_seconds", m.uptime),
        ("paused", int(m.state == "paused")),
    ):
        if value is not None:
            yield name, [(_labels(source=m.source, engine=m.engine), value)]
    yield "relation_tuples_total", [(_labels(relation=r.name), r.tuples) for r in m.relations]
    yield "query_results_total", [(_labels(query=q.name), q.results) for q in m.queries]
    yield "query_retractions_total", [(_labels(query=q.name), q.retractions) for q in m.queries]
    yield "stage_seconds_total", [(_labels(stage=s.name), s.seconds) for s in m.stages]
    if m.latency_p50 is not None and m.latency_p99 is not None:
        quantiles = (("0.5", m.latency_p50), ("0.99", m.latency_p99))
        yield "latency_seconds", [(_labels(quantile=name), value) for name, value in quantiles]


def _labels(**labels: str) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    lines = "\\n".join(map(visible, value.replace("\\", "\\\\").split("\n")))
    return lines.replace('"', '\\"')


class MetricsServer:
    """Serves ``/metrics`` and ``/metrics.json`` on 127.0.0.1, in a thread of its own, to no other Host.

    ``latest`` gives the metrics, None before the first. Raises SkwsError if the port is taken.
    """

    def __init__(self, port: int, latest: Callable[[], Metrics | None]) -> None:
        try:
            self._server = ThreadingHTTPServer((ADDRESS, port), _handler(latest))
        except OSError as error:
            raise SkwsError(f"metrics port {port}: {error.strerror}") from None
        self.port: int = self._server.server_address[1]
        self._thread = Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(latest: Callable[[], Metrics | None]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            metrics = latest()
            if not asks_for(self.headers.get("Host"), LOOPBACK):
                self._answer(403, "text/plain", b"expected localhost or 127.0.0.1 as the host\n")
            elif self.path not in {"/metrics", "/metrics.json"}:
                self._answer(404, "text/plain", b"there are /metrics and /metrics.json\n")
            elif metrics is None:
                self._answer(503, "text/plain", b"not started yet\n")
            elif self.path == "/metrics":
                self._answer(200, _TYPE, text(metrics).encode())
            else:
                self._answer(200, "application/json", metrics.to_json())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is given
            """Nobody wants a line for each scrape."""

        def _answer(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler
