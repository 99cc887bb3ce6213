"""The messages of PostgreSQL's output plugin ``pgoutput``, protocol version 1, decoded from bytes.

Version 1 sends a transaction only once it is committed, in the order of
commits. Values stay bytes: they are the texts of the types' output functions.

Source: PostgreSQL documentation, "Logical Replication Message Formats".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from schema.errors import SourceError
from skws.sources.postgres.wire import Wire

EPOCH_MICROS: Final = 946_684_800_000_000
"""2000-01-01, from which PostgreSQL counts, in microseconds since 1970."""


class Unchanged(Enum):
    """Stands for a value stored apart (TOAST) that an update left as it was, and that was not logged."""

    UNCHANGED = "unchanged"


UNCHANGED: Final = Unchanged.UNCHANGED
Cell: TypeAlias = bytes | Unchanged | None
Cells: TypeAlias = tuple[Cell, ...]


class Identity(Enum):
    """What of an old row is logged (``REPLICA IDENTITY``)."""

    DEFAULT = "d"
    NOTHING = "n"
    FULL = "f"
    INDEX = "i"


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction begins; ``lsn``: where its commit stands, ``time``: of the commit, since 1970."""

    lsn: int
    time: int
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    """A transaction is complete; ``end``: the position behind its commit."""

    lsn: int
    end: int
    time: int


@dataclass(frozen=True, slots=True)
class Column:
    """A column; ``key``: it is part of the replica identity."""

    name: str
    key: bool
    type_oid: int
    modifier: int


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as it is from here on; sent before its first change and after each change of its columns."""

    oid: int
    namespace: str
    name: str
    identity: Identity
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Type:
    """A type that is not built in."""

    oid: int
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a replicated transaction first came from."""

    lsn: int
    name: str


@dataclass(frozen=True, slots=True)
class Insert:
    oid: int
    new: Cells


@dataclass(frozen=True, slots=True)
class Update:
    """``key``: the old values of the identity's columns (others NULL); ``old``: the whole old row."""

    oid: int
    key: Cells | None
    old: Cells | None
    new: Cells


@dataclass(frozen=True, slots=True)
class Delete:
    """Either ``key`` or ``old``, as in an update."""

    oid: int
    key: Cells | None
    old: Cells | None


@dataclass(frozen=True, slots=True)
class Truncate:
    oids: tuple[int, ...]
    cascade: bool
    restart_identity: bool


@dataclass(frozen=True, slots=True)
class Message:
    """What ``pg_logical_emit_message`` wrote."""

    transactional: bool
    lsn: int
    prefix: str
    content: bytes


Change: TypeAlias = Begin | Commit | Relation | Type | Origin | Insert | Update | Delete | Truncate | Message


def decode(payload: bytes) -> Change:
    """One message. Raises SourceError if it is cut, too long or of no known kind."""
    wire = Wire(payload)
    kind = chr(wire.byte())
    read = _READERS.get(kind)
    if read is None:
        raise SourceError(f"PostgreSQL sent a message of unknown kind {kind!r}")
    change = read(wire)
    wire.finish()
    return change


def _begin(wire: Wire) -> Begin:
    return Begin(wire.int64(), EPOCH_MICROS + wire.int64(), wire.int32())


def _commit(wire: Wire) -> Commit:
    wire.byte()  # flags, none in use
    return Commit(wire.int64(), wire.int64(), EPOCH_MICROS + wire.int64())


def _relation(wire: Wire) -> Relation:
    oid, namespace, name = wire.uint32(), wire.text(), wire.text()
    identity = Identity(wire.expect(*(each.value for each in Identity)))
    return Relation(
        oid,
        # An empty namespace is pg_catalog.
        namespace or "pg_catalog",
        name,
        identity,
        tuple(_column(wire) for _ in range(wire.int16())),
    )


def _column(wire: Wire) -> Column:
    key = bool(wire.byte() & 1)
    return Column(wire.text(), key, wire.uint32(), wire.int32())


def _type(wire: Wire) -> Type:
    return Type(wire.uint32(), wire.text() or "pg_catalog", wire.text())


def _origin(wire: Wire) -> Origin:
    return Origin(wire.int64(), wire.text())


def _insert(wire: Wire) -> Insert:
    oid = wire.uint32()
    wire.expect("N")
    return Insert(oid, _cells(wire))


def _update(wire: Wire) -> Update:
    oid = wire.uint32()
    part = wire.expect("K", "O", "N")
    key = _cells(wire) if part == "K" else None
    old = _cells(wire) if part == "O" else None
    if part != "N":
        wire.expect("N")
    return Update(oid, key, old, _cells(wire))


def _delete(wire: Wire) -> Delete:
    oid = wire.uint32()
    part = wire.expect("K", "O")
    cells = _cells(wire)
    return Delete(oid, cells if part == "K" else None, cells if part == "O" else None)


def _truncate(wire: Wire) -> Truncate:
    count, flags = wire.int32(), wire.byte()
    return Truncate(tuple(wire.uint32() for _ in range(count)), bool(flags & 1), bool(flags & 2))


def _message(wire: Wire) -> Message:
    flags, lsn, prefix = wire.byte(), wire.int64(), wire.text()
    return Message(bool(flags & 1), lsn, prefix, wire.take(wire.int32()))


def _cells(wire: Wire) -> Cells:
    return tuple(_cell(wire) for _ in range(wire.int16()))


def _cell(wire: Wire) -> Cell:
    match wire.expect("n", "u", "t", "b"):
        case "n":
            return None
        case "u":
            return UNCHANGED
        case _:
            return wire.take(wire.int32())


_READERS: Final[dict[str, Callable[[Wire], Change]]] = {
    "B": _begin,
    "C": _commit,
    "D": _delete,
    "I": _insert,
    "M": _message,
    "O": _origin,
    "R": _relation,
    "T": _truncate,
    "U": _update,
    "Y": _type,
}
