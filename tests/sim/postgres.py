"""A PostgreSQL server as psycopg2 sees it: two tables, their log, slots, publications, a snapshot.

It recognizes the statements of ``skws/sources/postgres`` by their first words, and answers no others.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

import psycopg2
from psycopg2 import sql
from psycopg2.errors import LockNotAvailable
from psycopg2.extras import LogicalReplicationConnection

from skws.data.batch import Record
from skws.jobs.control import RunControl
from skws.sources.feed import Source
from skws.sources.postgres import slot as slots
from skws.sources.postgres import spool
from skws.sources.postgres.change_feed import PostgresSource
from skws.sources.postgres.database_address import DatabaseAddress
from skws.sources.postgres.pgoutput import EPOCH_MICROS
from skws_schema.model import Row
from tests.sim.files import Upstream
from tests.sim.plan import Event
from tests.sim.shop import STAMPED, TABLE
from tests.sim.world import World

URI: Final = "postgresql://sim@server/shop"
_OIDS: Final = {"customer": 16_400, "order": 16_401, "refund": 16_402, TABLE: 16_403}
_COLUMNS: Final = {
    "customer": (("cid", "int8"), ("name", "text")),
    "order": (("cid", "int8"), ("item", "text"), ("at", "timestamptz")),
    "refund": (("cid", "int8"), ("item", "text")),
    TABLE: (("cid", "int8"), ("level", "text")),
}
_IDENTITY: Final = {"customer": "d", "order": "f", "refund": "f", TABLE: "f"}
_TYPES: Final = {"int8": 20, "text": 25, "timestamptz": 1184}
_FIRST_LSN: Final = 0x1000


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a row; ``old``: None for an insertion, ``new``: None for a deletion."""

    table: str
    old: Row | None
    new: Row | None


@dataclass(frozen=True, slots=True)
class Truncation:
    """Deletes all rows of some tables."""

    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Transaction:
    """``lsn``: of its commit; ``end``: the position after it."""

    lsn: int
    end: int
    time: int
    changes: tuple[Change | Truncation, ...]


@dataclass(slots=True)
class Slot:
    confirmed: int
    reader: Any = None

    def __deepcopy__(self, _: object) -> Slot:
        return Slot(self.confirmed, self.reader)


@dataclass(slots=True)
class Published:
    tables: list[str]
    comment: str | None = None


@dataclass(slots=True)
class Server:
    """``files``: those of tables, which a rewrite replaces."""

    rows: dict[str, list[Row]] = field(default_factory=lambda: {name: [] for name in _OIDS})
    files: dict[str, int] = field(default_factory=lambda: dict(_OIDS))
    log: list[Transaction] = field(default_factory=list)
    slots: dict[str, Slot] = field(default_factory=dict)
    publications: dict[str, Published] = field(default_factory=dict)
    lsn: int = _FIRST_LSN

    def snapshot(self) -> tuple[dict[str, list[Row]], dict[str, int]]:
        return deepcopy(self.rows), dict(self.files)


