"""A PostgreSQL database as a source: the snapshot's rows, then the changes of the log.

A new run begins with a publication, a slot and a snapshot of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import psycopg2
from psycopg2.extensions import ISOLATION_LEVEL_REPEATABLE_READ, connection

from skws.data.batch import NOTHING, Chunk
from skws.sources.feed import Backlog, Batch, Clock, Feed, Offset, Source, SystemClock
from skws.sources.horizon import ANY_TIME, Horizon
from skws.sources.postgres.catalog import MatchedTables, match_tables, tables
from skws.sources.postgres.changes import ChangeDecoder, LogReader
from skws.sources.postgres.database_address import DatabaseAddress, is_abandoned, slots_of_this_host
from skws.sources.postgres.presence import FollowedTables, name_of
from skws.sources.postgres.publication import RequiredColumns
from skws.sources.postgres.slot import (
    LogPosition,
    SlotState,
    SlotStream,
    check_publication,
    create_slot,
    drop_publication,
    drop_slot,
    ensure_publication,
    extend_publication,
    server_of,
    slot_state,
)
from skws.sources.postgres.spool import SnapshotSpool, check_files, copy_tables, lock_tables
from skws_schema.errors import SkwsError, SourceError
from skws_schema.model import Schema

# The time that a poll waits for a message, since the server takes a moment to send pending ones.
_WAIT_SECONDS: Final = 0.05
_LOOK_EVERY: Final = 10_000_000  # microseconds between checks for dropped tables
_WHOLE: Final = 100_000  # records of a batch that ends within a transaction


class PostgresFeed(Feed):
    """Follows one database. ``folder``: for the snapshot, which is otherwise lost with the process."""

    def __init__(
        self,
        address: DatabaseAddress,
        schema: Schema,
        folder: Path | None,
        clock: Clock,
        horizon: Horizon = ANY_TIME,
    ) -> None:
        """Connect. Raises SourceError if the database does not exist or does not fit the schema.

        ``start`` refuses missing columns; a run that resumes reads the log up to their removal.
        """
        self._address = address
        self._schema = schema
        self._clock = clock
        self._horizon = horizon
        with address.sql() as conn:
            self._tables: MatchedTables = match_tables(schema, tables(conn), address.shown, resuming=True)
        self._own_folder = TemporaryDirectory(prefix="skws-snapshot-") if folder is None else None
        self._spool = SnapshotSpool(
            folder or Path(self._own_folder.name if self._own_folder else ""), address.slot
        )
        self._spool_checked = False
        self._stream = SlotStream(address, clock, self._check_publication)
        self._is_publication_checked = False  # the publication has been checked and is complete
        self._reader: LogReader | None = None
        self._notices = list(self._tables.warnings)
        self._followed_tables = FollowedTables(self._tables.streams.values())
        self._next_look = 0

    def change_schema(self, schema: Schema) -> None:
        """Changes of new tables are read, but not their present rows."""
        with self._address.sql() as conn:
            matched = match_tables(schema, tables(conn), self._address.shown)
            extend_publication(conn, self._address, _required_columns(schema, matched))
        self._schema, self._tables, self._is_publication_checked = schema, matched, True
        self._followed_tables = FollowedTables(matched.streams.values())
        self._notices += matched.warnings
        self._disconnect()

    def start(self) -> Offset:
        """Creates the publication, the slot and the snapshot.

        Raises SourceError, also for missing columns.
        """
        with self._address.sql() as conn:
            self._tables = match_tables(self._schema, tables(conn), self._address.shown)
        self._followed_tables = FollowedTables(self._tables.streams.values())
        position = _begin(self._address, self._schema, self._tables, self._spool)
        self._is_publication_checked = True
        return replace(position, server=server_of(self._address)).offset()

    def tables(self) -> Iterator[Chunk]:
        """The rows of static tables in the snapshot; if that is missing, the present rows."""
        if not self._tables.static:
            return iter(())
        if self._spool.point() is None or not self._spool.tables.exists():
            _copy_static(self._address, self._schema, self._tables, self._spool)
        return self._spool.read_tables(self._schema)

    def poll(self, start: Offset, limit: int) -> Batch:
        """Whole transactions up to ``limit`` records and the rest of the last one, except very large ones.

        The effect of one transaction on a result is then one change. Empty while the server is unreachable.
        """
        position = LogPosition.of(start)
        chunk, position = (
            self._from_log(position, limit) if position.spool is None else self._from_spool(position, limit)
        )
        notices = (*self._notices, *self._stream.take_notices())
        self._notices.clear()
        return Batch(chunk, position.offset(), notices)

    def replay(self, start: Offset, end: Offset) -> Chunk:
        """Reads the snapshot's file, or the slot; waits for the server if it is unreachable."""
        first, last = LogPosition.of(start), LogPosition.of(end)
        chunks: list[Chunk] = []
        if first.spool is not None:
            self._check_spool(first)
            until = self._spool.size() if last.spool is None else last.spool
            chunks.append(self._spool.read_rows(self._schema, first.spool, until))
            first = replace(first, spool=None)
        if last.spool is None and (first.lsn, first.change) != (last.lsn, last.change):
            chunks.append(self._replay_log(first, last))
        return Chunk.concat(chunks)

    def commit(self, end: Offset) -> None:
        """Lets the server forget the log before ``end``; after the snapshot, removes its rows."""
        position = LogPosition.of(end)
        if position.spool is None:
            self._stream.confirm(position.lsn)
            self._spool.forget_rows()

    def backlog(self, offset: Offset) -> Backlog:
        """The bytes of log after ``offset``, and those that the server keeps for the slot."""
        with self._address.sql() as conn, conn.cursor() as cursor:
            state = slot_state(cursor, self._address.slot)
        if state is None:
            return Backlog(f"the slot {self._address.slot!r} no longer exists")
        unread_bytes = max(0, state.current - LogPosition.of(offset).lsn)
        note = f"the server keeps {state.kept_bytes:,} bytes for {self._address.slot!r}"
        return Backlog(f"{unread_bytes:,} bytes of log behind; {note}", unread_bytes, state.kept_bytes)

    def close(self) -> None:
        self._stream.close()
        if self._own_folder is not None:
            self._own_folder.cleanup()

    def _from_spool(self, position: LogPosition, limit: int) -> tuple[Chunk, LogPosition]:
        self._check_spool(position)
        start = position.spool or 0
        end = self._spool.lines_end(start, limit)
        if end == start:
            return NOTHING, replace(position, spool=None)
        return self._spool.read_rows(self._schema, start, end), replace(position, spool=end)

    def _check_spool(self, position: LogPosition) -> None:
        """Raises SourceError if the snapshot is not that of the run; its rows are checked once."""
        point = self._spool.point()
        if point is None or point[0] != position.lsn:
            raise SourceError(
                f"{self._address.shown}: the snapshot with which this run began is gone; start a new run"
                " (drop the slot, and start without the old offset)"
            )
        if not self._spool_checked:
            self._spool.check_rows()
            self._spool_checked = True

    def _from_log(self, position: LogPosition, limit: int) -> tuple[Chunk, LogPosition]:
        reader = self._reader_at(position, self._horizon)
        if reader is None:
            return NOTHING, position
        try:
            while reader.record_count < limit or (reader.in_transaction and reader.record_count < _WHOLE):
                is_settled = bool(reader.record_count) and not reader.in_transaction
                message = self._stream.read(0 if is_settled else _WAIT_SECONDS)
                if message is not None:
                    reader.take(message)
                elif not reader.in_transaction:
                    reader.skip_to(self._stream.wal_end)
                    break
        except psycopg2.Error as error:
            # The batch will be read again from its start.
            self._on_error(error)
            return NOTHING, position
        except SourceError:
            if not reader.record_count:
                raise
            # Return the records before the fault first; the next poll raises it again.
            self._disconnect()
        chunk = reader.chunk()
        self._notices += reader.notices
        reader.notices.clear()
        if not len(chunk):
            self._look_for_tables()
        return chunk, reader.position

    def _look_for_tables(self) -> None:
        """Add notices of dropped tables and partitions."""
        now = self._clock.now()
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_EVERY
        # The reader of the log reports an unreachable server.
        with (
            suppress(SkwsError, psycopg2.Error),
            self._address.sql() as conn,
            conn.cursor() as cursor,
        ):
            self._notices += self._followed_tables.dropped_notices(cursor)

    def _replay_log(self, first: LogPosition, last: LogPosition) -> Chunk:
        """All records between two positions of the log; restarts if the connection breaks."""
        self._disconnect()
        # a commit time beyond the horizon did not raise the times of others
        horizon = self._horizon.fixed(last.time)
        while True:
            reader = self._reader_at(first, horizon)
            try:
                if reader is not None:
                    return self._read_until(reader, last)
                self._stream.wait()
            except psycopg2.Error as error:
                self._on_error(error)

    def _read_until(self, reader: LogReader, last: LogPosition) -> Chunk:
        while not reader.has_reached(last, self._stream.wal_end):
            message = self._stream.read(_WAIT_SECONDS)
            if message is None:
                self._stream.request_status()
            elif reader.is_beyond(message, last):
                raise SourceError(
                    f"{self._address.shown}: the log no longer holds the offset {last.offset()}"
                )
            else:
                reader.take(message)
        self._disconnect()
        return reader.chunk()

    def _reader_at(self, position: LogPosition, horizon: Horizon) -> LogReader | None:
        """A reader of the log from ``position``; None while the server is unreachable."""
        if self._reader is None or self._reader.position != position:
            self._disconnect()
            if not self._stream.open(position):
                return None
            server_position = replace(position, server=self._stream.server)
            decoder = ChangeDecoder(self._schema, self._tables, self._current_name)
            self._reader = LogReader(decoder, server_position, horizon)
        return self._reader

    def _current_name(self, oid: int) -> tuple[str, str] | None:
        """The present name of a table. Raises psycopg2.Error, SourceError."""
        with self._address.sql() as conn, conn.cursor() as cursor:
            return name_of(cursor, oid)

    def _check_publication(self) -> None:
        """Check the publication, which may have been altered since the run began."""
        if not self._is_publication_checked:
            check_publication(self._address, _required_columns(self._schema, self._tables))
            self._is_publication_checked = True

    def _on_error(self, error: psycopg2.Error) -> None:
        self._reader = None
        self._stream.record_failure(error)

    def _disconnect(self) -> None:
        self._reader = None
        self._stream.close()


