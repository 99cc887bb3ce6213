"""Positions in the log of PostgreSQL, the slot that keeps the log until it is read, and its publication.

An unread slot fills the server's disk. So it has a name, its lag is shown, and it can be dropped. Its stream
is reopened when it breaks.

Each slot has a publication of the same name, which is dropped with the slot. Two kinds of publications may
serve several slots: one that the address names, and the one called ``skws`` that earlier versions shared.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import psycopg2
from psycopg2.errors import InsufficientPrivilege
from psycopg2.extensions import connection, cursor
from psycopg2.extras import REPLICATION_LOGICAL, LogicalReplicationConnection
from psycopg2.sql import SQL, Identifier, Literal

from skws.sources.feed import Clock, Offset, parse_offset, readable
from skws.sources.postgres.catalog import CatalogTable
from skws.sources.postgres.database_address import DatabaseAddress
from skws.sources.postgres.log_history import LogHistory, check_server, lsn_of, lsn_text
from skws.sources.postgres.pgoutput import ReplicationMessages
from skws.sources.postgres.publication import Publication, RequiredColumns
from skws.sources.postgres.spool import client_of, publishing
from skws.sources.retry import Retry
from skws_schema.errors import NotYetError, SourceError


@dataclass(frozen=True, slots=True)
class LogPosition:
    """All transactions that end before ``lsn`` are read, and ``change`` changes of the next one.

    ``time``: the latest event time so far; earlier commit times are raised to it. ``spool``: the bytes read
    of the snapshot, None after it. ``server``: the server of the log, which every offset names.
    """

    lsn: int
    change: int = 0
    time: int = 0
    spool: int | None = None
    server: LogHistory | None = None

    def offset(self) -> Offset:
        offset: Offset = {"lsn": lsn_text(self.lsn), "change": self.change, "time": self.time}
        if self.spool is not None:
            offset["snapshot"] = self.spool
        if self.server is not None:
            offset["server"] = [*self.server]
        return offset

    @classmethod
    def of(cls, offset: Offset) -> LogPosition:
        """The position in an offset. Raises SourceError for another source's, or one without a server."""
        parsed = parse_offset(offset, "a PostgreSQL source", lambda: cls._parse(offset))
        if parsed.server is None:
            raise SourceError(
                f"the saved offset {offset!r} does not name the server of its log (expected server:"
                " [system identifier, timeline]); start a new run"
            )
        return parsed

    @classmethod
    def _parse(cls, offset: Offset) -> LogPosition:
        spool, server = offset.get("snapshot"), offset.get("server")
        return cls(
            lsn_of(offset["lsn"]),
            int(offset["change"]),
            int(offset["time"]),
            None if spool is None else int(spool),
            None if server is None else LogHistory(str(server[0]), int(server[1])),
        )


_LOOK_SECONDS: Final = 0.2


def run_with_timeout(conn: connection, statement: Callable[[], None], seconds: float) -> bool:
    """Run ``statement`` on a connection; False if it was cancelled after ``seconds``.

    It runs in a thread, since libpq blocks signals while it waits. Raises what the
    statement raises.
    """
    errors: list[BaseException] = []

    def run() -> None:
        try:
            statement()
        except BaseException as error:  # raised again in the calling thread
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    timed_out = False
    try:
        seconds_left = seconds
        while thread.is_alive() and seconds_left > 0:
            thread.join(min(_LOOK_SECONDS, seconds_left))
            seconds_left -= _LOOK_SECONDS
        timed_out = thread.is_alive()
    finally:
        if thread.is_alive():
            with suppress(psycopg2.Error):
                conn.cancel()
            thread.join()
    if errors and not timed_out:
        raise errors[0]
    return not (timed_out and errors)


PLUGIN: Final = "pgoutput"
_RELEASE_SECONDS: Final = 0.05
_RELEASE_TRIES: Final = 20
# Without parameters, since a replication connection accepts only such statements.
_STATE: Final = """
    SELECT plugin, database = current_database(), active_pid, confirmed_flush_lsn::text, wal_status,
           pg_current_wal_lsn()::text, restart_lsn::text
    FROM pg_replication_slots WHERE slot_name = '{}'"""
