"""Replay files: their formats, the splits in which they are read, and opening them.

Files that are compressed, in UTF-16, or one JSON document become JSON lines or CSV in UTF-8 as they are
read, so that the readers handle only one form. Such a file is read from its start, in one piece.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from lzma import LZMAError
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Final, TypeAlias

import orjson

from skws.durable import explained
from skws.formats.exact_json import loads
from skws.results.result import dumped
from skws_schema.errors import TOO_DEEP, SourceError, nearest_file

_WIDE: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
MAC: Final = "cr"
_LONE_RETURN: Final = re.compile(rb"\r[^\n]")
_MAC: Final = "__MACOSX/"
"""The folder in a zip in which macOS stores metadata."""
DOCUMENT_BYTES: Final = 1 << 30
"""The size limit of a JSON document, which is read as a whole."""


def _zip_member(file: IO[bytes], path: Path) -> IO[bytes]:
    archive = zipfile.ZipFile(file)
    members = [
        member
        for member in archive.infolist()
        if not member.is_dir() and not member.filename.startswith(_MAC)
    ]
    if len(members) != 1:
        raise SourceError(f"{path}: expected one file in the zip, found {len(members)}; unpack it first")
    try:
        return archive.open(members[0])
    except RuntimeError as error:
        raise SourceError(f"{path}: cannot read: {error}") from None


_UNPACK: Final[dict[str, Callable[[IO[bytes], Path], Any]]] = {
    ".gz": lambda file, _: gzip.GzipFile(fileobj=file),
    ".bz2": lambda file, _: bz2.BZ2File(file),
    ".zip": _zip_member,
}
PACKED_SUFFIXES: Final = frozenset(_UNPACK)
"""The suffixes of compressed files."""
FAULTS: Final = (EOFError, OSError, zlib.error, LZMAError, zipfile.BadZipFile)
"""Errors that are raised while a file is read."""
_HEAD: Final = 4096
"""The bytes of a file that show its encoding, and whether it is a document."""
_STREAMS: Final = {".gz": "gzip stream", ".bz2": "bzip2 stream"}


def fault(path: Path, error: BaseException) -> SourceError:
    """One of ``FAULTS`` as a message for the user."""
    if isinstance(error, EOFError):
        return SourceError(f"{path}: the {_STREAMS.get(path.suffix.lower(), 'file')} is cut off")
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    return SourceError(f"{path}: cannot read: {reason}")


def is_packed(path: Path) -> bool:
    """True if ``path`` is read in one piece. Raises OSError."""
    if path.suffix.lower() in PACKED_SUFFIXES:
        return True
    state = path.stat()
    return _has_packed_head(path, state.st_ino, min(state.st_size, _HEAD))


@lru_cache(maxsize=10_000)
def _has_packed_head(path: Path, _inode: int, _size: int) -> bool:
    """Cached, because every poll asks for each followed file; a head that grows may be another one."""
    with path.open("rb") as file:
        head = file.read(_HEAD)
    return _recoding(head) is not None or _is_document(path, head)


def _recoding(head: bytes) -> str | None:
    """The encoding of a file with this beginning if it must be recoded; None if it is read unchanged.

    UTF-16, also without a byte order mark; or ``MAC``, in which CR alone ends lines.
    """
    if _is_wide(head):
        return "utf-16"
    if b"\0" in head:
        even, odd = head[0::2].count(0), head[1::2].count(0)
        if (even == 0 or odd == 0) and max(even, odd) > len(head) // 20:
            return "utf-16-le" if even == 0 else "utf-16-be"
    return MAC if b"\n" not in head and _LONE_RETURN.search(head) else None


def _is_wide(head: bytes) -> bool:
    """True for UTF-16 with a byte order mark; False if only the first line is UTF-16."""
    end = head.find(b"\n")
    zero_index = end + 1 if head.startswith(codecs.BOM_UTF16_LE) else end - 1
    return head.startswith(_WIDE) and (end < 0 or head[zero_index : zero_index + 1] in (b"", b"\0"))


def unpack(path: Path, file: IO[bytes]) -> IO[bytes]:
    """The bytes of JSON lines or CSV in UTF-8. Raises SourceError, or one of ``FAULTS``."""
    unpacker = _UNPACK.get(path.suffix.lower())
    plain: Any = file if unpacker is None else io.BufferedReader(unpacker(file, path))
    head = plain.peek(_HEAD)[:_HEAD]
    while (recoding := _recoding(head)) is not None:
        plain = io.BufferedReader(_Recoded(path, plain, recoding))
        head = plain.peek(_HEAD)[:_HEAD]
    return io.BytesIO(b"".join(_lines(path, plain))) if _is_document(path, head) else plain


class _Recoded(io.RawIOBase):
    """UTF-16 recoded as UTF-8, or lines that end in CR as lines that end in LF."""

    def __init__(self, path: Path, file: IO[bytes], recoding: str) -> None:
        self._path = path
        self._file = file
        self._ends_lines_with_cr = recoding == MAC
        self._decoder = codecs.getincrementaldecoder("utf-8" if self._ends_lines_with_cr else recoding)()
        self._buffer = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while not self._buffer:
            block = self._file.read(1 << 16)
            try:
                if self._ends_lines_with_cr:
                    self._buffer = block.replace(b"\r", b"\n")
                else:
                    self._buffer = self._decoder.decode(block, final=not block).encode()
            except UnicodeError as error:
                raise SourceError(f"{self._path}: not valid UTF-16: {error}; save it as UTF-8") from None
            if not block:
                break
        chunk = self._buffer[: len(buffer)]
        buffer[: len(chunk)] = chunk
        self._buffer = self._buffer[len(chunk) :]
        return len(chunk)


def _is_document(path: Path, head: bytes) -> bool:
    """True for a ``.json`` file with one array, or one object over several lines.

    The first line of such a file leaves the array or object open.
    """
    if ".json" not in (suffix.lower() for suffix in path.suffixes[-2:]):
        return False
    first = head.removeprefix(codecs.BOM_UTF8).lstrip().split(b"\n", 1)[0].rstrip()
    return first.startswith(b"[") or (first.startswith(b"{") and first.endswith((b"{", b"[", b",")))


def _lines(path: Path, file: IO[bytes]) -> Iterator[bytes]:
    text = file.read(DOCUMENT_BYTES + 1)
    if len(text) > DOCUMENT_BYTES:
        raise SourceError(
            f"{path}: a JSON document of more than {DOCUMENT_BYTES >> 30} GiB; make JSON lines: jq -c '.[]'"
        )
    try:
        items = loads(text.removeprefix(codecs.BOM_UTF8))
    except orjson.JSONDecodeError as error:
        raise SourceError(
            f"{path}: not one JSON document: {error}; turn several documents into JSON lines: jq -c . FILE"
        ) from None
    for item in items if isinstance(items, list) else [items]:
        yield _line(item)


def _line(item: object) -> bytes:
    """A line of JSON; orjson writes up to 254 levels, and Python about 900."""
    try:
        return dumped(item) + b"\n"
    except RecursionError:
        return b'"%b"\n' % TOO_DEEP.encode()


Advance: TypeAlias = Callable[[int], None]
BLOCK = 1 << 20
BOM = codecs.BOM_UTF8
SAVE_AS_UTF8: Final = "save the file as UTF-8, as by iconv -f WINDOWS-1252 -t UTF-8"
SCHEMA_SUFFIX: Final = ".schema.yaml"
"""The suffix of schema files that skws keeps beside data; they are not data."""


class CountedFile(io.FileIO):
    """A file that reports every block read from it: progress at no cost per record."""

    def __init__(self, path: Path, advance: Advance) -> None:
        super().__init__(path)
        self._advance = advance

    def readinto(self, buffer: object, /) -> int:
        count = super().readinto(buffer)  # type: ignore[arg-type]  # the buffer protocol has no type in 3.11
        self._advance(count or 0)
        return count or 0


class _Beginning(io.RawIOBase):
    """The next bytes of a file, ``size`` at most."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file = file
        self._remaining = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        data = self._file.read(min(len(buffer), self._remaining))
        buffer[: len(data)] = data
        self._remaining -= len(data)
        return len(data)


