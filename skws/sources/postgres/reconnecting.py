"""A stream that is opened again when it breaks: after a while that doubles, and not for ever.

Nothing here waits: while the server is away there is no stream, and the user is told when it is tried next.
"""

from __future__ import annotations

from typing import Final

import psycopg2

from schema.errors import SourceError
from skws.sources.clock import Clock
from skws.sources.postgres.address import Address
from skws.sources.postgres.pgoutput import Change
from skws.sources.postgres.stream import Stream, passing

FIRST_WAIT: Final = 100_000
LONGEST_WAIT: Final = 10_000_000
GIVE_UP: Final = 300_000_000
"""Microseconds."""
_IN_USE: Final = "55006"
_RELEASE_WAIT: Final = 50_000
_RELEASE_TRIES: Final = 20


class Reconnecting:
    """At most one stream of a slot. Methods raise SourceError where trying again is of no use."""

    def __init__(self, address: Address, clock: Clock) -> None:
        self.notices: list[str] = []
        self._address = address
        self._clock = clock
        self._stream: Stream | None = None
        self._confirmed = 0
        self._broken_since: int | None = None
        self._next_try = 0
        self._wait = FIRST_WAIT

    @property
    def wal_end(self) -> int:
        return self._stream.wal_end if self._stream is not None else 0

    def open(self, lsn: int) -> bool:
        """Opens the stream from ``lsn`` on, unless it is too early to try again; whether it is open now."""
        if self._broken_since is not None and self._clock.now() < self._next_try:
            return False
        try:
            self._stream = self._released(lsn)
            if self._confirmed:
                self._stream.confirm(self._confirmed)
        except psycopg2.Error as error:
            self.failed(error)
            return False
        if self._broken_since is not None:
            self.notices.append(f"{self._address.shown}: connected again, going on")
        self._broken_since, self._wait = None, FIRST_WAIT
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
        now = self._clock.now()
        failure = self._address.failure(error)
        if not passing(error):
            raise failure
        if self._broken_since is None:
            self._broken_since = now
        if now - self._broken_since > GIVE_UP:
            raise SourceError(f"{failure} (tried for {GIVE_UP // 1_000_000} seconds)")
        self.notices.append(f"{failure}; trying again in {self._wait / 1_000_000:g} s")
        self._next_try = now + self._wait
        self._wait = min(2 * self._wait, LONGEST_WAIT)

    def wait(self) -> None:
        """Sleeps until it is time to try again."""
        self._clock.sleep(max(0, self._next_try - self._clock.now()))

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