class Postgres(Upstream):
    """The source. ``truth`` begins with the rows of the relevant snapshot, once it is taken."""

    address = URI
    schema = STAMPED
    may_change = False

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.server = Server()
        self.truth = {"log": []}
        self._snapshots: dict[str, tuple[int, tuple[dict[str, list[Row]], dict[str, int]]]] = {}
        self._rewrite = ""  # the table that is about to be rewritten during a snapshot
        self.copied: tuple[int, int] | None = None
        for cid, name in ((1, "ada"), (2, "eve")):
            self.server.rows["customer"].append((cid, name))
        for item, days in (("lamp", 3), ("lamp", 1), ("lamp old", 2)):
            self.server.rows["order"].append((days, item, self.time - days * 1_000_000))

    def load(self, rows: list[dict[str, Any]]) -> None:
        self.server.rows[TABLE] = [tuple(row["row"].values()) for row in rows]

    def source(self, control: RunControl) -> Source:
        return PostgresSource(DatabaseAddress.of(URI), Path("/sim/checkpoint/source"), control.pace)

    @contextmanager
    def installed(self) -> Iterator[None]:
        with ExitStack() as stack:
            for owner, name, replacement in (
                (psycopg2, "connect", self._connect),
                (slots, "ReplicationMessages", lambda stream: stream),
                (slots, "run_with_timeout", lambda _connected, statement, _seconds: (statement(), True)[1]),
                (slots, "readable", lambda _cursor, seconds: self.world.pass_time(int(seconds * 1_000_000))),
                (slots, "time", SimpleNamespace(sleep=lambda s: self.world.pass_time(int(s * 1_000_000)))),
                (sql.Composed, "as_string", lambda composed, _context: text_of(composed)),
            ):
                stack.enter_context(patch.object(owner, name, replacement))
            yield

    def save(self) -> Callable[[], None]:
        saved = (
            deepcopy(self.server),
            deepcopy(self._snapshots),
            list(self.truth["log"]),
            self.copied,
            self._rewrite,
        )

        def restore() -> None:
            self.server, self._snapshots, self.truth["log"][:], self.copied, self._rewrite = saved

        return restore

    def part(self, relation: str, row: Row) -> str:
        return "log"

    def publish(self, event: Event) -> None:
        """Commit a transaction with one change; an update if the key of a customer exists."""
        if event.bad or event.relation == "refund":
            return
        self.time += max(0, event.micros)
        change = self._change_of(event.relation, event.row, delete=event.delete, ago=max(0, -event.micros))
        if change is not None:
            self.commit((change,))

    def _change_of(self, table: str, row: Row, *, delete: bool, ago: int = 0) -> Change | None:
        """An insertion or deletion; an update if the key exists. ``ago``: age of an order's own time."""
        rows = self.server.rows[table]
        keyed = table == "customer"
        existing = next((old for old in rows if old[0] == row[0] and (keyed or old[1] == row[1])), None)
        if not keyed:
            row = (*row, self.time - ago)
        if delete:
            if existing is None:
                return None
            rows.remove(existing)
            return Change(table, existing, None)
        if keyed and existing is not None:
            rows.remove(existing)
        rows.append(row)
        return Change(table, existing if keyed else None, row)

    def commit(self, changes: tuple[Change | Truncation, ...]) -> None:
        server = self.server
        lsn = server.lsn + 8
        server.lsn = lsn + 8
        server.log.append(Transaction(lsn, server.lsn, self.time, changes))
        self._extend_truth(server.log[-1])

    def _extend_truth(self, transaction: Transaction) -> None:
        """Add the records of a transaction to the truth, if the snapshot of the run is older."""
        if self.copied is None or transaction.end <= self.copied[0]:
            return
        time = max(transaction.time, self.copied[1])
        for change in transaction.changes:
            if isinstance(change, Truncation):
                self.truth["log"] += [(table, Record.truncation(-1, time), b"") for table in change.tables]
                continue
            if change.old is not None:
                row = (change.old[0], None) if change.table == "customer" else change.old
                self.truth["log"].append((change.table, Record(-1, time, row, delete=True), b""))
            if change.new is not None:
                self.truth["log"].append((change.table, Record(-1, _own(change.new, time), change.new), b""))

    def act(self, draw: int) -> None:
        """A transaction of several changes, another reader, a rewrite during a snapshot, or a truncation."""
        rng = Random(draw)
        match rng.randrange(3):
            case 0 if rng.random() < 0.4:
                tables = rng.choice((("customer",), ("order",), ("customer", "order")))
                for table in tables:
                    self.server.rows[table].clear()
                    self._rewritten(table)
                self.commit((Truncation(tables),))
            case 0:
                changes = [
                    self._change_of("order", (rng.randint(1, 4), rng.choice(("lamp", "chair"))), delete=False)
                    for _ in range(rng.randint(2, 4))
                ]
                self.commit(tuple(change for change in changes if change is not None))
            case 1:
                self._another_run()
            case 2:
                self._rewrite = rng.choice(("customer", "order"))

    def _another_run(self) -> None:
        """Another run over the database, with its own slot, that leaves nothing behind."""
        with self.world.calm():
            other_source = PostgresSource(DatabaseAddress.of(f"{URI}?slot=two"))
            feed = other_source.open(self.schema)
            feed.start()
            feed.close()
            other_source.drop_slot()

    # --- the server's side -----------------------------------------------------------------------

    def _connect(self, _dsn: object, kind: type, **_: Any) -> Any:
        self.ask()
        return (Replicating if kind is LogicalReplicationConnection else Connected)(self)

    def ask(self) -> None:
        """An effect on the server; raises the error that a client sees while the server is away."""
        self.world.effect("ask", URI)
        if self.world.away:
            self.world.pass_time(500_000)
            raise psycopg2.OperationalError('connection to server "server" failed: Connection refused')

    def create_slot(self, name: str) -> tuple[int, str]:
        self.ask()
        self.server.slots[name] = Slot(self.server.lsn)
        snapshot = f"snapshot-{name}"
        self._snapshots[snapshot] = self.server.lsn, self.server.snapshot()
        if name != "two":
            self.begin_reading(self.server.lsn, self.time, deepcopy(self.server.rows))
        if name != "two" and self._rewrite:  # DDL comes between the slot and the locks of the copy
            self._rewritten(self._rewrite)
            self._rewrite = ""
        return self.server.lsn, snapshot

    def _rewritten(self, table: str) -> None:
        """``ALTER TABLE ... TYPE``: an older snapshot sees an empty table."""
        self.server.files[table] += 1000
        for _, (rows, files) in self._snapshots.values():
            if files[table] != self.server.files[table]:
                rows[table] = []

    def begin_reading(self, lsn: int, time: int, rows: dict[str, list[Row]]) -> None:
        """A run has a snapshot: it must read these rows, and everything after it."""
        self.copied = lsn, time
        snapshot_rows = [(table, row) for table in ("customer", "order") for row in rows[table]]
        snapshot_rows.sort(key=lambda table_row: _own(table_row[1], time))
        self.truth["log"][:] = [
            (table, Record(-1, _own(row, time), row), b"") for table, row in snapshot_rows
        ]
        for transaction in self.server.log:
            self._extend_truth(transaction)

    def snapshot_content(self, name: str | None) -> tuple[int, tuple[dict[str, list[Row]], dict[str, int]]]:
        """The content of a snapshot, or the current content without one."""
        return (self.server.lsn, self.server.snapshot()) if name is None else self._snapshots[name]