def ignore(_count: int) -> None:
    """Ignores progress."""


def own_name(path: Path) -> str:
    """The name of a file or folder; for ``.`` and ``..`` that of the folder which they denote."""
    return path.resolve().name if path.name in ("", "..") else path.name


def stem_of(path: Path) -> str:
    """The name of a file or folder without suffixes, and without the dot of a hidden one."""
    return own_name(path).lstrip(".").split(".", 1)[0]


def entries(folder: Path) -> list[Path]:
    """The entries of a folder that are read, in order of name.

    Skips names that begin with ``.`` or ``_``, schemas stored beside data, and links
    to a folder above, which would be read again and again. Raises OSError.
    """
    return [folder / entry.name for entry in named_entries(folder)]


def named_entries(folder: Path) -> list[os.DirEntry[str]]:
    """Like ``entries``, with the attributes that the system returned for them."""
    with os.scandir(folder) as directory:
        data_entries = [
            entry
            for entry in directory
            if not entry.name.startswith((".", "_")) and not entry.name.endswith(SCHEMA_SUFFIX)
        ]
    data_entries.sort(key=lambda entry: entry.name)
    return [entry for entry in data_entries if not (entry.is_symlink() and _leads_up(folder / entry.name))]


def replay_entries(folder: Path) -> list[Path]:
    """``entries`` of a folder of replay files. Raises SourceError for a pipe or device, OSError."""
    all_entries = entries(folder)
    for entry in all_entries:
        if is_endless(entry):
            raise SourceError(f"{entry}: not a file; replay directories cannot hold pipes or devices")
    return all_entries


