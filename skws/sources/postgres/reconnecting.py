"""A stream that is opened again when it breaks: after a while that doubles, and not for ever.

Nothing here waits: while the server is away there is no stream, and the user is told when it is tried next.
"""

from __future__ import annotations

from typing import Final

import psycopg2

from schema.errors import NotYetError
from skws.sources.clock import Clock
from skws.sources.outage import Outage
from skws.sources.postgres.address import Address
from skws.sources.postgres.pgoutput import Change
from skws.sources.postgres.stream import Stream

_IN_USE: Final = "55006"
_RELEASE_WAIT: Final = 50_000  # microseconds
_RELEASE_TRIES: Final = 20


class Reconnecting:
    """At most one stream of a slot. Methods raise SourceError where trying again is of no use."""

    def __init__(self, address: Address, clock: Clock) -> None:
        self._outage = Outage(address.shown, clock)
        self._address = address
        self._clock = clock
        self._stream: Stream | None = None
        self._confirmed = 0

    @property
    def wal_end(self) -> int:
        return self._stream.wal_end if self._stream is not None else 0

    def open(self, lsn: int) -> bool:
        """Opens the stream from ``lsn`` on, unless it is too early to try again; whether it is open now."""
        if self._outage.too_early:
            return False
        try:
            self._stream = self._released(lsn)
            if self._confirmed:
                self._stream.confirm(self._confirmed)
        except psycopg2.Error as error:
            self.failed(error)
            return False
        self._outage.over()
        return True

    def read(self, seconds: float) -> Change | None:
        """Raises psycopg2.Error when the stream breaks, or is not open."""
        if self._stream is None:
            raise psycopg2.InterfaceError("not connected")
        return self._stream.read(seconds)

    def ask(self) -> None:
        if self._stream is not None:
            self._stream.ask()

    def confirm(self, lsn: int) -> None:
        """Now, or when the stream is open again."""
        self._confirmed = max(self._confirmed, lsn)
        try:
            if self._stream is not None:
                self._stream.confirm(self._confirmed)
        except psycopg2.Error as error:
            self.failed(error)

    def failed(self, error: psycopg2.Error) -> None:
        """The stream broke. Raises SourceError if that will not pass, or has lasted too long."""
        self.drop()
        failure = self._address.failure(error)
        if not isinstance(failure, NotYetError):
            raise failure
        self._outage.failed(failure)

    def wait(self) -> None:
        """Sleeps until it is time to try again."""
        self._outage.wait()

    def told(self) -> tuple[str, ...]:
        """Lines for the user since the last call."""
        return self._outage.told()

    def drop(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def close(self) -> None:
        self.drop()

    def _released(self, lsn: int) -> Stream:
        """A stream, once the server has noticed that our last one is closed."""
        for _ in range(_RELEASE_TRIES):
            try:
                return Stream(self._address, lsn)
            except psycopg2.Error as error:
                if error.pgcode != _IN_USE:
                    raise
            self._clock.sleep(_RELEASE_WAIT)
        return Stream(self._address, lsn)
