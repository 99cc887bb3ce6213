"""The messages of PostgreSQL's output plugin ``pgoutput``, protocol version 1, decoded from bytes.

Version 1 sends a transaction only once it is committed, in the order of
commits. Values stay bytes: they are the texts of the types' output functions.

Source: PostgreSQL documentation, "Logical Replication Message Formats".
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from skws_schema.errors import SourceError

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_UINT32: Final = struct.Struct(">I")
_INT64: Final = struct.Struct(">q")


class Wire:
    """The fields of one message, in order; every method raises SourceError if the message is cut."""

    __slots__ = ("_at", "_payload")

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._at = 0

    def byte(self) -> int:
        return self.take(1)[0]

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def uint32(self) -> int:
        return self._number(_UINT32)

    def int64(self) -> int:
        return self._number(_INT64)

    def take(self, count: int) -> bytes:
        end = self._at + count
        if count < 0 or end > len(self._payload):
            raise self._fault("is cut")
        found = self._payload[self._at : end]
        self._at = end
        return found

    def text(self) -> str:
        """Up to the next zero byte."""
        end = self._payload.find(b"\0", self._at)
        if end < 0:
            raise self._fault("is cut")
        found = self._payload[self._at : end]
        self._at = end + 1
        return found.decode("utf-8", "replace")

    def expect(self, *kinds: str) -> str:
        """A letter, one of ``kinds``."""
        found = chr(self.byte())
        if found not in kinds:
            raise self._fault(f"has {found!r} where one of {', '.join(kinds)} was expected")
        return found

    def finish(self) -> None:
        """Raises SourceError if anything is left."""
        if self._at != len(self._payload):
            raise self._fault("is longer than its kind")

    def _number(self, form: struct.Struct) -> int:
        number: int = form.unpack(self.take(form.size))[0]
        return number

    def _fault(self, what: str) -> SourceError:
        kind = chr(self._payload[0]) if self._payload else ""
        return SourceError(f"a replication message {kind!r} {what} at byte {self._at}")


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
    """A transaction begins; ``lsn``: the position of its commit; ``time``: of the commit, since 1970."""

    lsn: int
    time: int


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


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as it is from here on; sent before its first change and after each change of its columns."""

    oid: int
    namespace: str
    name: str
    identity: Identity
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Other:
    """A message without changes of rows, by its kind: a type (Y), an origin (O), a logical message (M)."""

    kind: str


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


Change: TypeAlias = Begin | Commit | Relation | Insert | Update | Delete | Truncate | Other


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
    begin = Begin(wire.int64(), EPOCH_MICROS + wire.int64())
    wire.int32()  # the transaction's number
    return begin


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
    column = Column(wire.text(), key)
    wire.take(8)  # type and modifier
    return column


def _type(wire: Wire) -> Other:
    wire.uint32(), wire.text(), wire.text()
    return Other("Y")


def _origin(wire: Wire) -> Other:
    wire.int64(), wire.text()
    return Other("O")


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
    count = wire.int32()
    wire.byte()  # CASCADE, RESTART IDENTITY
    return Truncate(tuple(wire.uint32() for _ in range(count)))


def _message(wire: Wire) -> Other:
    wire.byte(), wire.int64(), wire.text()
    wire.take(wire.int32())
    return Other("M")


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
