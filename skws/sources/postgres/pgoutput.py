"""The messages of a replication connection, and those of the output plugin ``pgoutput``, decoded from bytes.

Version 1 of the plugin's protocol sends a transaction only once it is committed, in the order of
commits. Values remain bytes: the texts from the output functions of their types.

The messages of the connection are read and answered through libpq. psycopg2 can read them, too, but reports
the positions of keepalives as flushed: the slot then moves beyond the offset that a run has stored, and the
run can no longer resume. Here, only confirmed positions are reported.

Source: PostgreSQL documentation, "Streaming Replication Protocol" and "Logical Replication Message Formats".
"""

from __future__ import annotations

import ctypes
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias

import psycopg2
from psycopg2 import _psycopg
from psycopg2.extras import ReplicationCursor

from skws_schema.errors import SourceError

_DATA: Final = ord("w")
_KEEPALIVE: Final = ord("k")
_DATA_HEAD: Final = struct.Struct(">cQQq")  # the position, the end of the log, the time
_KEEPALIVE_HEAD: Final = struct.Struct(">cQq?")  # the end of the log, the time, whether to reply
_REPORT: Final = struct.Struct(">cQQQq?")  # written, flushed, applied, the time, whether to reply
_SQLSTATE: Final = ord("C")

# The library to which psycopg2 is linked; its names are found through psycopg2's own module.
_LIBPQ: Final = ctypes.CDLL(_psycopg.__file__)
_POINTER: Final = ctypes.c_void_p
_FUNCTIONS: Final[dict[str, tuple[Any, ...]]] = {
    "PQconsumeInput": (ctypes.c_int, _POINTER),
    "PQgetCopyData": (ctypes.c_int, _POINTER, ctypes.POINTER(_POINTER), ctypes.c_int),
    "PQputCopyData": (ctypes.c_int, _POINTER, ctypes.c_char_p, ctypes.c_int),
    "PQflush": (ctypes.c_int, _POINTER),
    "PQfreemem": (None, _POINTER),
    "PQerrorMessage": (ctypes.c_char_p, _POINTER),
    "PQgetResult": (_POINTER, _POINTER),
    "PQresultErrorMessage": (ctypes.c_char_p, _POINTER),
    "PQresultErrorField": (ctypes.c_char_p, _POINTER, ctypes.c_int),
    "PQclear": (None, _POINTER),
}
"""By function, the types of its result and its arguments."""

for _name, (_result, *_arguments) in _FUNCTIONS.items():
    _function = getattr(_LIBPQ, _name)
    _function.restype, _function.argtypes = _result, _arguments


class StreamError(psycopg2.OperationalError):
    """The stream broke, or the server ended it. ``pgcode``: its code; None if the connection broke."""

    def __init__(self, text: bytes, code: bytes | None) -> None:
        super().__init__(text.decode("utf-8", "replace"))
        self._code = None if code is None else code.decode()

    @property
    def pgcode(self) -> str | None:  # type: ignore[override]  # psycopg2's cannot be set either
        return self._code


class ReplicationMessages:
    """The messages of a cursor whose replication has started; methods raise psycopg2.Error when it breaks.

    ``wal_end``: once there are no more messages, everything committed before this position has been read.
    ``reply_count``: the number of replies that the server has requested.
    """

    def __init__(self, cursor: ReplicationCursor) -> None:
        self.wal_end = 0
        self.reply_count = 0
        self._cursor = cursor
        self._connection = _POINTER(cursor.connection.pgconn_ptr)
        self._flushed = 0

    def fileno(self) -> int:
        return self._cursor.connection.fileno()

    def read(self) -> bytes | None:
        """The payload of the next message that has arrived, or None; keepalives before it are answered."""
        message = self._next()
        if message is None:
            if not _LIBPQ.PQconsumeInput(self._connection):
                raise self._connection_error()
            message = self._next()
        while message is not None and message[0] == _KEEPALIVE:
            _, self.wal_end, _, reply = _KEEPALIVE_HEAD.unpack(message)
            if reply:
                self.reply_count += 1
                self.report(self._flushed)
            message = self._next()
        if message is None:
            return None
        if message[0] != _DATA or len(message) < _DATA_HEAD.size:
            raise psycopg2.OperationalError(f"unknown replication message {message[:1]!r}")
        _, _, self.wal_end, _ = _DATA_HEAD.unpack_from(message)
        return message[_DATA_HEAD.size :]

    def report(self, flushed: int, *, reply: bool = False) -> None:
        """Report the position before which the server may forget its log; ``reply``: request its position."""
        self._flushed = max(self._flushed, flushed)
        now = time.time_ns() // 1000 - EPOCH_MICROS
        report = _REPORT.pack(b"r", self._flushed, self._flushed, self._flushed, now, reply)
        status = _LIBPQ.PQputCopyData(self._connection, report, len(report))
        if status <= 0 or _LIBPQ.PQflush(self._connection) < 0:
            raise self._connection_error()

    def close(self) -> None:
        self._cursor.connection.close()

    def _next(self) -> bytes | None:
        """The next message that libpq has received."""
        buffer = _POINTER()
        size = _LIBPQ.PQgetCopyData(self._connection, ctypes.byref(buffer), 1)
        if size > 0:
            try:
                return ctypes.string_at(buffer, size)
            finally:
                _LIBPQ.PQfreemem(buffer)
        if size == 0:
            return None
        raise self._end_error() if size == -1 else self._connection_error()

    def _connection_error(self) -> StreamError:
        return StreamError(_LIBPQ.PQerrorMessage(self._connection) or b"the connection broke", None)

    def _end_error(self) -> StreamError:
        result = _LIBPQ.PQgetResult(self._connection)
        try:
            text = _LIBPQ.PQresultErrorMessage(result) or b"the server ended the stream"
            return StreamError(text, _LIBPQ.PQresultErrorField(result, _SQLSTATE))
        finally:
            _LIBPQ.PQclear(result)


