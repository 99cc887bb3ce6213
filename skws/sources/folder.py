"""The files at a path, how far each has been read, and recognizing them when they are renamed or replaced."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from skws.formats.files import Format, entries, is_endless, is_packed
from skws.formats.splits import format_of, names_relations, relation_named
from skws.sources.feed import Offset, parse_offset
from skws_schema.errors import SourceError, nearest_file
from skws_schema.model import Schema

_ROTATED: Final = re.compile(r"\.([0-9]{1,9})\Z")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file; ``named``: the position of the relation that it, or a directory above it, is named after.

    ``whole``: it can be read only once it is complete.
    """

    name: str
    path: Path
    format: Format
    named: int | None
    inode: int
    size: int
    changed: int
    whole: bool

    @property
    def state(self) -> tuple[int, int, int]:
        """Changes with every write to the file."""
        return self.inode, self.size, self.changed

    def relation(self, schema: Schema) -> int | None:
        """The relation whose bare rows it holds; None if its records name their own. Raises SourceError."""
        if self.named is None:
            return None
        told = names_relations(self.path, self.format, schema, self.named)
        own = "relation" in schema.relations[self.named].columns
        return None if told and not own else self.named


@dataclass(frozen=True, slots=True)
class Listing:
    """The files in order of arrival; ``unknown``: names of unknown format."""

    files: tuple[SourceFile, ...]
    unknown: tuple[str, ...]


def listing(root: Path, schema: Schema) -> Listing:
    """The files at ``root``: the file, or all under a directory whose names do not begin with . or _.

    Raises SourceError if a directory cannot be read.
    """
    try:
        if not root.is_dir():
            return Listing(tuple(_file(root, root.name, schema, None)), ())
        unknown: list[str] = []
        files = sorted(_files(root, "", schema, None, unknown), key=lambda found: arrival(found.name))
        return Listing(tuple(files), tuple(unknown))
    except OSError as error:
        raise SourceError(f"{error.filename or root}: cannot read: {error.strerror}") from None


def arrival(name: str) -> tuple[str, int]:
    """The order in which files are read: by name, rotated ones (``x.jsonl.2``) before the newest."""
    number = _ROTATED.search(name)
    return (name[: number.start()], -int(number[1])) if number else (name, 0)


def check_path(root: Path) -> None:
    """Raises SourceError if the path does not exist, or is a file of unknown format."""
    if not root.exists():
        raise SourceError(f"{root}: no such file or directory{nearest_file(root)}")
    if is_endless(root):
        raise SourceError(f"{root}: not a file or directory; --source - reads a pipe")
    if not root.is_dir():
        format_of(root)


def _files(
    folder: Path, prefix: str, schema: Schema, inherited: int | None, unknown: list[str]
) -> Iterator[SourceFile]:
    named = relation_named(folder, schema)
    relation = inherited if named is None else named
    for entry in entries(folder):
        name = f"{prefix}{entry.name}"
        if entry.is_dir():
            yield from _files(entry, f"{name}/", schema, relation, unknown)
            continue
        if is_endless(entry):
            unknown.append(name)
            continue
        try:
            yield from _file(entry, name, schema, relation)
        except SourceError:
            unknown.append(name)


def _file(path: Path, name: str, schema: Schema, inherited: int | None) -> Iterator[SourceFile]:
    """The file, unless it has just gone. Raises SourceError if its format is unknown."""
    kind = format_of(path.with_name(_ROTATED.sub("", path.name)))
    named = relation_named(path, schema)
    try:
        state = path.stat()
        whole = kind is Format.PARQUET or is_packed(path)
    except FileNotFoundError:
        return
    yield SourceFile(
        name,
        path,
        kind,
        inherited if named is None else named,
        state.st_ino,
        state.st_size,
        state.st_mtime_ns,
        whole,
    )


HEAD_BYTES: Final = 1024