_OLDEST: Final = """
    SELECT pid, datname, usename, application_name, state, query FROM pg_stat_activity
    WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid() ORDER BY xact_start LIMIT 1"""


@dataclass(frozen=True, slots=True)
class SlotState:
    """The server's state of a slot; positions in bytes.

    ``confirmed``: the log before it can no longer be read. ``kept_from``: the start of the log that it
    keeps. ``current``: the end of the log.
    """

    active_pid: int | None
    confirmed: int
    current: int
    kept_from: int
    lost: bool

    @property
    def kept_bytes(self) -> int:
        return self.current - self.kept_from


def slot_state(statement: cursor, name: str) -> SlotState | None:
    """The state of a slot; None if it does not exist. Raises SourceError if skws cannot use it."""
    statement.execute(_STATE.format(name))
    row = statement.fetchone()
    if row is None:
        return None
    plugin, is_own, pid, confirmed, status, current, kept_bytes = row
    if plugin != PLUGIN or not is_own:
        raise SourceError(
            f"the replication slot {name!r} exists already, for"
            f" {'another database' if plugin == PLUGIN else plugin or 'a standby'} (choose one with ?slot=)"
        )
    end = lsn_of(current)
    return SlotState(
        pid,
        lsn_of(confirmed) if confirmed else end,
        end,
        lsn_of(kept_bytes) if kept_bytes else end,
        status == "lost",
    )


def create_slot(conn: LogicalReplicationConnection, address: DatabaseAddress) -> tuple[int, str]:
    """Create a slot; returns its first position, and the name of the snapshot at that position.

    The snapshot exists until ``conn`` runs another command or is closed. Raises psycopg2.Error,
    NotYetError if writing transactions do not end in time.
    """
    with conn.cursor() as statement:
        row = run_with_timeout(
            conn,
            lambda: statement.create_replication_slot(address.slot, output_plugin=PLUGIN),
            address.patience,
        )
        if not row:
            raise NotYetError(
                f"{address.shown}: the replication slot could not be created: PostgreSQL waits for every"
                f" transaction that writes, and after {address.patience:g} seconds one is still"
                f" open{_writers(address)}"
            )
        _, lsn, snapshot, _ = _row(statement)
    return lsn_of(lsn), snapshot


def _writers(address: DatabaseAddress) -> str:
    """The transaction that has been writing the longest, for a message."""
    with address.sql() as conn, conn.cursor() as statement:
        statement.execute(_OLDEST)
        row = statement.fetchone()
    return f" (the server's process {row[0]}: {client_of(*row[1:])})" if row else ""


_READER: Final = "SELECT application_name FROM pg_stat_activity WHERE pid = %s"


def drop_slot(address: DatabaseAddress) -> bool:
    """Drop the slot of an address; False if there is none. Raises SourceError, also while it is read."""
    with address.sql() as conn, conn, conn.cursor() as statement:
        state = _state_after_release(statement, address.slot)
        if state is None:
            return False
        if state.active_pid is not None:
            statement.execute(_READER, (state.active_pid,))
            reader = statement.fetchone()
            raise SourceError(
                f"the slot {address.slot!r} is in use by {(reader and reader[0]) or 'an unnamed client'}"
                f" (the server's process {state.active_pid}); stop that first"
            )
        statement.execute("SELECT pg_drop_replication_slot(%s)", (address.slot,))
    return True


def _state_after_release(statement: cursor, name: str) -> SlotState | None:
    """The state of a slot, after waiting for the server to notice that its reader has ended."""
    for _ in range(_RELEASE_TRIES):
        state = slot_state(statement, name)
        if state is None or state.active_pid is None:
            return state
        time.sleep(_RELEASE_SECONDS)
    return slot_state(statement, name)


def _row(statement: cursor) -> tuple[Any, ...]:
    row = statement.fetchone()
    if row is None:
        raise SourceError("PostgreSQL created no replication slot")
    return row


