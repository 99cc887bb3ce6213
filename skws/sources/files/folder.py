"""The files at a path, as they are at one moment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from schema.errors import SourceError, nearest_file
from schema.model import Schema
from skws.replay.files import entries, is_endless
from skws.replay.peek import names_relations
from skws.replay.splits import Format, format_of, relation_named

_ROTATED: Final = re.compile(r"\.([0-9]{1,9})\Z")


@dataclass(frozen=True, slots=True)
class Found:
    """A file; ``named``: the position of the relation that it, or a directory above it, is named for."""

    name: str
    path: Path
    format: Format
    named: int | None
    inode: int
    size: int
    changed: int

    @property
    def whole(self) -> bool:
        """Whether it can be read only once it is complete."""
        return self.format is Format.PARQUET or self.path.suffix.lower() == ".gz"

    @property
    def state(self) -> tuple[int, int, int]:
        """Differs when anything was written to it."""
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
    """The files in order of arrival; ``unknown``: names whose format cannot be told."""

    files: tuple[Found, ...]
    unknown: tuple[str, ...]


def listing(root: Path, schema: Schema) -> Listing:
    """What is at ``root`` now: a file, or all files under a directory but those that begin with . or _.

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
    """The order in which files are read: by name, what was rotated (``x.jsonl.2``) before what is new."""
    number = _ROTATED.search(name)
    return (name[: number.start()], -int(number[1])) if number else (name, 0)


def check_path(root: Path) -> None:
    """Raises SourceError if there is nothing, or a file of unknown format."""
    if not root.exists():
        raise SourceError(f"{root}: no such file or directory{nearest_file(root)}")
    if is_endless(root):
        raise SourceError(f"{root}: no file or directory; what comes through a pipe is read by --source -")
    if not root.is_dir():
        format_of(root)


def _files(
    folder: Path, prefix: str, schema: Schema, inherited: int | None, unknown: list[str]
) -> Iterator[Found]:
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


def _file(path: Path, name: str, schema: Schema, inherited: int | None) -> Iterator[Found]:
    """The file, unless it is gone this moment. Raises SourceError if its format is unknown."""
    kind = format_of(path.with_name(_ROTATED.sub("", path.name)))
    named = relation_named(path, schema)
    try:
        state = path.stat()
    except FileNotFoundError:
        return
    yield Found(
        name,
        path,
        kind,
        inherited if named is None else named,
        state.st_ino,
        state.st_size,
        state.st_mtime_ns,
    )