def text_of(statement: Any) -> str:
    """A statement of ``psycopg2.sql`` as text, without a connection."""
    match statement:
        case sql.Composed():
            return "".join(map(text_of, statement.seq))
        case sql.SQL():
            return statement.string
        case sql.Identifier():
            return ".".join(f'"{name}"' for name in statement.strings)
        case sql.Literal():
            return repr(statement.wrapped)
    return str(statement)


class Connected:
    """A connection for SQL; a ``with`` of it is a transaction."""

    server_version = 160_000

    def __init__(self, source: Postgres) -> None:
        self.source = source
        self.closed = 0
        self.held: set[str] = set()
        self.sees: str | None = None  # the snapshot of its transaction

    def cursor(self) -> Cursor:
        return Cursor(self)

    def set_session(self, **_: Any) -> None:
        pass

    def rollback(self) -> None:
        self.held.clear()

    def close(self) -> None:
        self.closed = 1

    def __enter__(self) -> Connected:
        self._before = deepcopy(self.source.server.publications)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.held.clear()
        try:
            if kind is None:
                self.source.world.effect("ask", "commit")
                return
        except BaseException:
            self.source.server.publications = self._before
            raise
        self.source.server.publications = self._before


class Cursor:
    """Runs statements."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.source: Postgres = connection.source
        self._rows: list[tuple[Any, ...]] = []

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def fetchone(self) -> tuple[Any, ...] | None:
        return self._rows[0] if self._rows else None

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._rows

    def execute(self, statement: Any, values: Sequence[Any] = ()) -> None:
        self.source.ask()
        text = " ".join(text_of(statement).split())
        for prefix, answer in _STATEMENTS:
            if text.startswith(prefix):
                self._rows = list(answer(self, text, values) or ())
                return
        raise psycopg2.ProgrammingError(f"the simulated server does not know: {text}")

    def copy_expert(self, statement: str, file: Any) -> None:
        self.source.ask()
        _, (rows, _) = self.source.snapshot_content(self.connection.sees)
        match = re.fullmatch(r"COPY \(SELECT (\d+), (.*) FROM (.*)\) TO STDOUT", statement)
        assert match is not None, statement
        position, columns, table = match.groups()
        table = table.replace("ONLY", "").replace('"', "").split(".")[-1].strip()
        names = [name for name, _ in _COLUMNS[table]]
        indexes = [names.index(name) for name in re.findall(r'"(\w+)"', columns)]
        for row in rows[table]:
            cells = [r"\N" if row[index] is None else _escaped(_text(row[index])) for index in indexes]
            file.write("\t".join([position, *cells]).encode() + b"\n")

    def create_replication_slot(self, name: str, output_plugin: str) -> None:
        lsn, snapshot = self.source.create_slot(name)
        self._rows = [(name, _lsn(lsn), snapshot, None)]


def _state(cursor: Cursor, text: str, _values: Any) -> list[tuple[Any, ...]]:
    name = text.rpartition("slot_name = '")[2].rstrip("'")
    server = cursor.source.server
    slot = server.slots.get(name)
    if slot is None:
        return []
    is_reading = slot.reader is not None and not slot.reader.closed
    position = _lsn(slot.confirmed)
    return [("pgoutput", True, 77 if is_reading else None, position, "reserved", _lsn(server.lsn), position)]


def _comments(cursor: Cursor, text: str, _values: Any) -> list[tuple[Any, ...]]:
    names = text.rpartition("IN (")[2]
    publications = cursor.source.server.publications
    return [(name, publication.comment) for name, publication in publications.items() if f"'{name}'" in names]


def _create_publication(cursor: Cursor, text: str, _values: Any) -> None:
    name = text.split('"')[1]
    table_names = text.partition("FOR TABLE ")[2].partition(" WITH")[0].replace('"', "").split(", ")
    cursor.source.server.publications[name] = Published([table.split(".")[-1] for table in table_names])


def _comment(cursor: Cursor, text: str, _values: Any) -> None:
    cursor.source.server.publications[text.split('"')[1]].comment = text.split("'")[1]


def _drop_publication(cursor: Cursor, text: str, _values: Any) -> None:
    del cursor.source.server.publications[text.split('"')[1]]


def _readers(cursor: Cursor, _text: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
    comment, own_comment, name, _ = values
    server = cursor.source.server
    if comment == own_comment:
        return [(slot,) for slot in server.slots if slot == name]
    owned_names = {
        publication_name
        for publication_name, publication in server.publications.items()
        if publication.comment == own_comment
    }
    return [(slot,) for slot in server.slots if slot not in owned_names]


def _lock(cursor: Cursor, text: str, _values: Any) -> None:
    if cursor.source.world.repeats():  # another transaction holds a lock
        raise LockNotAvailable("could not obtain lock on relation")
    names = text.removeprefix("LOCK TABLE ").partition(" IN ")[0].replace('"', "").split(", ")
    cursor.connection.held |= {name.split(".")[-1] for name in names}


def _rewritten(cursor: Cursor, _text: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
    (oids,) = values
    table_names = {name for name, oid in _OIDS.items() if oid in oids}
    _, (_, files) = cursor.source.snapshot_content(cursor.connection.sees)
    current_files = cursor.source.server.files
    return [
        (name,)
        for name in sorted(table_names)
        if name not in cursor.connection.held or files[name] != current_files[name]
    ]


def _use_snapshot(cursor: Cursor, _text: str, values: Sequence[Any]) -> None:
    cursor.connection.sees = values[0]


def _drop_slot(cursor: Cursor, _text: str, values: Sequence[Any]) -> None:
    cursor.source.server.slots.pop(values[0], None)


def _published(cursor: Cursor, _text: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
    publication = cursor.source.server.publications.get(values[0])
    columns = {table: [name for name, _ in _COLUMNS[table]] for table in _OIDS}
    return (
        []
        if publication is None
        else [("public", table, columns[table], False) for table in publication.tables]
    )


def _actions(cursor: Cursor, _text: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
    return [(True,) * 5] if values[0] in cursor.source.server.publications else []


def _micros(cursor: Cursor, *_: Any) -> list[tuple[Any, ...]]:
    return [(cursor.source.time,)]


def _tables(*_: Any) -> list[tuple[Any, ...]]:
    return [(oid, "public", name, "r", _IDENTITY[name], True, []) for name, oid in _OIDS.items()]


def _columns(*_: Any) -> list[tuple[Any, ...]]:
    return [
        (oid, number, name, kind, "b", -1, False)
        for table, oid in _OIDS.items()
        for number, (name, kind) in enumerate(_COLUMNS[table], 1)
    ]


def _keys(*_: Any) -> list[tuple[Any, ...]]:
    return [(_OIDS["customer"], True, False, True, [1])]


Work = Callable[[Cursor, str, Sequence[Any]], "list[tuple[Any, ...]] | None"]
_STATEMENTS: Final[tuple[tuple[str, Work], ...]] = (
    ("SELECT plugin, database", _state),
    ("SELECT pubname::text", _comments),
    ("CREATE PUBLICATION", _create_publication),
    ("COMMENT ON PUBLICATION", _comment),
    ("DROP PUBLICATION", _drop_publication),
    ("SELECT slot_name::text FROM pg_replication_slots WHERE database", lambda *_: []),  # of killed runs
    ("SELECT slot_name::text", _readers),
    ("SELECT pubinsert", _actions),
    ("SELECT schemaname, tablename", _published),
    ("LOCK TABLE", _lock),
    (" ".join(spool._CHANGED.split())[:150], _rewritten),
    ("WITH RECURSIVE meant", lambda *_: []),  # the holder of a lock
    ("SET TRANSACTION SNAPSHOT", _use_snapshot),
    ("SET LOCAL lock_timeout", lambda *_: []),
    ("SET LOCAL row_security", lambda *_: []),
    ("SELECT pg_drop_replication_slot", _drop_slot),
    ("IDENTIFY_SYSTEM", lambda *_: [("7", 1, "0/0", "shop")]),
    ("SHOW wal_level", lambda *_: [("logical",)]),
    ("SELECT (extract(epoch FROM clock_timestamp())", _micros),
    ("SELECT c.oid, n.nspname", _tables),
    ("SELECT c.oid FROM pg_class", lambda _cursor, _text, values: [(oid,) for oid in values[0]]),
    ("SELECT a.attrelid", _columns),
    ("SELECT i.indrelid", _keys),
    ("SELECT c.conname", lambda *_: []),
)  # fmt: skip


class Replicating(Connected):
    """A connection for replication; it streams one slot."""

    def cursor(self) -> Any:
        return Stream(self)


class Stream(Cursor):
    """The stream of a slot: messages of transactions after its start, and after its confirmed position."""

    reply_count = 0

    def __init__(self, connection: Replicating) -> None:
        super().__init__(connection)
        self._messages: list[bytes] = []
        self._slot: Slot | None = None
        self._sent = 0
        self._known: set[str] = set()
        self.wal_end = 0

    def start_replication(
        self, slot_name: str, slot_type: int, start_lsn: int, options: dict[str, str], decode: bool
    ) -> None:
        source = self.source
        source.ask()
        slot = source.server.slots.get(slot_name)
        if slot is None:
            raise psycopg2.ProgrammingError(f'replication slot "{slot_name}" does not exist')
        name = options["publication_names"].strip('"')
        if name not in source.server.publications:
            raise psycopg2.ProgrammingError(f'publication "{name}" does not exist')
        self._tables = source.server.publications[name].tables
        self._slot, slot.reader = slot, self.connection
        self._sent = max(start_lsn, slot.confirmed)
        del slot_type, decode

    def read(self) -> bytes | None:
        source = self.source
        source.ask()
        if source.world.repeats():
            raise psycopg2.OperationalError("server closed the connection unexpectedly")
        if not self._messages:
            self._next()
        if not self._messages:
            self.wal_end = source.server.lsn
            return None
        return self._messages.pop(0)

    def _next(self) -> None:
        for transaction in self.source.server.log:
            if transaction.end > self._sent:
                self._sent = transaction.end
                self._messages = list(self._encoded(transaction))
                return

    def _encoded(self, transaction: Transaction) -> Iterator[bytes]:
        time = transaction.time - EPOCH_MICROS
        yield b"B" + struct.pack(">qqi", transaction.lsn, time, 7)
        for change in transaction.changes:
            table_names = change.tables if isinstance(change, Truncation) else (change.table,)
            tables = [table for table in table_names if table in self._tables]
            for table in tables:
                if table not in self._known:
                    self._known.add(table)
                    yield _relation(table)
            oids = b"".join(struct.pack(">I", _OIDS[table]) for table in tables)
            if not tables:
                continue
            if isinstance(change, Truncation):
                yield b"T" + struct.pack(">IB", len(tables), 0) + oids
                continue
            is_full = _IDENTITY[change.table] == "f"
            old_row = (
                b""
                if change.old is None
                else (b"O" + _row(change.old) if is_full else b"K" + _row((change.old[0], None)))
            )
            if change.new is None:
                yield b"D" + oids + old_row
            elif change.old is None:
                yield b"I" + oids + b"N" + _row(change.new)
            else:
                yield b"U" + oids + old_row + b"N" + _row(change.new)
        yield b"C\0" + struct.pack(">qqq", transaction.lsn, transaction.end, time)

    def report(self, flushed: int, *, reply: bool = False) -> None:
        self.source.ask()
        if self._slot is not None:
            self._slot.confirmed = max(self._slot.confirmed, flushed)
        del reply

    def close(self) -> None:
        self.connection.close()


def _relation(table: str) -> bytes:
    columns = b"".join(
        bytes([name == "cid"]) + name.encode() + b"\0" + struct.pack(">Ii", _TYPES[kind], -1)
        for name, kind in _COLUMNS[table]
    )
    header = (
        struct.pack(">I", _OIDS[table]) + b"public\0" + table.encode() + b"\0" + _IDENTITY[table].encode()
    )
    return b"R" + header + struct.pack(">h", len(_COLUMNS[table])) + columns


def _row(row: Row) -> bytes:
    values = b"".join(
        b"n" if cell is None else b"t" + struct.pack(">i", len(text := _text(cell).encode())) + text
        for cell in row
    )
    return struct.pack(">h", len(row)) + values


def _own(row: Row, time: int) -> int:
    """The time of a row: an order's own, otherwise that of its transaction."""
    own_time = row[2] if len(row) > 2 else time
    assert isinstance(own_time, int)
    return own_time


def _text(cell: object) -> str:
    """A value as formatted by the output function of its type."""
    if isinstance(cell, int) and cell > 1 << 40:
        return datetime.fromtimestamp(cell / 1e6, UTC).isoformat(sep=" ")
    return str(cell)


def _escaped(text: str) -> str:
    """A text with the escapes of COPY."""
    return text.replace("\\", r"\\").replace("\n", r"\n").replace("\t", r"\t").replace("\r", r"\r")


def _lsn(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
