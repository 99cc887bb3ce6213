"""How far each file has been read, and by what it is known again: renamed, cut, or replaced by another."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from schema.errors import SourceError
from skws.sources.feed import Offset
from skws.sources.files.folder import Found

HEAD_BYTES: Final = 1024


@dataclass(frozen=True, slots=True)
class Mark:
    """What was read of one file.

    ``id``: of this file in this run; a file that is begun anew gets another.
    ``at``: bytes read, or items where files arrive whole. ``head`` and
    ``crc``: length and checksum of the beginning of what was read. ``size``:
    of a whole file when it was begun; ``done``: nothing more comes of it.
    """

    id: int
    at: int = 0
    head: int = 0
    crc: int = 0
    inode: int = 0
    size: int = 0
    done: bool = False

    def holds_for(self, found: Found) -> bool:
        """Whether the file is still the one that was read. Raises OSError."""
        if self.at == 0 and not self.done:
            return True
        fits = found.size == self.size if found.whole else found.size >= self.at
        return fits and _checksum(found.path, self.head) == self.crc

    def moved(self, found: Found, at: int, *, done: bool = False) -> Mark:
        """The mark behind what was read just now. Raises OSError."""
        head = min(found.size if found.whole else at, HEAD_BYTES)
        crc = self.crc if head == self.head else _checksum(found.path, head)
        return Mark(self.id, at, head, crc, found.inode, found.size if found.whole else 0, done)


@dataclass(frozen=True, slots=True)
class Marks:
    """The marks of all files by name; ``next`` is the id of the next new file."""

    files: Mapping[str, Mark]
    next: int = 0

    def offset(self) -> Offset:
        listed = {name: self._listed(mark) for name, mark in sorted(self.files.items())}
        return {"files": listed, "next": self.next}

    @classmethod
    def of(cls, offset: Offset) -> Marks:
        """Raises SourceError for an offset of another kind of source."""
        try:
            files = {name: cls._mark(*map(int, listed)) for name, listed in offset["files"].items()}
            return cls(files, int(offset["next"]))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise SourceError(f"{offset!r} is no offset of files") from None

    @property
    def by_id(self) -> dict[int, Mark]:
        return {mark.id: mark for mark in self.files.values()}

    @staticmethod
    def _mark(number: int, at: int, head: int, crc: int, inode: int, size: int, done: int) -> Mark:
        return Mark(number, at, head, crc, inode, size, bool(done))

    @staticmethod
    def _listed(mark: Mark) -> list[Any]:
        return [mark.id, mark.at, mark.head, mark.crc, mark.inode, mark.size, int(mark.done)]


def _checksum(path: Path, length: int) -> int:
    with path.open("rb") as file:
        return zlib.crc32(file.read(length))