@dataclass(frozen=True, slots=True)
class Dropped:
    """``slot``: True if a slot was dropped. ``readers``: slots that still need the publication."""

    slot: bool
    readers: tuple[str, ...]

    def notice(self, address: DatabaseAddress) -> str:
        """A line for the user."""
        outcome = "dropped the slot" if self.slot else "there is no slot"
        note = f"; its publication is kept: {', '.join(self.readers)} may read it" if self.readers else ""
        return f"{outcome} {address.slot!r} in {address.shown}{note}"


@dataclass(frozen=True)
class PostgresSource(Source):
    """A database to follow.

    ``folder``: the folder for the snapshot while it is read, without which a run cannot resume within its
    snapshot.
    """

    address: DatabaseAddress
    folder: Path | None = None
    clock: Clock = field(default_factory=SystemClock)
    horizon: Horizon = ANY_TIME

    @classmethod
    def of(
        cls, uri: str, folder: Path | None, clock: Clock, horizon: Horizon, *, resumable: bool
    ) -> PostgresSource:
        """The source at a URI. ``resumable``: False for a run that leaves no slot. Raises UsageError."""
        address = DatabaseAddress.of(uri)
        return cls(address if resumable else address.of_one_run(), folder, clock, horizon)

    @property
    def name(self) -> str:
        return self.address.shown

    def open(self, schema: Schema) -> Feed:
        return PostgresFeed(self.address, schema, self.folder, self.clock, self.horizon)

    def leave_nothing(self) -> str:
        """With ``snapshot=no`` a run resumes from the slot itself, so the slot remains."""
        return self.drop_slot().notice(self.address) if self.address.snapshot else ""

    def drop_slot(self) -> Dropped:
        """Drops the slot, the snapshot, and the publication if skws made it and no other slot needs it.

        Raises SourceError, also while the slot is being read.
        """
        is_dropped = drop_slot(self.address)
        with self.address.sql() as conn:
            readers = drop_publication(conn, self.address)
        if self.folder is not None:
            SnapshotSpool(self.folder, self.address.slot).remove()
        return Dropped(is_dropped, readers)


