"""Opening replay files: plain or gzip, counting the bytes that are read from disk."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeAlias

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
