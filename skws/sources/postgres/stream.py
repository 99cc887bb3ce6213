"""The replication stream of a slot, opened again when it breaks."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import psycopg2
from psycopg2.extras import REPLICATION_LOGICAL

from skws.sources.feed import Clock, readable
from skws.sources.postgres.address import Address
from skws.sources.postgres.pgoutput import Change, decode
from skws.sources.postgres.publication import publication_of
from skws.sources.postgres.slot import SlotState, lsn_text, slot_state
from skws.sources.retry import Retry
from skws_schema.errors import NotYetError, SourceError

# Consecutive replies at which a server counts as stopping.
_INSISTING: Final = 5


class Stream:
    """Reads a slot from a position on. Methods raise psycopg2.Error when the connection breaks."""

    def __init__(self, address: Address, lsn: int) -> None:
        """Raises SourceError if the server refuses, or the slot no longer has the log after ``lsn``."""
        self._connection = address.replicating()
        self._replies = 0
        self._replied: object = None
        try:
            self._cursor = self._connection.cursor()
            _check(slot_state(self._cursor, address.slot), address, lsn)
            publication = publication_of(self._cursor, address, going_on=True)
            options = {"proto_version": "1", "publication_names": f'"{publication}"'}
            self._cursor.start_replication(
                slot_name=address.slot,
                slot_type=REPLICATION_LOGICAL,
                start_lsn=lsn,
                options=options,
                decode=False,
            )
            self._replied = self._cursor.feedback_timestamp
        except BaseException:
            self.close()
            raise

    @property
    def wal_end(self) -> int:
        """Everything committed before this position has been read, once there are no more messages."""
        end: int = self._cursor.wal_end or 0
        return end

    def read(self, seconds: float) -> Change | None:
        """The next message; None if there is none within ``seconds``."""
        message = self._cursor.read_message()
        if message is None and seconds > 0:
            readable(self._cursor, seconds)
            message = self._cursor.read_message()
        if message is None:
            self._count_replies()
            return None
        self._replies = 0
        return decode(message.payload)

    def request_status(self) -> None:
        """Have the server send its position now."""
        self._cursor.send_feedback(reply=True, force=True)  # type: ignore[no-untyped-call]
        self._replied = self._cursor.feedback_timestamp

    def confirm(self, lsn: int) -> None:
        """Let the server forget what lies before ``lsn``."""
        self._cursor.send_feedback(  # type: ignore[no-untyped-call]
            write_lsn=lsn, flush_lsn=lsn, apply_lsn=lsn, force=True
        )
        self._replied = self._cursor.feedback_timestamp

    def _count_replies(self) -> None:
        """Break off if the server is stopping: it would wait until everything it sent is confirmed.

        Such a server asks again as soon as it is answered; a running one, every half minute.
        """
        replied = self._cursor.feedback_timestamp
        self._replies = self._replies + 1 if replied != self._replied else 0
        self._replied = replied
        if self._replies >= _INSISTING:
            raise psycopg2.OperationalError("the server is about to stop")

    def close(self) -> None:
        with suppress(psycopg2.Error):
            self._connection.close()


def _check(state: SlotState | None, address: Address, lsn: int) -> None:
    if state is None:
        raise SourceError(
            f"{address.shown}: the replication slot {address.slot!r} is gone, and with it the changes since"
            f" {lsn_text(lsn)}; begin anew"
        )
    if state.lost or lsn < state.confirmed:
        why = "the server has dropped its log" if state.lost else f"it stands at {lsn_text(state.confirmed)}"
        raise SourceError(
            f"{address.shown}: the slot {address.slot!r} no longer has the changes since {lsn_text(lsn)}:"
            f" {why}; begin anew"
        )


_IN_USE: Final = "55006"
_RELEASE_WAIT: Final = 50_000  # microseconds
_RELEASE_TRIES: Final = 20


class RetryingStream:
    """At most one stream of a slot, opened again when it breaks; no call waits for a server that is away.

    Methods raise SourceError where trying again is of no use.
    """

    def __init__(self, address: Address, clock: Clock) -> None:
        self._retry = Retry(address.shown, clock)
        self._address = address
        self._clock = clock
        self._stream: Stream | None = None
        self._confirmed = 0

    @property
    def wal_end(self) -> int:
        return self._stream.wal_end if self._stream is not None else 0

    def open(self, lsn: int) -> bool:
        """Open the stream from ``lsn`` on, unless it is too early to try again; whether it is open now."""
        self._retry.attempt(lambda: self._open(lsn))
        return self._stream is not None

    def read(self, seconds: float) -> Change | None:
        """Raises psycopg2.Error when the stream breaks, or is not open."""
        if self._stream is None:
            raise psycopg2.InterfaceError("not connected")
        return self._stream.read(seconds)

    def request_status(self) -> None:
        if self._stream is not None:
            self._stream.request_status()

    def confirm(self, lsn: int) -> None:
        """Let the server forget what lies before ``lsn``: now, or when the stream is open again."""
        self._confirmed = max(self._confirmed, lsn)
        try:
            if self._stream is not None:
                self._stream.confirm(self._confirmed)
        except psycopg2.Error as error:
            self.failed(error)

    def failed(self, error: psycopg2.Error) -> None:
        """The stream broke. Raises SourceError if it cannot be opened again, or was broken for too long."""
        self.close()
        failure = self._address.failure(error)
        if not isinstance(failure, NotYetError):
            raise failure
        self._retry.failed(failure)

    def wait(self) -> None:
        """Sleep until it is time to try again."""
        self._retry.wait()

    def take_notices(self) -> tuple[str, ...]:
        """Lines for the user since the last call."""
        return self._retry.take_notices()

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _open(self, lsn: int) -> None:
        try:
            self._stream = self._released(lsn)
            if self._confirmed:
                self._stream.confirm(self._confirmed)
        except psycopg2.Error as error:
            self.close()
            raise self._address.failure(error) from None

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