def _begin(
    address: DatabaseAddress, schema: Schema, matched: MatchedTables, spool: SnapshotSpool
) -> LogPosition:
    """The first position of a new run: the snapshot's first row, or the slot's without a snapshot.

    Raises SourceError; NotYetError if it is worth trying again.
    """
    required = _required_columns(schema, matched)
    with address.sql() as conn:
        _check_level(conn)
        _drop_abandoned(conn, address)
        with conn.cursor() as cursor:
            state = slot_state(cursor, address.slot)
        if state is not None and not _is_incomplete(state, spool):
            position = _existing_start(address, state, spool)
            extend_publication(conn, address, required)
            return position
        if state is not None:
            drop_slot(address)
        try:
            ensure_publication(conn, address, required)
            # Before the slot: none of its changes may be older than the snapshot's rows.
            time = _server_time(conn)
            spool.begin()
            return _create(address, schema, matched, spool, time)
        except BaseException:
            with suppress(SkwsError), address.sql() as cleanup_conn:
                drop_publication(cleanup_conn, address)
            raise


def _required_columns(schema: Schema, matched: MatchedTables) -> RequiredColumns:
    return {
        table: frozenset(attribute.column for attribute in schema.relations[position].attributes)
        & {column.name for column in table.columns}
        for position, table in matched.streams.items()
    }


