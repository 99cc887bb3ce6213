"""A database as a feed: the snapshot's rows, then the changes of the log, in batches between positions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import psycopg2

from schema.errors import SourceError
from schema.model import Schema
from skws.sources.clock import Clock
from skws.sources.feed import Batch, Item, Offset
from skws.sources.postgres.address import Address
from skws.sources.postgres.catalog import tables
from skws.sources.postgres.changes import Translator
from skws.sources.postgres.fitting import Fitted, fit
from skws.sources.postgres.following import Following
from skws.sources.postgres.opening import begin, static_rows
from skws.sources.postgres.position import Position
from skws.sources.postgres.publication import extend_publication
from skws.sources.postgres.reconnecting import Reconnecting
from skws.sources.postgres.slot import slot_state
from skws.sources.postgres.spool import Spool, lines_end

# How long a poll waits for a message: the server needs a moment to send what is there.
_WAIT_SECONDS: Final = 0.05


class PostgresFeed:
    """Follows one database. ``folder`` keeps the snapshot; without one it is gone with the process."""

    tables_come = False

    def __init__(self, address: Address, schema: Schema, folder: Path | None, clock: Clock) -> None:
        """Raises SourceError if the database is not there or does not fit the schema."""
        self._address = address
        self._schema = schema
        self._clock = clock
        with address.sql() as connected:
            self._fitted: Fitted = fit(schema, tables(connected), address.shown)
        self._own_folder = TemporaryDirectory(prefix="skws-snapshot-") if folder is None else None
        self._spool = Spool(folder or Path(self._own_folder.name if self._own_folder else ""), address.slot)
        self._spool_checked = False
        self._streams = Reconnecting(address, clock)
        self._following: Following | None = None
        self._notices = list(self._fitted.warnings)

    def adopt(self, schema: Schema) -> None:
        """Changes of tables that are new are read; the rows that are in them are not."""
        with self._address.sql() as connected:
            fitted = fit(schema, tables(connected), self._address.shown)
            extend_publication(connected, self._address, list(fitted.streams.values()))
        self._schema, self._fitted = schema, fitted
        self._notices += fitted.warnings
        self._drop()

    def start(self) -> Offset:
        """Makes the publication, the slot and the snapshot."""
        return begin(self._address, self._schema, self._fitted, self._spool).offset()

    def tables(self) -> Iterator[Item]:
        """Of the snapshot; where that is gone, as they are now."""
        if not self._fitted.static:
            return iter(())
        if self._spool.point() is None or not self._spool.tables.exists():
            static_rows(self._address, self._schema, self._fitted, self._spool)
        return self._spool.read(self._spool.tables, self._schema)

    def poll(self, start: Offset, limit: int) -> Batch:
        """Whole transactions, but for those larger than ``limit``. While the server is away, empty."""
        position = Position.of(start)
        items, position = (
            self._from_log(position, limit) if position.spool is None else self._from_spool(position, limit)
        )
        notices = (*self._notices, *self._streams.told())
        self._notices.clear()
        return Batch(items, position.offset(), notices)

    def again(self, start: Offset, end: Offset) -> Iterator[Item]:
        """From the snapshot's file, or from the slot; waits for the server if it is away."""
        first, last = Position.of(start), Position.of(end)
        if first.spool is not None:
            self._check_spool(first)
            until = self._spool.size() if last.spool is None else last.spool
            yield from self._spool.read(self._spool.rows, self._schema, first.spool, until)
            first = replace(first, spool=None)
        if last.spool is None and (first.lsn, first.change) != (last.lsn, last.change):
            yield from self._from_log_until(first, last)

    def commit(self, end: Offset) -> None:
        """Lets the server forget what lies before ``end``; behind the snapshot, its rows are removed too."""
        position = Position.of(end)
        if position.spool is None:
            self._streams.confirm(position.lsn)
            self._spool.rows.unlink(missing_ok=True)

    def behind(self, offset: Offset) -> str:
        """How far the log has gone on, and how much of it the server keeps for the slot."""
        with self._address.sql() as connected, connected.cursor() as cursor:
            state = slot_state(cursor, self._address.slot)
        if state is None:
            return f"the slot {self._address.slot!r} is gone"
        waiting = max(0, state.current - Position.of(offset).lsn)
        kept = f"the server keeps {state.kept_bytes:,} bytes for {self._address.slot!r}"
        return f"{waiting:,} bytes of log behind; {kept}"

    def close(self) -> None:
        self._streams.close()
        if self._own_folder is not None:
            self._own_folder.cleanup()

    def _from_spool(self, position: Position, limit: int) -> tuple[list[Item], Position]:
        self._check_spool(position)
        at = position.spool or 0
        end = lines_end(self._spool.rows, at, limit)
        if end == at:
            return [], replace(position, spool=None)
        return list(self._spool.read(self._spool.rows, self._schema, at, end)), replace(position, spool=end)

    def _check_spool(self, position: Position) -> None:
        """The snapshot is that of the run; its rows are looked at once."""
        point = self._spool.point()
        if point is None or point[0] != position.lsn:
            raise SourceError(
                f"{self._address.shown}: the snapshot that this run began with is gone; begin anew"
                " (drop the slot, and start without the old offset)"
            )
        if not self._spool_checked:
            self._spool.check_rows()
            self._spool_checked = True

    def _from_log(self, position: Position, limit: int) -> tuple[list[Item], Position]:
        following = self._at(position)
        if following is None:
            return [], position
        items: list[Item] = []
        try:
            while len(items) < limit:
                settled = bool(items) and not following.within
                message = self._streams.read(0 if settled else _WAIT_SECONDS)
                if message is not None:
                    items += following.take(message)
                elif not following.within:
                    following.rest(self._streams.wal_end)
                    break
        except psycopg2.Error as error:
            # What was read of this batch will be read again, from its start.
            self._lost(error)
            return [], position
        except SourceError:
            if not items:
                raise
            # First what stands before the fault, which the next poll will meet again.
            self._drop()
        self._notices += following.notices
        following.notices.clear()
        return items, following.position

    def _from_log_until(self, first: Position, last: Position) -> list[Item]:
        """All items between two positions of the log; begins again where the connection breaks."""
        self._drop()
        while True:
            following = self._at(first)
            try:
                if following is not None:
                    return self._until(following, last)
                self._streams.wait()
            except psycopg2.Error as error:
                self._lost(error)

    def _until(self, following: Following, last: Position) -> list[Item]:
        items: list[Item] = []
        while not following.reached(last, self._streams.wal_end):
            message = self._streams.read(_WAIT_SECONDS)
            if message is None:
                self._streams.ask()
            elif following.beyond(message, last):
                raise SourceError(
                    f"{self._address.shown}: the log no longer holds the offset {last.offset()}"
                )
            else:
                items += following.take(message)
        self._drop()
        return items

    def _at(self, position: Position) -> Following | None:
        """What follows the stream from ``position``; None while the server is away."""
        if self._following is None or self._following.position != position:
            self._drop()
            if not self._streams.open(position.lsn):
                return None
            self._following = Following(Translator(self._schema, self._fitted), position)
        return self._following

    def _lost(self, error: psycopg2.Error) -> None:
        self._following = None
        self._streams.failed(error)

    def _drop(self) -> None:
        self._following = None
        self._streams.drop()