_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_UINT32: Final = struct.Struct(">I")
_INT64: Final = struct.Struct(">q")
_SIZE: Final = _INT32.unpack_from
_WITH_TEXT: Final = frozenset((b"t", b"b"))  # kinds of values


class Wire:
    """The fields of one message, in order; every method raises SourceError if the message is truncated."""

    __slots__ = ("_offset", "_payload")

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._offset = 0

    def byte(self) -> int:
        if self._offset >= len(self._payload):
            raise self._fault("is truncated")
        self._offset += 1
        return self._payload[self._offset - 1]

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def uint32(self) -> int:
        return self._number(_UINT32)

    def int64(self) -> int:
        return self._number(_INT64)

    def take(self, count: int) -> bytes:
        end = self._offset + count
        if count < 0 or end > len(self._payload):
            raise self._fault("is truncated")
        data = self._payload[self._offset : end]
        self._offset = end
        return data

    def cells(self) -> Cells:
        """The values of a row, after their number."""
        count = self.int16()
        payload, offset, end = self._payload, self._offset, len(self._payload)
        cells: list[Cell] = []
        for _ in range(count):
            kind = payload[offset : offset + 1]
            offset += 1
            if kind in _WITH_TEXT:
                if (first := offset + _INT32.size) <= end:
                    offset = first + _SIZE(payload, offset)[0]
                if first > end or not first <= offset <= end:
                    self._offset = min(first, end)
                    raise self._fault("is truncated")
                cells.append(payload[first:offset])
            elif kind == b"n":
                cells.append(None)
            elif kind == b"u":
                cells.append(UNCHANGED)
            else:
                self._offset = offset - 1
                self.expect("n", "u", "t", "b")
        self._offset = offset
        return tuple(cells)

    def text(self) -> str:
        """The text up to the next zero byte."""
        end = self._payload.find(b"\0", self._offset)
        if end < 0:
            raise self._fault("is truncated")
        data = self._payload[self._offset : end]
        self._offset = end + 1
        return data.decode("utf-8", "replace")

    def expect(self, *kinds: str) -> str:
        """A letter, which must be one of ``kinds``."""
        character = chr(self.byte())
        if character not in kinds:
            raise self._fault(f"has {character!r} where one of {', '.join(kinds)} was expected")
        return character

    def finish(self) -> None:
        """Raises SourceError if anything is left over."""
        if self._offset != len(self._payload):
            raise self._fault("is longer than its kind")

    def _number(self, form: struct.Struct) -> int:
        offset, self._offset = self._offset, self._offset + form.size
        if self._offset > len(self._payload):
            self._offset = offset
            raise self._fault("is truncated")
        number: int = form.unpack_from(self._payload, offset)[0]
        return number

    def _fault(self, problem: str) -> SourceError:
        kind = chr(self._payload[0]) if self._payload else ""
        return SourceError(f"a replication message {kind!r} {problem} at byte {self._offset}")


EPOCH_MICROS: Final = 946_684_800_000_000
"""2000-01-01, from which PostgreSQL counts, in microseconds since 1970."""


class Unchanged(Enum):
    """Marks a value stored out of line (TOAST) that an update did not change and that was not logged."""

    UNCHANGED = "unchanged"


UNCHANGED: Final = Unchanged.UNCHANGED
Cell: TypeAlias = bytes | Unchanged | None
Cells: TypeAlias = tuple[Cell, ...]


