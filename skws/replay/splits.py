"""Cutting replay files into splits, the parts that are read independently of each other.

A JSON lines file is cut into ranges of bytes, a range owning the lines that
start in it; a Parquet file into ranges of row groups. CSV (whose fields hold
line ends) and gzip files are one split each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from pathlib import Path
from typing import Final

from schema.errors import SourceError, nearest, nearest_file
from schema.model import Schema
from skws.replay.files import replay_entries
from skws.replay.peek import names_relations

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


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    format: Format
    relation: int | None


def plan(
    path: Path,
    schema: Schema,
    *,
    split_bytes: int = SPLIT_BYTES,
    first: int = 0,
    relation: int | None = None,
) -> list[Split]:
    """The splits of a file, or of all files under a directory in order of name; ordinals from ``first``.

    Names that begin with ``.`` or ``_`` are passed over. A file or directory
    named like a relation (in any case) holds its bare rows, unless the first
    record of the file names its relation itself. ``relation``: whose rows they
    are where no name tells.

    Raises SourceError: nothing there, nothing to read, an unknown format, or a
    file that belongs to no relation.
    """
    if split_bytes < 1:
        raise ValueError(f"split_bytes must be positive, not {split_bytes}")
    try:
        if str(path) == "-":
            raise SourceError(
                "-: a replay is a file or directory; skws watch --source - reads standard input"
            )
        if not path.exists():
            raise SourceError(f"{path}: no such file or directory{nearest_file(path)}")
        files = list(_files(path, schema, relation, by_name=relation is None))
        ordinals = count(first)
        splits = [split for file in files for split in _splits(file, split_bytes, ordinals)]
    except OSError as error:
        raise SourceError(f"{error.filename or path}: cannot read: {error.strerror}") from None
    if not files:
        raise SourceError(f"{path}: no replay files in this directory ({_known_suffixes()})")
    return splits


def _known_suffixes() -> str:
    return ", ".join(SUFFIXES) + "; .jsonl.gz, .csv.gz"


def _files(path: Path, schema: Schema, inherited: int | None, *, by_name: bool = True) -> Iterator[_File]:
    """The files at and under ``path``; ``inherited``: the relation that a directory above is named for.

    ``by_name``: whether a name tells a relation.
    """
    named = relation_named(path, schema) if by_name else None
    relation = inherited if named is None else named
    if path.is_dir():
        for entry in replay_entries(path):
            yield from _files(entry, schema, relation, by_name=by_name)
        return
    kind = format_of(path)
    yield _File(path, kind, _bare(path, kind, schema, relation))


def format_of(path: Path) -> Format:
    """The format that the name tells. Raises SourceError for a name that tells none."""
    suffixes = [s.lower() for s in path.suffixes]
    packed = suffixes[-1:] == [".gz"]
    kind = SUFFIXES.get((suffixes[-2:-1] if packed else suffixes[-1:] or [""])[0] if suffixes else "")
    if kind is None or (packed and kind not in PACKED):
        raise SourceError(f"{path}: unknown format; replay files end in {_known_suffixes()}")
    return kind


def relation_named(path: Path, schema: Schema) -> int | None:
    """The position of the relation that a file or directory is named for."""
    stem = path.name.split(".", 1)[0]
    if stem in schema.index:
        return schema.index[stem]
    folded = {name.casefold(): position for name, position in schema.index.items()}
    return folded.get(stem.casefold())


def _bare(path: Path, kind: Format, schema: Schema, relation: int | None) -> int | None:
    """``relation`` if the file holds bare rows, None if its records name their relation."""
    named = names_relations(path, kind, schema, relation)
    if named is None:
        return relation
    own = relation is not None and "relation" in schema.relations[relation].columns
    if named and not own:
        return None
    if relation is None:
        stem = path.name.split(".", 1)[0]
        raise SourceError(
            f"{path}: its records name no relation, and no relation of schema {schema.name}"
            f" is called {stem!r}{nearest(stem, schema.index)}"
        )
    return relation


def _splits(file: _File, split_bytes: int, ordinals: Iterator[int]) -> Iterator[Split]:
    size = file.path.stat().st_size
    if file.format is Format.PARQUET:
        from skws.replay.parquet import group_ranges  # noqa: PLC0415 - Arrow is slow to import

        ranges = group_ranges(file.path, split_bytes)
    elif file.format is Format.CSV or file.path.suffix.lower() == ".gz":
        ranges = [(0, END, size)]
    else:
        starts = range(0, max(size, 1), split_bytes)
        ranges = [(s, min(s + split_bytes, size), min(split_bytes, size - s)) for s in starts]
    for start, end, part in ranges:
        yield Split(file.path, file.format, file.relation, start, end, part, next(ordinals))