def _drop_abandoned(conn: connection, address: DatabaseAddress) -> None:
    """Drop the slots of killed runs on this machine, which would fill the server's disk."""
    with conn.cursor() as cursor:
        cursor.execute(
            "SELECT slot_name::text FROM pg_replication_slots"
            " WHERE database = current_database() AND NOT active AND starts_with(slot_name, %s)",
            (slots_of_this_host(),),
        )
        slots = [name for (name,) in cursor.fetchall() if is_abandoned(name)]
    for name in slots:
        with suppress(SourceError):  # another run is also dropping it
            PostgresSource(replace(address, slot=name)).drop_slot()


def _create(
    address: DatabaseAddress, schema: Schema, matched: MatchedTables, spool: SnapshotSpool, time: int
) -> LogPosition:
    try:
        with closing(address.connect_for_replication()) as conn:
            lsn, snapshot = create_slot(conn, address)
            try:
                if not address.snapshot:
                    spool.remove()
                    return LogPosition(lsn)
                _copy(address, schema, matched, spool, snapshot)
                spool.sort(schema, time)
                spool.finish(lsn, time)
            except BaseException:
                # A forgotten slot would fill the server's disk.
                with suppress(SkwsError):
                    drop_slot(address)
                    spool.remove()
                raise
    except psycopg2.Error as error:
        raise address.failure(error) from None
    return LogPosition(lsn, time=time, spool=0)


def _copy(
    address: DatabaseAddress, schema: Schema, matched: MatchedTables, spool: SnapshotSpool, snapshot: str
) -> None:
    tables = (*matched.static.values(), *matched.streams.values())
    with address.sql() as conn:
        _use_snapshot(conn, snapshot)
        lock_tables(conn, tables, address.shown)
        check_files(conn, tables, address.shown)
        copy_tables(conn, matched.static, schema, spool.tables)
        copy_tables(conn, matched.streams, schema, spool.rows)


def _copy_static(
    address: DatabaseAddress, schema: Schema, matched: MatchedTables, spool: SnapshotSpool
) -> None:
    """Copy the present static tables, for a run that resumes without its snapshot."""
    with address.sql() as conn:
        conn.set_session(isolation_level=ISOLATION_LEVEL_REPEATABLE_READ, readonly=True)
        # Before the first row is read, and so before the transaction's snapshot.
        lock_tables(conn, matched.static.values(), address.shown)
        copy_tables(conn, matched.static, schema, spool.tables)


def _is_incomplete(state: SlotState, spool: SnapshotSpool) -> bool:
    """True if an earlier run was killed before the slot and its snapshot were complete."""
    return state.active_pid is None and spool.marker.exists() and spool.point() is None


def _existing_start(address: DatabaseAddress, state: SlotState, spool: SnapshotSpool) -> LogPosition:
    """The start of an existing slot, which needs its snapshot, and nothing confirmed after it."""
    if state.active_pid is not None:
        raise SourceError(
            f"{address.shown}: the slot {address.slot!r} is in use by the server's process"
            f" {state.active_pid}, maybe another skws (choose another with ?slot=)"
        )
    if not address.snapshot:
        return LogPosition(state.confirmed)
    point = spool.point()
    if point is None or state.confirmed != point[0]:
        raise SourceError(
            f"{address.shown}: the slot {address.slot!r} exists already, left by an earlier run: resume from"
            " that run's offset, or drop it first (skws watch --drop-slot), or choose another with ?slot=,"
            " or continue at its position, without the present rows, with ?snapshot=no"
        )
    spool.secure()
    return LogPosition(point[0], time=point[1], spool=0)


def _check_level(conn: connection) -> None:
    with conn.cursor() as cursor:
        cursor.execute("SHOW wal_level")
        (level,) = cursor.fetchone() or ("",)
    if level != "logical":
        raise SourceError(
            f"the server's wal_level is {level!r}, but following changes needs 'logical'"
            " (ALTER SYSTEM SET wal_level = 'logical', then restart the server)"
        )


def _server_time(conn: connection) -> int:
    with conn.cursor() as cursor:
        cursor.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
        (micros,) = cursor.fetchone() or (0,)
    return int(micros)


def _use_snapshot(conn: connection, snapshot: str) -> None:
    conn.set_session(isolation_level=ISOLATION_LEVEL_REPEATABLE_READ, readonly=True)
    with conn.cursor() as cursor:
        cursor.execute("SET TRANSACTION SNAPSHOT %s", (snapshot,))
