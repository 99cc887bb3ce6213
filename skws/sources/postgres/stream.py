"""The stream of changes from a slot: messages as they come, one connection at a time."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import psycopg2
from psycopg2.extras import REPLICATION_LOGICAL

from schema.errors import SourceError
from skws.sources.postgres.address import Address
from skws.sources.postgres.lsn import lsn_text
from skws.sources.postgres.pgoutput import Change, decode
from skws.sources.postgres.publication import publication_of
from skws.sources.postgres.slot import SlotState, slot_state
from skws.sources.readiness import readable

# Answers in a row that the server asked for.
_INSISTING: Final = 5


class Stream:
    """Follows a slot from a position on. Methods raise psycopg2.Error when the connection breaks."""

    def __init__(self, address: Address, lsn: int) -> None:
        """Raises SourceError if we are refused, or the slot no longer has what lies behind ``lsn``."""
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
        """All that was committed before this position has been read, once there is nothing more to read."""
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

    def ask(self) -> None:
        """Have the server tell at once how far it is."""
        self._cursor.send_feedback(reply=True, force=True)  # type: ignore[no-untyped-call]
        self._replied = self._cursor.feedback_timestamp

    def confirm(self, lsn: int) -> None:
        """Let the server forget what lies before ``lsn``."""
        self._cursor.send_feedback(  # type: ignore[no-untyped-call]
            write_lsn=lsn, flush_lsn=lsn, apply_lsn=lsn, force=True
        )
        self._replied = self._cursor.feedback_timestamp

    def _count_replies(self) -> None:
        """Lets go of a server that stops: it would wait until all that it sent is confirmed.

        Such a server asks again as soon as it is answered; one that runs, every half minute.
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