class Position(NamedTuple):
    """How much of one file was read.

    ``id``: of the file in this run; a file that is read from its start again gets another.
    ``at``: bytes read, or items of a file that arrives whole. ``head`` and ``crc``:
    length and checksum of the beginning of what was read. ``size``: of a whole file
    when reading began. ``done``: the file has no more items.
    """

    id: int
    at: int = 0
    head: int = 0
    crc: int = 0
    inode: int = 0
    size: int = 0
    done: bool = False

    def holds_for(self, found: SourceFile) -> bool:
        """Whether the file is still the one that was read. Raises OSError."""
        if self.at == 0 and not self.done:
            return True
        fits = found.size == self.size if found.whole else found.size >= self.at
        return fits and _checksum(found.path, self.head) == self.crc

    def moved(self, found: SourceFile, at: int, *, done: bool = False) -> Position:
        """The position after the latest read. Raises OSError."""
        head = min(found.size if found.whole else at, HEAD_BYTES)
        crc = self.crc if head == self.head else _checksum(found.path, head)
        return Position(self.id, at, head, crc, found.inode, found.size if found.whole else 0, done)


@dataclass(frozen=True, slots=True)
class Positions:
    """The positions in all files by name; ``next`` is the id of the next new file."""

    files: Mapping[str, Position]
    next: int = 0

    def offset(self) -> Offset:
        listed = {name: list(map(int, position)) for name, position in sorted(self.files.items())}
        return {"files": listed, "next": self.next}

    @classmethod
    def of(cls, offset: Offset) -> Positions:
        """Raises SourceError for an offset of another kind of source."""
        return parse_offset(offset, "files", lambda: cls._parse(offset))

    @classmethod
    def _parse(cls, offset: Offset) -> Positions:
        files = {name: Position._make(map(int, listed)) for name, listed in offset["files"].items()}
        return cls(files, int(offset["next"]))

    @property
    def by_id(self) -> dict[int, Position]:
        return {position.id: position for position in self.files.values()}


def _checksum(path: Path, length: int) -> int:
    with path.open("rb") as file:
        return zlib.crc32(file.read(length))


_NAMED: Final = 3


def match_files(positions: Positions, files: Sequence[SourceFile]) -> tuple[Positions, list[str]]:
    """Positions by the files' present names, new files from their start, and notices. Raises OSError.

    The same inode and beginning is the same file, whatever its name; so is the same
    name and beginning (a copy).
    """
    if positions.files and not files:
        # All gone at once: more likely an unmounted disk than every file deleted.
        return positions, []
    named = {found.name: found for found in files}
    inodes = {found.inode: found for found in files}
    kept: dict[str, Position] = {}
    notices: list[str] = []
    gone: list[str] = []
    for name, position in positions.files.items():
        now, moved = named.get(name), inodes.get(position.inode)
        if now is not None and now.inode == position.inode and position.holds_for(now):
            kept[name] = position
        elif moved is not None and moved.name != name and position.holds_for(moved):
            kept[moved.name] = position
            notices.append(f"{name} was renamed to {moved.name}; following it there")
        elif now is not None and position.holds_for(now):
            kept[name] = position
        elif now is not None:
            notices.append(_begun_anew(name, position, now))
        elif not arrival(name)[1]:  # rotation deletes the oldest files
            gone.append(name)
    number = positions.next
    for found in files:
        if found.name not in kept:
            kept[found.name] = Position(number, inode=found.inode)
            number += 1
    return Positions(kept, number), notices + _gone(gone)


def _gone(names: list[str]) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    verb = "is" if len(names) == 1 else "are"
    return [f"{', '.join(names[:_NAMED])}{more} {verb} gone; what was read of it stays in the search"]


def _begun_anew(name: str, position: Position, now: SourceFile) -> str:
    if not now.whole and now.inode == position.inode and now.size < position.at:
        return f"{name} was cut from at least {position.at:,} to {now.size:,} bytes: read from its start"
    return (
        f"{name} was replaced by another file: read from its start (what was unread in the old file is lost)"
    )
