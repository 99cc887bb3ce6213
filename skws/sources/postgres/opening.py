"""Starting a new run on a database: the publication, the slot and the snapshot, which belong together."""

from __future__ import annotations

from contextlib import closing, suppress

import psycopg2
from psycopg2.extensions import ISOLATION_LEVEL_REPEATABLE_READ, connection

from skws.sources.postgres.address import Address
from skws.sources.postgres.catalog import MatchedTables
from skws.sources.postgres.locking import check_files, lock_tables
from skws.sources.postgres.publication import drop_publication, ensure_publication
from skws.sources.postgres.slot import Position, SlotState, create_slot, drop_slot, slot_state
from skws.sources.postgres.spool import Spool, copy_tables
from skws_schema.errors import SkwsError, SourceError
from skws_schema.model import Schema


def begin(address: Address, schema: Schema, matched: MatchedTables, spool: Spool) -> Position:
    """The first position of a new run: the snapshot's first row, or the slot's without a snapshot.

    Raises SourceError; NotYetError if it is worth trying again.
    """
    with address.sql() as connected:
        _check_level(connected)
        with connected.cursor() as cursor:
            state = slot_state(cursor, address.slot)
        if state is not None and not _half_made(state, spool):
            return _existing(address, state, spool)
        if state is not None:
            drop_slot(address)
        try:
            ensure_publication(connected, address, list(matched.streams.values()))
            # Before the slot: none of its changes may be older than the snapshot's rows.
            time = _time(connected)
            spool.begin()
            return _create(address, schema, matched, spool, time)
        except BaseException:
            with suppress(SkwsError), address.sql() as left:
                drop_publication(left, address)
            raise


def _create(address: Address, schema: Schema, matched: MatchedTables, spool: Spool, time: int) -> Position:
    try:
        with closing(address.replicating()) as replicating:
            lsn, snapshot = create_slot(replicating, address)
            try:
                if not address.snapshot:
                    spool.remove()
                    return Position(lsn)
                _copy(address, schema, matched, spool, snapshot, time)
                spool.sort(schema)
                spool.finish(lsn, time)
            except BaseException:
                # A forgotten slot would fill the server's disk.
                with suppress(SkwsError):
                    drop_slot(address)
                    spool.remove()
                raise
    except psycopg2.Error as error:
        raise address.failure(error) from None
    return Position(lsn, time=time, spool=0)


def _copy(
    address: Address, schema: Schema, matched: MatchedTables, spool: Spool, snapshot: str, time: int
) -> None:
    tables = (*matched.static.values(), *matched.streams.values())
    with address.sql() as connected:
        _use_snapshot(connected, snapshot)
        lock_tables(connected, tables, address.shown)
        check_files(connected, tables, address.shown)
        copy_tables(connected, matched.static, schema, time, spool.tables)
        copy_tables(connected, matched.streams, schema, time, spool.rows)


def static_rows(address: Address, schema: Schema, matched: MatchedTables, spool: Spool) -> None:
    """Copy the present static tables, for a run that resumes without its snapshot."""
    with address.sql() as connected:
        connected.set_session(isolation_level=ISOLATION_LEVEL_REPEATABLE_READ, readonly=True)
        # Before the first row is read, and so before the transaction's snapshot.
        lock_tables(connected, matched.static.values(), address.shown)
        copy_tables(connected, matched.static, schema, 0, spool.tables)


def _half_made(state: SlotState, spool: Spool) -> bool:
    """Whether an earlier run was killed before the slot and its snapshot were complete."""
    return state.active_pid is None and spool.begun.exists() and spool.point() is None


def _existing(address: Address, state: SlotState, spool: Spool) -> Position:
    """Resume at an existing slot: its snapshot must be there, and nothing after it confirmed."""
    if state.active_pid is not None:
        raise SourceError(
            f"{address.shown}: the slot {address.slot!r} is being read by the server's process"
            f" {state.active_pid}, maybe another skws (choose another with ?slot=)"
        )
    if not address.snapshot:
        return Position(state.confirmed)
    point = spool.point()
    if point is None or state.confirmed != point[0]:
        raise SourceError(
            f"{address.shown}: the slot {address.slot!r} is there already, left by an earlier run: go on from"
            " that run's offset, or have it dropped first (--drop-slot), or choose another with ?slot=, or go"
            " on where it stands, without the rows that are there, with ?snapshot=no"
        )
    return Position(point[0], time=point[1], spool=0)


def _check_level(connected: connection) -> None:
    with connected.cursor() as cursor:
        cursor.execute("SHOW wal_level")
        (level,) = cursor.fetchone() or ("",)
    if level != "logical":
        raise SourceError(
            f"the server's wal_level is {level!r}, and following changes needs 'logical'"
            " (ALTER SYSTEM SET wal_level = 'logical', and restart it)"
        )


def _time(connected: connection) -> int:
    with connected.cursor() as cursor:
        cursor.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
        (micros,) = cursor.fetchone() or (0,)
    return int(micros)


def _use_snapshot(connected: connection, snapshot: str) -> None:
    connected.set_session(isolation_level=ISOLATION_LEVEL_REPEATABLE_READ, readonly=True)
    with connected.cursor() as cursor:
        cursor.execute("SET TRANSACTION SNAPSHOT %s", (snapshot,))
