"""Replay files: which there are, plain or gzip, with a count of the bytes that are read from disk."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeAlias

import orjson

from schema.errors import SourceError

Advance: TypeAlias = Callable[[int], None]
BLOCK = 1 << 20
BOM = b"\xef\xbb\xbf"


class CountedFile(io.FileIO):
    """A file that tells of every block read from it: progress at no cost per record."""

    def __init__(self, path: Path, advance: Advance) -> None:
        super().__init__(path)
        self._advance = advance

    def readinto(self, buffer: object, /) -> int:
        got = super().readinto(buffer)  # type: ignore[arg-type]  # the buffer protocol has no type in 3.11
        self._advance(got or 0)
        return got or 0


def ignore(_count: int) -> None:
    """Progress that nobody watches."""


def entries(folder: Path) -> list[Path]:
    """What a folder holds for a reader, in order of name.

    Passed over are names that begin with ``.`` or ``_``, and links to a folder
    above, which would never end. Raises OSError.
    """
    named = sorted(entry for entry in folder.iterdir() if not entry.name.startswith((".", "_")))
    return [entry for entry in named if not (entry.is_symlink() and _leads_up(entry))]


def replay_entries(folder: Path) -> list[Path]:
    """The same of a folder that is read to its end. Raises SourceError for a pipe or device, OSError."""
    found = entries(folder)
    for entry in found:
        if is_endless(entry):
            raise SourceError(f"{entry}: no file; a directory of replay files cannot hold pipes or devices")
    return found


def is_endless(path: Path) -> bool:
    """True for a pipe, a socket or a device: who opens one waits for its other end."""
    return path.exists() and not path.is_file() and not path.is_dir()


def not_json(text: bytes, error: ValueError) -> str:
    """Why ``text`` is no JSON, for a user to read."""
    try:
        text.decode()
    except UnicodeDecodeError as fault:
        wide = text.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        remedy = "; it begins like UTF-16, save the file as UTF-8" if wide else ""
        return f"not UTF-8: byte 0x{text[fault.start]:02X} at column {fault.start + 1}{remedy}"
    if not isinstance(error, orjson.JSONDecodeError):
        return f"not JSON: {error}"
    return f"not JSON: {error.msg} (column {error.pos + 1})"


def _leads_up(link: Path) -> bool:
    return link.is_dir() and link.parent.resolve().is_relative_to(link.resolve())


@contextmanager
def opened(path: Path, advance: Advance = ignore) -> Iterator[IO[bytes]]:
    """The bytes of ``path``, unpacked if it is gzip, to be read inside the ``with``.

    Raises SourceError where it cannot be opened or, inside, read: no such
    file, no permission, a gzip stream that is cut or damaged.
    """
    try:
        with io.BufferedReader(CountedFile(path, advance), BLOCK) as file:
            yield gzip.GzipFile(fileobj=file) if path.suffix.lower() == ".gz" else file  # type: ignore[misc]
    except EOFError:
        raise SourceError(f"{path}: the gzip stream is cut off") from None
    except (OSError, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise SourceError(f"{path}: cannot read: {reason}") from None
