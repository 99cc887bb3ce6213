"""The messages of a replication connection, read and answered through libpq.

psycopg2 reads them, too, but reports the positions of keepalives as flushed: the slot then moves beyond the
offset that a run has stored, and the run can no longer resume. Here, only what is confirmed is reported.

Source: PostgreSQL documentation, "Streaming Replication Protocol".
"""

from __future__ import annotations

import ctypes
import struct
import time
from typing import Any, Final

import psycopg2
from psycopg2 import _psycopg
from psycopg2.extras import ReplicationCursor

from skws.sources.postgres.pgoutput import EPOCH_MICROS

_DATA: Final = ord("w")
_KEEPALIVE: Final = ord("k")
_DATA_HEAD: Final = struct.Struct(">cQQq")  # the position, the end of the log, the time
_KEEPALIVE_HEAD: Final = struct.Struct(">cQq?")  # the end of the log, the time, whether to reply
_REPORT: Final = struct.Struct(">cQQQq?")  # written, flushed, applied, the time, whether to reply
_SQLSTATE: Final = ord("C")

# The library that psycopg2 is linked to: its names are found through psycopg2's own.
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
"""The type of the result, and those of the arguments."""

for _name, (_result, *_arguments) in _FUNCTIONS.items():
    _function = getattr(_LIBPQ, _name)
    _function.restype, _function.argtypes = _result, _arguments


class StreamError(psycopg2.OperationalError):
    """The stream broke, or the server ended it; ``pgcode``: its code, None if the connection broke."""

    def __init__(self, text: bytes, code: bytes | None) -> None:
        super().__init__(text.decode("utf-8", "replace"))
        self._code = None if code is None else code.decode()

    @property
    def pgcode(self) -> str | None:  # type: ignore[override]  # psycopg2's cannot be set, either
        return self._code


class ReplicationMessages:
    """The messages of a cursor whose replication has started; methods raise psycopg2.Error when it breaks.

    ``wal_end``: everything committed before this position has been read, once there are no more messages.
    ``asked``: how many replies the server has asked for.
    """

    def __init__(self, cursor: ReplicationCursor) -> None:
        self.wal_end = 0
        self.asked = 0
        self._cursor = cursor
        self._connection = _POINTER(cursor.connection.pgconn_ptr)
        self._flushed = 0

    def fileno(self) -> int:
        return self._cursor.connection.fileno()

    def read(self) -> bytes | None:
        """The payload of the next message that has come, None if none has; answers keepalives before it."""
        message = self._next()
        if message is None:
            if not _LIBPQ.PQconsumeInput(self._connection):
                raise self._broken()
            message = self._next()
        while message is not None and message[0] == _KEEPALIVE:
            _, self.wal_end, _, reply = _KEEPALIVE_HEAD.unpack(message)
            if reply:
                self.asked += 1
                self.report(self._flushed)
            message = self._next()
        if message is None:
            return None
        if message[0] != _DATA or len(message) < _DATA_HEAD.size:
            raise psycopg2.OperationalError(f"unknown replication message {message[:1]!r}")
        _, _, self.wal_end, _ = _DATA_HEAD.unpack_from(message)
        return message[_DATA_HEAD.size :]

    def report(self, flushed: int, *, reply: bool = False) -> None:
        """Tell the server up to where its log may be forgotten; ``reply``: have it send its position."""
        self._flushed = max(self._flushed, flushed)
        now = time.time_ns() // 1000 - EPOCH_MICROS
        report = _REPORT.pack(b"r", self._flushed, self._flushed, self._flushed, now, reply)
        put = _LIBPQ.PQputCopyData(self._connection, report, len(report))
        if put <= 0 or _LIBPQ.PQflush(self._connection) < 0:
            raise self._broken()

    def close(self) -> None:
        self._cursor.connection.close()

    def _next(self) -> bytes | None:
        """The next message that libpq holds."""
        buffer = _POINTER()
        size = _LIBPQ.PQgetCopyData(self._connection, ctypes.byref(buffer), 1)
        if size > 0:
            try:
                return ctypes.string_at(buffer, size)
            finally:
                _LIBPQ.PQfreemem(buffer)
        if size == 0:
            return None
        raise self._ended() if size == -1 else self._broken()

    def _broken(self) -> StreamError:
        return StreamError(_LIBPQ.PQerrorMessage(self._connection) or b"the connection broke", None)

    def _ended(self) -> StreamError:
        result = _LIBPQ.PQgetResult(self._connection)
        try:
            text = _LIBPQ.PQresultErrorMessage(result) or b"the server ended the stream"
            return StreamError(text, _LIBPQ.PQresultErrorField(result, _SQLSTATE))
        finally:
            _LIBPQ.PQclear(result)
