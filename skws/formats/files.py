"""Replay files: their formats, the parts they are read in, and opening them."""

from __future__ import annotations

import codecs
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Final, TypeAlias

import orjson

from skws.durable.files import explained
from skws.formats.unpacked import FAULTS, fault, unpacked
from skws_schema.errors import SourceError

Advance: TypeAlias = Callable[[int], None]
BLOCK = 1 << 20
BOM = codecs.BOM_UTF8
SAVE_AS_UTF8: Final = "save the file as UTF-8, as by iconv -f WINDOWS-1252 -t UTF-8"
KEPT_SCHEMA: Final = ".schema.yaml"
"""Ends the names of schemas kept beside data, which are no data."""


class CountedFile(io.FileIO):
    """A file that reports every block read from it: progress at no cost per record."""

    def __init__(self, path: Path, advance: Advance) -> None:
        super().__init__(path)
        self._advance = advance

    def readinto(self, buffer: object, /) -> int:
        got = super().readinto(buffer)  # type: ignore[arg-type]  # the buffer protocol has no type in 3.11
        self._advance(got or 0)
        return got or 0


def ignore(_count: int) -> None:
    """Ignores progress."""


def entries(folder: Path) -> list[Path]:
    """The entries of a folder to read, in order of name.

    Skips names that begin with ``.`` or ``_``, schemas kept beside data, and
    links to a folder above, which would never end. Raises OSError.
    """
    named = sorted(
        entry
        for entry in folder.iterdir()
        if not entry.name.startswith((".", "_")) and not entry.name.endswith(KEPT_SCHEMA)
    )
    return [entry for entry in named if not (entry.is_symlink() and _leads_up(entry))]


def replay_entries(folder: Path) -> list[Path]:
    """``entries`` of a folder of replay files. Raises SourceError for a pipe or device, OSError."""
    found = entries(folder)
    for entry in found:
        if is_endless(entry):
            raise SourceError(f"{entry}: not a file; replay directories cannot hold pipes or devices")
    return found


def is_endless(path: Path) -> bool:
    """True for a pipe, a socket or a device: opening one waits for its other end."""
    return path.exists() and not path.is_file() and not path.is_dir()


def not_json(text: bytes, error: ValueError) -> str:
    """Why ``text`` is not JSON, as a message for the user."""
    try:
        text.decode()
    except UnicodeDecodeError as wrong:
        return f"not UTF-8: byte 0x{text[wrong.start]:02X} at column {wrong.start + 1}; {SAVE_AS_UTF8}"
    if not isinstance(error, orjson.JSONDecodeError):
        return f"not JSON: {error}"
    return f"not JSON: {error.msg} (column {error.pos + 1})"


def _leads_up(link: Path) -> bool:
    return link.is_dir() and link.parent.resolve().is_relative_to(link.resolve())


@contextmanager
def opened(path: Path, advance: Advance = ignore) -> Iterator[IO[bytes]]:
    """The bytes of ``path`` as JSON lines or CSV in UTF-8, to be read inside the ``with``.

    Raises SourceError where it cannot be opened or, inside, read: no such
    file, no permission, compressed data that is cut or damaged.
    """
    try:
        with io.BufferedReader(CountedFile(path, advance), BLOCK) as file:
            yield unpacked(path, file)
    except FAULTS as error:
        raise fault(path, error) from None


def line_count(file: IO[bytes], size: int) -> int:
    """How many lines end in the next ``size`` bytes."""
    lines = 0
    while size > 0 and (block := file.read(min(size, BLOCK))):
        lines += block.count(b"\n")
        size -= len(block)
    return lines


SPLIT_BYTES: Final = 8 << 20  # small, so that a few cores share even a small replay
END: Final = 2**63 - 1


class Format(StrEnum):
    """Formats of replay files."""

    JSON_LINES = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


SUFFIXES: Final = {
    ".jsonl": Format.JSON_LINES,
    ".ndjson": Format.JSON_LINES,
    ".json": Format.JSON_LINES,
    ".csv": Format.CSV,
    ".tsv": Format.CSV,
    ".parquet": Format.PARQUET,
}
PACKED: Final = frozenset({Format.JSON_LINES, Format.CSV})


@dataclass(frozen=True, slots=True)
class Split:
    """A part of a replay file, small and picklable.

    ``relation``: the position of the relation whose bare rows the file holds,
    None if its records name their relation. ``start`` to ``end`` counts bytes
    (row groups in Parquet), end exclusive. ``size``: bytes on disk.
    ``ordinal``: its place in the order of arrival.
    """

    path: Path
    format: Format
    relation: int | None
    start: int
    end: int
    size: int
    ordinal: int


_TEMPORARY: Final = "cannot write a temporary file"


class Spool:
    """A temporary file without a name, shared by the processes of a run: it is gone with the last of them.

    One process at a time writes to it.
    """

    def __init__(self, file: int | None = None) -> None:
        with explained(_TEMPORARY, SourceError):
            self._file = TemporaryFile(prefix="skws-") if file is None else os.fdopen(file, "r+b")  # noqa: SIM115
        self.size = 0

    @property
    def number(self) -> int:
        """The number of the file in this process."""
        return self._file.fileno()

    def append(self, data: bytes) -> int:
        """Write to the end; gives the place. Raises SourceError if the disk is full."""
        place, rest = self.size, memoryview(data)
        with explained(_TEMPORARY, SourceError):
            while rest:
                written = os.pwrite(self.number, rest, self.size)
                self.size += written
                rest = rest[written:]
        return place

    def read(self, place: int, size: int) -> bytes:
        parts = []
        while size > 0 and (part := os.pread(self.number, size, place)):
            parts.append(part)
            place, size = place + len(part), size - len(part)
        return b"".join(parts)

    def empty(self) -> None:
        """Give its room on the disk back."""
        os.truncate(self.number, 0)

    def close(self) -> None:
        self._file.close()

    def __reduce__(self) -> Any:
        """Only for a process that is being started."""
        from multiprocessing.reduction import DupFd  # noqa: PLC0415 - only where there are several processes

        return _received, (DupFd(self.number),)


def _received(file: Any) -> Spool:
    return Spool(file.detach())
