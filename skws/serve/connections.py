"""Connections of clients: so many at once, and none for long whose client lets it wait.

uvicorn gives a client all the time it wants for the head of a request, and for taking an answer. Each such
connection costs a file, and a process without files to open cannot keep its journal.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from uvicorn.protocols.http.h11_impl import H11Protocol

PATIENCE: Final = 30.0
"""Seconds, up to twice of which a connection may stay without progress."""
_OTHER_FILES: Final = 512
"""Files that the process opens besides its connections: its source, journal, sinks, libraries."""
_BESIDE_STREAMS: Final = 1_000


class Connection(H11Protocol):
    """A connection, which is cut off if it does not go on, unless a request is being worked on."""

    most = 1 << 30
    patience = PATIENCE
    _looked: tuple[object, int] | None = None
    _looking: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
        super().connection_made(transport)
        if len(self.connections) > self.most:
            transport.abort()
        else:
            self._look_again()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._looking is not None:
            self._looking.cancel()
        super().connection_lost(exc)

    def _look_again(self) -> None:
        self._looking = self.loop.call_later(self.patience, self._look)

    def _look(self) -> None:
        state = self.cycle, self.transport.get_write_buffer_size()
        working = self.cycle is not None and not self.cycle.response_complete
        stuck = state == self._looked and (self.transport.is_closing() or not working)
        self._looked = state
        if stuck:
            self.transport.abort()
        else:
            self._look_again()


def connections(streams: int, patience: float = PATIENCE) -> type[Connection]:
    """The protocol of a server with at most so many event streams; lets the process open as many files."""
    most = streams + _BESIDE_STREAMS
    with suppress(ImportError, OSError, ValueError):
        import resource  # noqa: PLC0415 - there is none on Windows

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = most + _OTHER_FILES
        if soft < wanted:
            soft = min(wanted, hard) if hard != resource.RLIM_INFINITY else wanted
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        most = max(1, min(most, soft - _OTHER_FILES))
    return type("Connection", (Connection,), {"most": most, "patience": patience})