# Consecutive requests for a reply at which a server counts as stopping.
_INSISTING: Final = 5
_IN_USE: Final = "55006"
_RELEASE_WAIT: Final = 50_000  # microseconds


class SlotStream:
    """The stream of a slot, reopened when it breaks; no call waits for an unreachable server.

    ``check`` is called after opening. Methods raise SourceError if a retry cannot help.
    """

    def __init__(
        self, address: DatabaseAddress, clock: Clock, check: Callable[[], None] = lambda: None
    ) -> None:
        self._retry = Retry(address.shown, clock)
        self._address = address
        self._clock = clock
        self._check = check
        self.server: LogHistory | None = None
        """The server to which the stream was last open."""
        self._messages: ReplicationMessages | None = None
        self._confirmed = 0
        self._reply_requests = 0

    @property
    def wal_end(self) -> int:
        """The position before which all commits have been read, once there are no more messages."""
        return 0 if self._messages is None else self._messages.wal_end

    def open(self, start: LogPosition) -> bool:
        """Open the stream at ``start``, unless it is too early for a retry; True if it is open."""
        self._retry.attempt(lambda: self._open(start))
        return self._messages is not None

    def read(self, seconds: float) -> bytes | None:
        """The next message; None if there is none within ``seconds``.

        Raises psycopg2.Error when the stream breaks, or is not open.
        """
        if self._messages is None:
            raise psycopg2.InterfaceError("not connected")
        reply_requested = self._messages.reply_count
        payload = self._messages.read()
        if payload is None and seconds > 0:
            readable(self._messages, seconds)
            payload = self._messages.read()
        if payload is None:
            self._check_stopping(reply_requested=self._messages.reply_count > reply_requested)
            return None
        self._reply_requests = 0
        return payload

    def request_status(self) -> None:
        """Have the server send its position now."""
        if self._messages is not None:
            self._messages.report(self._confirmed, reply=True)

    def confirm(self, lsn: int) -> None:
        """Let the server forget the log before ``lsn``, now or when the stream is reopened."""
        self._confirmed = max(self._confirmed, lsn)
        try:
            if self._messages is not None:
                self._messages.report(self._confirmed)
        except psycopg2.Error as error:
            self.record_failure(error)

    def record_failure(self, error: psycopg2.Error) -> None:
        """Record that the stream broke. Raises SourceError if it cannot be reopened, or not for too long."""
        self.close()
        failure = self._address.failure(error)
        if not isinstance(failure, NotYetError):
            raise failure
        self._retry.record_failure(failure)

    def wait(self) -> None:
        """Sleep until it is time to try again."""
        self._retry.wait()

    def take_notices(self) -> tuple[str, ...]:
        """Lines for the user since the last call."""
        return self._retry.take_notices()

    def close(self) -> None:
        if self._messages is not None:
            with suppress(psycopg2.Error):
                self._messages.close()
            self._messages = None

    def _open(self, start: LogPosition) -> None:
        try:
            self._messages, self.server = self._open_after_release(start)
            self._check()
            self._reply_requests = 0
            if self._confirmed:
                self._messages.report(self._confirmed)
        except psycopg2.Error as error:
            self.close()
            raise self._address.failure(error) from None
        except SourceError:
            self.close()
            raise

    def _open_after_release(self, start: LogPosition) -> tuple[ReplicationMessages, LogHistory]:
        """A stream with its server, after waiting for the server to notice that the last one is closed."""
        for _ in range(_RELEASE_TRIES):
            try:
                return _open_stream(self._address, start)
            except psycopg2.Error as error:
                if error.pgcode != _IN_USE:
                    raise
            self._clock.sleep(_RELEASE_WAIT)
        return _open_stream(self._address, start)

    def _check_stopping(self, *, reply_requested: bool) -> None:
        """Disconnect if the server is stopping, as it would wait for confirmation of everything it sent.

        A stopping server requests replies immediately after each one; a running one every half minute.
        """
        self._reply_requests = self._reply_requests + 1 if reply_requested else 0
        if self._reply_requests >= _INSISTING:
            raise psycopg2.OperationalError("the server is about to stop")


