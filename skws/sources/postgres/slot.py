"""The replication slot: what makes the server keep its log until skws has read it.

A slot that nobody reads fills the server's disk. So it has a name, its lag is
told, and it can be dropped.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

from psycopg2.extensions import cursor
from psycopg2.extras import LogicalReplicationConnection

from schema.errors import NotYetError, SourceError
from skws.sources.postgres.address import Address
from skws.sources.postgres.locking import client_of
from skws.sources.postgres.lsn import lsn_of
from skws.sources.postgres.patience import patiently

PLUGIN: Final = "pgoutput"
SLOT_SECONDS: Final = 60.0
_RELEASE_SECONDS: Final = 0.05
_RELEASE_TRIES: Final = 20
# Written without parameters: a replication connection takes only such statements.
_STATE: Final = """
    SELECT plugin, database = current_database(), active_pid, confirmed_flush_lsn::text, wal_status,
           pg_current_wal_lsn()::text, restart_lsn::text
    FROM pg_replication_slots WHERE slot_name = '{}'"""
_OLDEST: Final = """
    SELECT pid, datname, usename, application_name, state, query FROM pg_stat_activity
    WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid() ORDER BY xact_start LIMIT 1"""


@dataclass(frozen=True, slots=True)
class SlotState:
    """A slot as the server sees it; positions in bytes.

    ``confirmed``: what lies before it is gone for us. ``kept``: the server
    keeps its log from there on. ``current``: the end of the log.
    """

    active_pid: int | None
    confirmed: int
    current: int
    kept: int
    lost: bool

    @property
    def kept_bytes(self) -> int:
        return self.current - self.kept


def slot_state(statement: cursor, name: str) -> SlotState | None:
    """The state of a slot; None if there is none. Raises SourceError if it is not one of ours."""
    statement.execute(_STATE.format(name))
    found = statement.fetchone()
    if found is None:
        return None
    plugin, own, pid, confirmed, status, current, kept = found
    if plugin != PLUGIN or not own:
        raise SourceError(
            f"the replication slot {name!r} is there already, for"
            f" {'another database' if plugin == PLUGIN else plugin or 'a standby'} (choose one with ?slot=)"
        )
    end = lsn_of(current)
    return SlotState(
        pid,
        lsn_of(confirmed) if confirmed else end,
        end,
        lsn_of(kept) if kept else end,
        status == "lost",
    )


def create_slot(replicating: LogicalReplicationConnection, address: Address) -> tuple[int, str]:
    """Makes a slot; gives its first position and the name of the snapshot of what is there at that point.

    The snapshot lives until ``replicating`` runs another command or is
    closed. Raises psycopg2.Error, NotYetError if transactions that are
    writing do not end in ``SLOT_SECONDS``.
    """
    with replicating.cursor() as statement:
        made = patiently(
            replicating,
            lambda: statement.create_replication_slot(address.slot, output_plugin=PLUGIN),
            SLOT_SECONDS,
        )
        if not made:
            raise NotYetError(
                f"{address.shown}: the replication slot could not be made: it waits for every transaction"
                f" that writes to end, and one has not in {SLOT_SECONDS:g} seconds{_writers(address)}"
            )
        _, point, snapshot, _ = _row(statement)
    return lsn_of(point), snapshot


def _writers(address: Address) -> str:
    """The transaction that has been writing for longest."""
    with address.sql() as connected, connected.cursor() as statement:
        statement.execute(_OLDEST)
        found = statement.fetchone()
    return f" (the server's process {found[0]}: {client_of(*found[1:])})" if found else ""


def drop_slot(address: Address) -> bool:
    """Drops the slot of an address; False if there was none. Raises SourceError, also while it is read."""
    with address.sql() as connected, connected, connected.cursor() as statement:
        state = _let_go(statement, address.slot)
        if state is None:
            return False
        if state.active_pid is not None:
            raise SourceError(
                f"the slot {address.slot!r} is being read by the server's process {state.active_pid};"
                " stop that first"
            )
        statement.execute("SELECT pg_drop_replication_slot(%s)", (address.slot,))
    return True


def _let_go(statement: cursor, name: str) -> SlotState | None:
    """The state of a slot, once the server has noticed that a reader is gone."""
    for _ in range(_RELEASE_TRIES):
        state = slot_state(statement, name)
        if state is None or state.active_pid is None:
            return state
        time.sleep(_RELEASE_SECONDS)
    return slot_state(statement, name)


def _row(statement: cursor) -> tuple[Any, ...]:
    found = statement.fetchone()
    if found is None:
        raise SourceError("PostgreSQL made no replication slot")
    return found