def check_exists(path: Path) -> None:
    """Raises SourceError if there is no file or directory at a path, or its state cannot be read."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a NUL in the path
        raise SourceError(f"{path}: no such file or directory{nearest_file(path)}") from None
    except OSError as error:
        raise SourceError(f"{path}: cannot read: {error.strerror}") from None


def is_endless(path: Path) -> bool:
    """True for a pipe, a socket or a device: opening one waits for its other end."""
    return path.exists() and not path.is_file() and not path.is_dir()


def not_json(text: bytes, error: ValueError, remedy: str = SAVE_AS_UTF8) -> str:
    """The reason why ``text`` is not JSON, for the user; ``remedy``: advice if it is not UTF-8."""
    try:
        text.decode()
    except UnicodeDecodeError as invalid:
        return f"not UTF-8: byte 0x{text[invalid.start]:02X} at column {invalid.start + 1}; {remedy}"
    if not isinstance(error, orjson.JSONDecodeError):
        return f"not JSON: {error}"
    return f"not JSON: {error.msg} (column {error.pos + 1})"


def _leads_up(link: Path) -> bool:
    """True for a link to a folder above it, also above a link through which the folder was reached."""
    if not link.is_dir():
        return False
    target = link.resolve()
    return any(parent.resolve().is_relative_to(target) for parent in link.parents)


END: Final = 2**63 - 1
"""The end of a file, as an offset in bytes."""


@contextmanager
def opened(path: Path, advance: Advance = ignore, end: int = END) -> Iterator[IO[bytes]]:
    """The bytes of ``path``, or the first ``end``, as JSON lines or CSV in UTF-8, read inside the ``with``.

    Raises SourceError if it cannot be opened or, inside, read: no such
    file, no permission, compressed data that is truncated or damaged.
    """
    try:
        with io.BufferedReader(CountedFile(path, advance), BLOCK) as file:
            yield unpack(path, file if end == END else io.BufferedReader(_Beginning(file, end), BLOCK))
    except FAULTS as error:
        raise fault(path, error) from None


def line_count(file: IO[bytes], size: int) -> int:
    """The number of lines that end in the next ``size`` bytes."""
    lines = 0
    while size > 0 and (block := file.read(min(size, BLOCK))):
        lines += block.count(b"\n")
        size -= len(block)
    return lines


SPLIT_BYTES: Final = 8 << 20  # small, so that even a small replay is shared by a few cores


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

    ``relation``: the position of the relation whose bare rows the file contains,
    None if its records name their relation. ``start`` to ``end`` counts bytes
    (row groups in Parquet), end exclusive. ``size``: bytes on disk.
    ``ordinal``: its position in the order of arrival.
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
    """A temporary file without a name, shared by the processes of a run; the last of them removes it.

    Only one process at a time writes to it.
    """

    def __init__(self, file: int | None = None) -> None:
        with explained(_TEMPORARY, SourceError):
            self._file = TemporaryFile(prefix="skws-") if file is None else os.fdopen(file, "r+b")  # noqa: SIM115
        self.size = 0

    @property
    def number(self) -> int:
        """The descriptor of the file in this process."""
        return self._file.fileno()

    def append(self, data: bytes) -> int:
        """Append data; returns its offset. Raises SourceError if the disk is full."""
        offset, remaining = self.size, memoryview(data)
        with explained(_TEMPORARY, SourceError):
            while remaining:
                count = os.pwrite(self.number, remaining, self.size)
                self.size += count
                remaining = remaining[count:]
        return offset

    def read(self, offset: int, size: int) -> bytes:
        parts = []
        while size > 0 and (part := os.pread(self.number, size, offset)):
            parts.append(part)
            offset, size = offset + len(part), size - len(part)
        return b"".join(parts)

    def empty(self) -> None:
        """Free its space on the disk."""
        os.truncate(self.number, 0)

    def close(self) -> None:
        self._file.close()

    def __reduce__(self) -> Any:
        """Works only while a process is being started."""
        from multiprocessing.reduction import DupFd  # noqa: PLC0415 - needed by several processes only

        return _receive_spool, (DupFd(self.number),)


def _receive_spool(file: Any) -> Spool:
    return Spool(file.detach())