def server_of(address: DatabaseAddress) -> LogHistory:
    """The server at an address. Raises SourceError."""
    try:
        with closing(address.connect_for_replication()) as conn, conn.cursor() as statement:
            return LogHistory.of(statement)
    except psycopg2.Error as error:
        raise address.failure(error) from None


def _open_stream(address: DatabaseAddress, start: LogPosition) -> tuple[ReplicationMessages, LogHistory]:
    """A slot's stream from a position on, and its server. Raises psycopg2.Error.

    Raises SourceError if the server refuses, is another one, or its slot no longer has the log from the
    position on.
    """
    conn = address.connect_for_replication()
    try:
        cursor = conn.cursor()
        state, server = slot_state(cursor, address.slot), LogHistory.of(cursor)
        if start.server is not None:
            end = start.lsn if state is None else state.current
            check_server(cursor, server, start.server, start.lsn, end, address.shown)
        _check(state, address, start.lsn)
        publication = publication_of(cursor, address, resuming=True)
        cursor.start_replication(
            slot_name=address.slot,
            slot_type=REPLICATION_LOGICAL,
            start_lsn=start.lsn,
            options={"proto_version": "1", "publication_names": f'"{publication}"'},
            decode=False,
        )
    except BaseException:
        with suppress(psycopg2.Error):
            conn.close()
        raise
    return ReplicationMessages(cursor), server


def _check(state: SlotState | None, address: DatabaseAddress, lsn: int) -> None:
    if state is None:
        raise SourceError(
            f"{address.shown}: the replication slot {address.slot!r} is gone, and so are the changes since"
            f" {lsn_text(lsn)}; start a new run"
        )
    if state.lost or lsn < state.confirmed:
        reason = "the server has dropped its log" if state.lost else f"it is at {lsn_text(state.confirmed)}"
        raise SourceError(
            f"{address.shown}: the slot {address.slot!r} no longer has the changes since {lsn_text(lsn)}:"
            f" {reason}; start a new run"
        )


_SHARED: Final = "skws"
# The comments on publications that skws has made.
_OURS: Final = "made by skws"
_OWN: Final = "made by skws for the slot of this name"
# Without parameters, since a replication connection accepts only such statements.
_COMMENTS: Final = """
    SELECT pubname::text, obj_description(oid, 'pg_publication') FROM pg_publication
    WHERE pubname IN ('{}', '{}')"""
# Slots that may read a publication: the slot of its name, or all slots without a publication of their own.
_READERS: Final = """
    SELECT slot_name::text FROM pg_replication_slots
    WHERE plugin = 'pgoutput' AND database = current_database() AND NOT temporary
      AND CASE WHEN %s = %s THEN slot_name = %s
          ELSE NOT EXISTS (SELECT FROM pg_publication
                           WHERE pubname = slot_name AND obj_description(oid, 'pg_publication') = %s) END
    ORDER BY slot_name"""


def publication_of(statement: cursor, address: DatabaseAddress, *, resuming: bool) -> str:
    """The name of a slot's publication; the publication is new unless ``resuming``."""
    if address.publication is not None:
        return address.publication
    comments = _comments(statement, address.slot, _SHARED)
    shared = comments.get(_SHARED, _OWN)
    if comments.get(address.slot) == _OWN or shared == _OWN:
        return address.slot
    return _SHARED if resuming or shared != _OURS else address.slot


