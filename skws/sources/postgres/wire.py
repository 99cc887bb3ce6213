"""Reading the fields of PostgreSQL's replication messages: big-endian integers, zero-ended texts."""

from __future__ import annotations

import struct
from typing import Final

from schema.errors import SourceError

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
