"""The HTTP server of a job, in a separate thread; the job runs in the thread that calls ``serve``."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Final

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from skws.durable import explained
from skws.jobs.log import Log
from skws.serve.error_answers import error_body
from skws.serve.measures import Measures
from skws.serve.request_guard import Guard
from skws.serve.routes import AppState, make_app
from skws.serve.served_job import ServedJob
from skws.serve.server_options import Access, StreamLimits
from skws.serve.streams import EventStreams
from skws.spec.job import Job
from skws_schema.errors import SkwsError

_BACKLOG: Final = 2048
_END_SECONDS: Final = 10
PATIENCE: Final = 30.0
"""Seconds; a connection without progress is closed after at most twice as long."""
_OTHER_FILES: Final = 512
"""The files that the process opens besides its connections: its source, journal, sinks, libraries."""
BESIDE_STREAMS: Final = 1_000
"""The most connections besides event streams."""


class Connection(H11Protocol):
    """A connection, which is closed if it makes no progress, unless a request is being processed.

    uvicorn gives a client any amount of time for the head of a request, and for receiving an answer. Each
    such connection costs a file, and a process that cannot open files cannot keep its journal.
    """

    most = 1 << 30
    patience = PATIENCE
    _last_state: tuple[object, int] | None = None
    _check_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
        super().connection_made(transport)
        if len(self.connections) > self.most:
            transport.abort()
        else:
            self._schedule_check()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._check_timer is not None:
            self._check_timer.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer text that is not HTTP like other errors; uvicorn would send plain text."""
        reason, _, _ = str(sys.exception() or msg).partition(
            ": bytearray"
        )  # without Python's form of the text
        body = error_body(f"the request is not HTTP: {reason}")
        headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
        head = h11.Response(
            status_code=400,
            headers=[*headers, (b"content-length", str(len(body)).encode())],
            reason=b"Bad Request",
        )
        for event in (head, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _schedule_check(self) -> None:
        self._check_timer = self.loop.call_later(self.patience, self._check_progress)

    def _check_progress(self) -> None:
        state = self.cycle, self.transport.get_write_buffer_size()
        busy = self.cycle is not None and not self.cycle.response_complete
        stuck = state == self._last_state and (self.transport.is_closing() or not busy)
        self._last_state = state
        if stuck:
            self.transport.abort()
        else:
            self._schedule_check()


def connections(
    streams: int, patience: float = PATIENCE, other_connections: int = BESIDE_STREAMS
) -> type[Connection]:
    """The protocol of a server with at most ``streams`` event streams, and ``other_connections`` more.

    Raises the process's limit of open files, as far as it may.
    """
    most = streams + other_connections
    with suppress(ImportError, OSError, ValueError):
        import resource  # noqa: PLC0415 - absent on Windows

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        descriptors = most + _OTHER_FILES
        if soft < descriptors:
            soft = min(descriptors, hard) if hard != resource.RLIM_INFINITY else descriptors
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        most = max(1, min(most, soft - _OTHER_FILES))
    return type("Connection", (Connection,), {"most": most, "patience": patience})


def listening_socket(host: str, port: int) -> socket.socket:
    """A listening socket. Raises SkwsError if the address is not available."""
    with explained(f"--host {host} --port {port}", SkwsError):
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    # Connections inherit it; asyncio sets it only if the socket names its protocol.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


class HttpServer:
    """Serves an app on a socket until ``close``. ``patience``: seconds for clients without progress."""

    def __init__(
        self,
        app: ASGIApp,
        streams: EventStreams,
        listener: socket.socket,
        patience: float = PATIENCE,
        other_connections: int = BESIDE_STREAMS,
    ) -> None:
        config = uvicorn.Config(
            app,
            http=connections(streams.limits.most, patience, other_connections),
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=_END_SECONDS,
            backlog=_BACKLOG,
        )
        self._server = uvicorn.Server(config)
        self._streams = streams
        self._socket = listener
        self._loop: asyncio.AbstractEventLoop | None = None
        self._begun = Event()
        self._thread = Thread(target=self._run, name="skws serve", daemon=True)

    def start(self) -> None:
        """Start; returns once requests are answered."""
        self._thread.start()
        self._begun.wait()

    def close(self) -> None:
        """End the streams, finish the running requests, and stop."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end)
        self._thread.join(_END_SECONDS + 5)
        self._socket.close()

    def _end(self) -> None:
        self._streams.close()
        self._server.should_exit = True

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._streams.begin(self._loop)
        self._loop.call_soon(self._begun.set)
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            self._begun.set()


@contextmanager
def serving(
    job: Job,
    access: Access,
    listener: socket.socket,
    notes: Log,
    *,
    keep: int,
    most_saved: int,
    limits: StreamLimits,
) -> Iterator[ServedJob]:
    """A job with a server in front of it, while the context is entered. Raises SkwsError."""
    streams = EventStreams(limits)
    served_job = ServedJob(job, notes, streams.wake, keep=keep, most_saved=most_saved)
    app = make_app(AppState(served_job, streams, Measures(streams, served_job.hub)))

    def log_error(error: Exception) -> None:
        notes.error("request", f"unexpected {type(error).__name__} in a request: {error}")

    server = HttpServer(Guard(app, access, log_error), streams, listener)
    server.start()
    try:
        yield served_job
    finally:
        server.close()
