"""Files whose bytes are not those of JSON lines or CSV in UTF-8: compressed, in UTF-16, or one JSON document.

They are turned into such bytes as they are read, so that the readers know one form. Such a file is read from
its start, in one piece.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, Final

import orjson

from skws_schema.errors import SourceError

_WIDE: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_MAC: Final = "__MACOSX/"
"""The folder of a zip in which macOS keeps what other systems have no place for."""
DOCUMENT_BYTES: Final = 1 << 30
"""The largest JSON document: it is read whole."""


def _zip_member(file: IO[bytes], path: Path) -> IO[bytes]:
    archive = zipfile.ZipFile(file)
    members = [one for one in archive.infolist() if not one.is_dir() and not one.filename.startswith(_MAC)]
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
SUFFIXES: Final = frozenset(_UNPACK)
"""The endings of compressed files."""
FAULTS: Final = (EOFError, OSError, zlib.error, zipfile.BadZipFile)
"""Raised while a file is read."""
_STREAMS: Final = {".gz": "gzip stream", ".bz2": "bzip2 stream"}


def fault(path: Path, error: BaseException) -> SourceError:
    """One of ``FAULTS`` as a message for the user."""
    if isinstance(error, EOFError):
        return SourceError(f"{path}: the {_STREAMS.get(path.suffix.lower(), 'file')} is cut off")
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    return SourceError(f"{path}: cannot read: {reason}")


def is_packed(path: Path) -> bool:
    """True if ``path`` is read in one piece. Raises OSError."""
    if path.suffix.lower() in SUFFIXES:
        return True
    state = path.stat()
    return _begins_packed(path, state.st_ino, state.st_size > 0)


@lru_cache(maxsize=10_000)
def _begins_packed(path: Path, _inode: int, _filled: bool) -> bool:
    """Cached: a followed file is asked for at each look."""
    with path.open("rb") as file:
        head = file.read(4096)
    return _is_wide(head) or _is_document(path, head)


def _is_wide(head: bytes) -> bool:
    """True for UTF-16 with a byte order mark; not for one line of it among others."""
    end = head.find(b"\n")
    zero = end + 1 if head.startswith(codecs.BOM_UTF16_LE) else end - 1
    return head.startswith(_WIDE) and (end < 0 or head[zero : zero + 1] in (b"", b"\0"))


def unpacked(path: Path, file: IO[bytes]) -> IO[bytes]:
    """The bytes of JSON lines or CSV in UTF-8. Raises SourceError, or one of ``FAULTS``."""
    unpack = _UNPACK.get(path.suffix.lower())
    plain: Any = file if unpack is None else io.BufferedReader(unpack(file, path))
    head = plain.peek(4096)[:4096]
    if _is_wide(head):
        plain = io.BufferedReader(_Recoded(path, plain))
        head = plain.peek(4096)[:4096]
    return io.BytesIO(b"".join(_lines(path, plain))) if _is_document(path, head) else plain


class _Recoded(io.RawIOBase):
    """UTF-16 as UTF-8."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path = path
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-16")()
        self._left = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while not self._left:
            block = self._file.read(1 << 16)
            try:
                self._left = self._decoder.decode(block, final=not block).encode()
            except UnicodeError as error:
                raise SourceError(f"{self._path}: not valid UTF-16: {error}; save it as UTF-8") from None
            if not block:
                break
        taken = self._left[: len(buffer)]
        buffer[: len(taken)] = taken
        self._left = self._left[len(taken) :]
        return len(taken)


def _is_document(path: Path, head: bytes) -> bool:
    """True for a ``.json`` file of one array, or of an object over several lines."""
    if ".json" not in (suffix.lower() for suffix in path.suffixes[-2:]):
        return False
    first = head.removeprefix(codecs.BOM_UTF8).lstrip().split(b"\n", 1)[0].rstrip()
    return first.startswith(b"[") or first == b"{"


def _lines(path: Path, file: IO[bytes]) -> Iterator[bytes]:
    text = file.read(DOCUMENT_BYTES + 1)
    if len(text) > DOCUMENT_BYTES:
        raise SourceError(
            f"{path}: a JSON document of more than {DOCUMENT_BYTES >> 30} GiB; make JSON lines: jq -c '.[]'"
        )
    try:
        items = orjson.loads(text.removeprefix(codecs.BOM_UTF8))
    except orjson.JSONDecodeError as error:
        raise SourceError(
            f"{path}: not one JSON document: {error}; turn several documents into JSON lines: jq -c . FILE"
        ) from None
    for item in items if isinstance(items, list) else [items]:
        yield orjson.dumps(item) + b"\n"
