"""What micro-batches came to, on disk until all sinks have it for good.

Spark holds a batch for done when it is in here, so sinks may write in their
own time, and many batches at once. A process that goes on gives its sinks
what is left in it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import IO, Final, NamedTuple
from zlib import crc32

from skws.watch.atomic import StateError, synced

SEGMENT_BYTES: Final = 8 << 20
_HEAD: Final = Struct("<QQI")  # number, length, checksum
_SUFFIX: Final = ".out"


class Told(NamedTuple):
    """What the shards told of one micro-batch: rows of (shard, part, blob), in order."""

    number: int
    rows: list[tuple[int, int, bytes]]


_ROW: Final = Struct("<III")


class Outbox:
    """Segments in a folder, files named by the number of their first batch. Raises StateError."""

    def __init__(self, folder: Path, segment_bytes: int = SEGMENT_BYTES) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._file: IO[bytes] | None = None
        self._lasts: dict[Path, int] = {}
        self.last = 0

    def open(self) -> Iterator[Told]:
        """What was kept, oldest first; to be read to the end before anything is put in.

        What a broken run left half written is left out.
        """
        for path in sorted(self._folder.glob(f"*{_SUFFIX}")):
            for told in _read(path):
                self.last = max(self.last, told.number)
                self._lasts[path] = told.number
                yield told
            self._lasts.setdefault(path, 0)

    def put(self, told: Told) -> None:
        """Behind this, it is there for good."""
        payload = b"".join(_ROW.pack(shard, part, len(blob)) + blob for shard, part, blob in told.rows)
        try:
            file = self._roll(told.number) if self._file is None else self._file
            file.write(_HEAD.pack(told.number, len(payload), crc32(payload)) + payload)
            file.flush()
            os.fdatasync(file.fileno())
        except OSError as error:
            raise StateError(f"{self._folder}: cannot write: {error.strerror}") from None
        self.last = told.number
        self._lasts[Path(file.name)] = told.number
        if file.tell() > self._segment_bytes:
            self.close()

    def trim(self, committed: int) -> None:
        """All sinks have everything up to a batch."""
        for path, last in list(self._lasts.items()):
            if last <= committed and (self._file is None or Path(self._file.name) != path):
                path.unlink(missing_ok=True)
                del self._lasts[path]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _roll(self, number: int) -> IO[bytes]:
        path = self._folder / f"{number:012d}{_SUFFIX}"
        self._file = path.open("wb")
        synced(self._folder)
        return self._file


def _read(path: Path) -> Iterator[Told]:
    data = path.read_bytes()
    at = 0
    while at + _HEAD.size <= len(data):
        number, length, code = _HEAD.unpack_from(data, at)
        payload = data[at + _HEAD.size : at + _HEAD.size + length]
        if len(payload) < length or crc32(payload) != code:
            return
        yield Told(number, list(_rows(payload)))
        at += _HEAD.size + length


def _rows(payload: bytes) -> Iterator[tuple[int, int, bytes]]:
    at = 0
    while at < len(payload):
        shard, part, length = _ROW.unpack_from(payload, at)
        at += _ROW.size
        yield shard, part, payload[at : at + length]
        at += length


def in_order(rows: Sequence[tuple[int, int, bytes]]) -> list[tuple[int, int, bytes]]:
    """By shard, then part."""
    return sorted(rows, key=lambda row: row[:2])