class ReplicaIdentity(Enum):
    """The part of an old row that is logged (``REPLICA IDENTITY``)."""

    DEFAULT = "d"
    NOTHING = "n"
    FULL = "f"
    INDEX = "i"


@dataclass(frozen=True, slots=True)
class BeginMessage:
    """The beginning of a transaction.

    ``lsn``: the position of its commit; ``time``: that of the commit, since 1970.
    """

    lsn: int
    time: int


@dataclass(frozen=True, slots=True)
class Commit:
    """The end of a transaction. ``end``: the position after its commit."""

    lsn: int
    end: int
    time: int


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column. ``key``: it is part of the replica identity. ``type``: the number of its type."""

    name: str
    key: bool
    type: int = 0

    @property
    def padded(self) -> bool:
        """True if its type is ``char(n)``."""
        return self.type == _CHAR_OF_LENGTH


@dataclass(frozen=True, slots=True)
class RelationMessage:
    """The present definition of a table, sent before its first change and after changes of its columns."""

    oid: int
    namespace: str
    name: str
    identity: ReplicaIdentity
    columns: tuple[RelationColumn, ...]


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


RowChange: TypeAlias = Insert | Update | Delete
Change: TypeAlias = BeginMessage | Commit | RelationMessage | RowChange | Truncate | Other
_ROW_CHANGES: Final = (b"I", b"U", b"D")


def is_row_change(payload: bytes) -> bool:
    """True if a message is a ``RowChange``, many of which may be decoded together (``RowMessages``)."""
    return payload.startswith(_ROW_CHANGES)


def is_update(payload: bytes) -> bool:
    """True if a row change is an ``Update``."""
    return payload.startswith(b"U")


def table_of(payload: bytes) -> int:
    """The number of the table of a row change. Raises SourceError if the message is truncated."""
    wire = Wire(payload)
    wire.byte()
    return wire.uint32()


def decode(payload: bytes) -> Change:
    """Decode one message. Raises SourceError if it is truncated, too long or of unknown kind."""
    wire = Wire(payload)
    kind = chr(wire.byte())
    reader = _READERS.get(kind)
    if reader is None:
        raise SourceError(f"PostgreSQL sent a message of unknown kind {kind!r}")
    change = reader(wire)
    wire.finish()
    return change


def _begin(wire: Wire) -> BeginMessage:
    begin = BeginMessage(wire.int64(), EPOCH_MICROS + wire.int64())
    wire.int32()  # the transaction's number
    return begin


def _commit(wire: Wire) -> Commit:
    wire.byte()  # flags, none in use
    return Commit(wire.int64(), wire.int64(), EPOCH_MICROS + wire.int64())


def _relation(wire: Wire) -> RelationMessage:
    oid, namespace, name = wire.uint32(), wire.text(), wire.text()
    identity = ReplicaIdentity(wire.expect(*(member.value for member in ReplicaIdentity)))
    return RelationMessage(
        oid,
        # An empty namespace is pg_catalog.
        namespace or "pg_catalog",
        name,
        identity,
        tuple(_column(wire) for _ in range(wire.int16())),
    )


_CHAR_OF_LENGTH: Final = 1042  # the number of the type bpchar, the same in every database


def _column(wire: Wire) -> RelationColumn:
    key = bool(wire.byte() & 1)
    name = wire.text()
    kind = wire.uint32()
    wire.take(4)  # the modifier
    return RelationColumn(name, key, kind)


def _type(wire: Wire) -> Other:
    wire.uint32(), wire.text(), wire.text()
    return Other("Y")


def _origin(wire: Wire) -> Other:
    wire.int64(), wire.text()
    return Other("O")


def _insert(wire: Wire) -> Insert:
    oid = wire.uint32()
    wire.expect("N")
    return Insert(oid, wire.cells())


def _update(wire: Wire) -> Update:
    oid = wire.uint32()
    kind = wire.expect("K", "O", "N")
    key = wire.cells() if kind == "K" else None
    old = wire.cells() if kind == "O" else None
    if kind != "N":
        wire.expect("N")
    return Update(oid, key, old, wire.cells())


def _delete(wire: Wire) -> Delete:
    oid = wire.uint32()
    kind = wire.expect("K", "O")
    cells = wire.cells()
    return Delete(oid, cells if kind == "K" else None, cells if kind == "O" else None)


def _truncate(wire: Wire) -> Truncate:
    count = wire.int32()
    wire.byte()  # CASCADE, RESTART IDENTITY
    return Truncate(tuple(wire.uint32() for _ in range(count)))


def _message(wire: Wire) -> Other:
    wire.byte(), wire.int64(), wire.text()
    wire.take(wire.int32())
    return Other("M")


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