def ensure_publication(conn: connection, address: DatabaseAddress, required: RequiredColumns) -> None:
    """Make a publication of at least the ``required`` tables for a new slot.

    Raises SourceError if one of that name cannot be used, NotYetError, psycopg2.Error.
    """
    tables = list(required)
    with publishing(conn, tables, address.shown) as statement:
        name = publication_of(statement, address, resuming=False)
        comments = _comments(statement, name)
        if name not in comments:
            _create(statement, name, tables, _OWN if name == address.slot else _OURS)
        elif comments[name] == _OWN and name != address.slot:
            raise SourceError(
                f"the publication {name!r} belongs to the slot {name!r} and is dropped with it:"
                " leave ?publication= out, or name another"
            )
        elif comments[name] in {_OURS, _OWN}:
            _extend(statement, name, required)
        elif address.publication is None and name != _SHARED:
            raise SourceError(
                f"there is a publication {name!r} that skws did not make: use it with"
                f" ?publication={name}, or choose another slot with ?slot="
            )
        else:
            Publication.read(statement, name).check(required)


def extend_publication(conn: connection, address: DatabaseAddress, required: RequiredColumns) -> None:
    """Add tables to the publication of a slot.

    Raises SourceError if skws did not make it and it lacks some.
    """
    with publishing(conn, list(required), address.shown) as statement:
        name = publication_of(statement, address, resuming=True)
        if _comments(statement, name).get(name) in {_OURS, _OWN}:
            _extend(statement, name, required)
        else:
            Publication.read(statement, name).check(required)


def check_publication(address: DatabaseAddress, required: RequiredColumns) -> None:
    """Raises SourceError if the publication of a slot lacks changes that a resuming run needs."""
    with address.sql() as conn, conn.cursor() as statement:
        Publication.read(statement, publication_of(statement, address, resuming=True)).check(required)


def drop_publication(conn: connection, address: DatabaseAddress) -> tuple[str, ...]:
    """Drop the publication of a dropped slot, if skws has made it and no other slot may need it.

    Returns the slots that may need it.
    """
    with conn, conn.cursor() as statement:
        name = publication_of(statement, address, resuming=True)
        comment = _comments(statement, name).get(name)
        if comment not in {_OURS, _OWN}:
            return ()
        statement.execute(_READERS, (comment, _OWN, name, _OWN))
        readers = tuple(slot for (slot,) in statement.fetchall())
        if not readers:
            statement.execute(SQL("DROP PUBLICATION {}").format(Identifier(name)))
    return readers


def _comments(statement: cursor, *names: str) -> dict[str, str | None]:
    """The comments on those publications that exist."""
    statement.execute(_COMMENTS.format(names[0], names[-1]))
    return dict(statement.fetchall())


def _create(statement: cursor, name: str, tables: Sequence[CatalogTable], comment: str) -> None:
    # With inheriting tables, the server would refuse updates of tables that are not read here.
    names = SQL(", ").join(t.only for t in tables)
    create = SQL("CREATE PUBLICATION {} FOR TABLE {} WITH (publish_via_partition_root = true)")
    with _explain_rights(statement, name, tables):
        statement.execute(create.format(Identifier(name), names))
    statement.execute(SQL("COMMENT ON PUBLICATION {} IS {}").format(Identifier(name), Literal(comment)))


@contextmanager
def _explain_rights(statement: cursor, name: str, tables: Sequence[CatalogTable]) -> Iterator[None]:
    """Raises SourceError that names the missing right, and how to get it."""
    try:
        yield
    except InsufficientPrivilege as error:
        session = statement.connection.info
        names = ", ".join(table.only_text for table in tables)
        raise SourceError(
            f"the role {session.user!r} may not publish {names}: {str(error).splitlines()[0]}; it needs"
            f" GRANT CREATE ON DATABASE {session.dbname} TO {session.user}, and to own the tables; or their"
            f" owner runs CREATE PUBLICATION {name} FOR TABLE {names} WITH"
            f" (publish_via_partition_root = true), and ?publication={name} names it"
        ) from None


def _extend(statement: cursor, name: str, required: RequiredColumns) -> None:
    """Add missing tables to a publication of skws, which others may have altered. Raises SourceError."""
    for table in Publication.read(statement, name).missing_tables(list(required)):
        add = SQL("ALTER PUBLICATION {} ADD TABLE {}")
        with _explain_rights(statement, name, [table]):
            statement.execute(add.format(Identifier(name), table.only))
    Publication.read(statement, name).check(required)
