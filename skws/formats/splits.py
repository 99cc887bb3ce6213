"""Finds replay files, cuts them into splits, and reads one split of any format.

A JSON lines file is cut into ranges of bytes, and a line belongs to the range in
which it starts; a Parquet file is cut into ranges of row groups. CSV files (whose
fields may contain line ends) and files that are compressed, in UTF-16 or one JSON
document are one split each.

The records of a split are packed into pieces, which move between processes as
bytes. A piece also has the properties that a planner needs, its times and contents,
so that dividing the work unpacks nothing.
"""

from __future__ import annotations

import csv
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import count
from pathlib import Path
from typing import Final, TypeVar

import numpy as np

from skws.data.batch import (
    BATCH,
    MEMORY_RECORDS,
    BadRecord,
    Chunk,
    Record,
    RecordBatch,
    chunked,
    concat_batches,
)
from skws.data.packing import pack
from skws.durable import explained
from skws.formats import files, jsonl, tabular
from skws.formats.files import (
    END,
    PACKED,
    SPLIT_BYTES,
    SUFFIXES,
    Advance,
    Format,
    Split,
    check_exists,
    ignore,
    opened,
    replay_entries,
    stem_of,
)
from skws.formats.jsonl import (
    LinesHold,
    bare_chunk_reader,
    chunk_reader,
    json_holds,
    reads_bare_columns,
    reads_columns,
)
from skws.formats.parquet import parquet
from skws.formats.rows import Origins
from skws_schema.budgets import check
from skws_schema.errors import SourceError, nearest
from skws_schema.model import Schema
from skws_schema.yaml.document import as_name

T = TypeVar("T")
LARGE_CSV: Final = 2 << 20
"""The least size in bytes of a CSV file read as columns: loading Arrow takes as long as reading it."""


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    format: Format
    relation: int | None


class NoRecordsError(SourceError):
    """A file that is not part of the replay: of another format, or of no relation.

    A folder may contain such files.
    """


def plan(
    path: Path,
    schema: Schema,
    *,
    split_bytes: int = SPLIT_BYTES,
    first: int = 0,
    relation: int | None = None,
    skip: Callable[[NoRecordsError], None] = lambda _: None,
) -> list[Split]:
    """The splits of a file, or of all files under a directory in order of name; ordinals from ``first``.

    Names that begin with ``.`` or ``_`` are skipped. A file or directory with
    the name of a relation (in any case) contains its bare rows, unless the first
    record of the file names its relation. ``relation``: the relation of the rows
    if no name determines it. ``skip`` gets the reason for each file of a directory that is left out: an
    unknown format, or no relation to which its rows may belong.

    Raises SourceError if the path does not exist, contains nothing to read, or is a file that would be left
    out.
    """
    skipped: list[NoRecordsError] = []
    if split_bytes < 1:
        raise ValueError(f"split_bytes must be positive, not {split_bytes}")
    try:
        if str(path) == "-":
            raise SourceError(
                "-: a replay is a file or directory; skws watch --source - reads standard input"
            )
        check_exists(path)
        files = list(visit_files(path, lambda paths: _file(paths, schema, relation), skipped.append))
        ordinals = count(first)
        splits = [split for file in files for split in _splits(file, split_bytes, ordinals)]
    except OSError as error:
        raise SourceError(f"{error.filename or path}: cannot read: {error.strerror}") from None
    if not files:
        reasons = "".join(f"\n{reason}" for reason in skipped[:_SHOWN])
        raise SourceError(f"{path}: no replay files in this directory ({_known_suffixes()}){reasons}")
    for reason in skipped:
        skip(reason)
    return splits


_SHOWN: Final = 3


def skipped_notes(skipped: Sequence[NoRecordsError]) -> list[str]:
    """Lines on a few files that were left out, those with advice first, and the number of the others."""
    by_advice = sorted(skipped, key=lambda error: not str(error).endswith((*_ADVICE.values(),)))
    lines = [f"skipped: {error}" for error in by_advice[:_SHOWN]]
    more_count = len(skipped) - _SHOWN
    return (
        [*lines, f"skipped: {more_count:,} more file{'' if more_count == 1 else 's'}"]
        if more_count > 0
        else lines
    )


def _known_suffixes() -> str:
    return ", ".join(SUFFIXES) + "; text files also in .gz, .bz2 or .zip"


def visit_files(
    path: Path, visit: Callable[[Sequence[Path]], T], skip: Callable[[NoRecordsError], None], *parents: Path
) -> Iterator[T]:
    """The results of ``visit`` for all files at and under a path; it gets the directories and the file.

    ``skip`` gets the errors that it raises for files of a directory.
    """
    paths = (*parents, path)
    if not path.is_dir():
        yield visit(paths)
        return
    for entry in replay_entries(path):
        try:
            yield from visit_files(entry, visit, skip, *paths)
        except NoRecordsError as reason:
            skip(reason)


def _file(paths: Sequence[Path], schema: Schema, explicit: int | None) -> _File:
    """The last of ``paths``; if no relation is given, the nearest name of a relation determines it."""
    relations = (relation_named(path, schema) for path in reversed(paths))
    relation = (
        next((candidate for candidate in relations if candidate is not None), None)
        if explicit is None
        else explicit
    )
    kind = format_of(paths[-1])
    return _File(paths[-1], kind, _bare_relation(paths[-1], kind, schema, relation))


_ADVICE: Final = {
    ".log": "; if its lines are JSON, give it a name with .jsonl",
    ".sql": "; load a dump into a database, and search that",
    ".xls": "; save its sheets as .csv",
    ".xlsx": "; save its sheets as .csv",
}
"""Advice for files of other common formats."""


def format_of(path: Path) -> Format:
    """The format by the suffix of the name. Raises SourceError for an unknown one."""
    suffixes = [s.lower() for s in path.suffixes]
    is_compressed = suffixes[-1:] != [] and suffixes[-1] in files.PACKED_SUFFIXES
    kind = SUFFIXES.get("".join(suffixes[-2:-1] if is_compressed else suffixes[-1:]))
    if kind is None or (is_compressed and kind not in PACKED):
        advice = _ADVICE.get("".join(suffixes[-1:]), "")
        if is_compressed and len(suffixes) == 1:
            advice = f"; give it a name that says what it holds, such as {path.stem}.csv{path.suffix}"
        raise NoRecordsError(f"{path}: unknown format; replay files end in {_known_suffixes()}{advice}")
    return kind


def relation_named(path: Path, schema: Schema) -> int | None:
    """The position of the relation whose name a file or directory has."""
    stem = stem_of(path)
    if stem in schema.index:
        return schema.index[stem]
    positions = {name.casefold(): position for name, position in schema.index.items()}
    return positions.get(stem.casefold(), positions.get(as_name(stem).casefold()))


def _bare_relation(path: Path, kind: Format, schema: Schema, relation: int | None) -> int | None:
    """``relation`` if the file contains bare rows, None if its records name their relation."""
    names_them = names_relations(path, kind, schema, relation)
    if names_them is None:
        return relation
    if names_them and not (relation is not None and has_relation_field(schema, relation)):
        return None
    if relation is None:
        stem = stem_of(path)
        raise NoRecordsError(
            f"{path}: its records name no relation, and no relation of schema {schema.name}"
            f" is called {stem!r}{nearest(stem, schema.index)}"
        )
    return relation


def has_relation_field(schema: Schema, relation: int) -> bool:
    """True if ``relation`` is a field of the rows of a relation, and does not name their relation."""
    return "relation" in Origins(schema.relations[relation]).known_names


def _splits(file: _File, split_bytes: int, ordinals: Iterator[int]) -> Iterator[Split]:
    size = file.path.stat().st_size
    if file.format is Format.PARQUET:
        ranges = parquet().group_ranges(file.path, split_bytes)
    elif file.format is Format.CSV or files.is_packed(file.path):
        ranges = [(0, END, size)]
    else:
        starts = range(0, max(size, 1), split_bytes)
        ranges = [(s, min(s + split_bytes, size), min(split_bytes, size - s)) for s in starts]
    for start, end, part in ranges:
        yield Split(file.path, file.format, file.relation, start, end, part, next(ordinals))


def read_split(split: Split, schema: Schema, advance: Advance = ignore) -> Iterator[Record | BadRecord]:
    """The records of ``split`` in order of arrival, including bad ones.

    ``advance`` is called with counts of bytes as they are read. Raises
    SourceError if the file cannot be read.
    """
    match split.format:
        case Format.JSON_LINES:
            return jsonl.read(split, schema, advance)
        case Format.CSV:
            return tabular.read(split, schema, advance)
        case Format.PARQUET:
            return parquet().read(split, schema, advance)


def chunks(split: Split, schema: Schema, advance: Advance = ignore) -> Iterator[Chunk]:
    """Like ``read_split``, many records at a time; read as columns if possible."""
    if reads_columns(split, schema):
        return chunk_reader(schema).read(split, advance)
    if reads_bare_columns(split, schema):
        return bare_chunk_reader(schema, split.relation or 0).read(split, advance)
    if split.format is Format.PARQUET:
        return parquet().chunks(split, schema, advance)
    if split.format is Format.CSV and split.relation is not None and split.size >= LARGE_CSV:
        from skws.formats import csv_columns  # noqa: PLC0415 - Arrow is slow to import

        return csv_columns.chunks(split, schema, advance)
    return chunked(read_split(split, schema, advance))


def names_relations(path: Path, kind: str, schema: Schema, relation: int | None) -> bool | None:
    """True if the records of a file of format ``kind`` name their relation; None if it has no record.

    ``relation``: the one whose bare rows it may contain. Raises SourceError if the file cannot be read.
    """
    if kind == "csv":
        header = csv_header(path)
        return "relation" in header if header else None
    if kind == "parquet":
        return "relation" in parquet().columns(path)
    holds = json_holds(path, schema, relation)
    return None if holds is None else holds is not LinesHold.ROWS


def csv_header(path: Path) -> list[str]:
    """The names of the columns."""
    with opened(path) as file:
        layout, lines = tabular.read_layout(file)
        try:
            reader = tabular.fields_of(map(tabular.as_text, lines), layout, strict=False)
            return tabular.column_names(next(filter(None, reader), []), layout.width)
        except csv.Error:
            return []


_MIXED: Final = BATCH // 8
"""The records of a piece of a split that is out of order; a merge holds one such piece for each split."""


class Holds(IntEnum):
    """The contents of a packed piece."""

    BAD = 0
    TABLE = 1
    RECORDS = 2
    TIME = 3
    """No records: ``last`` is the latest time that a task has seen, for tasks that are behind it."""


@dataclass(frozen=True, slots=True)
class PackedPiece:
    """The properties of a packed piece. ``split`` and ``number``: its position in the order of arrival.

    ``first`` and ``last``: its times in microseconds, 0 unless it contains records of streams, which are in
    order of time. ``size``: the number of rows, or of bad records. ``deletions``: the number of rows that
    delete. ``dequeues``: some of them delete by whole row, so that they end the oldest of equal rows.
    """

    split: int
    number: int
    holds: Holds
    first: int
    last: int
    size: int
    deletions: int = 0
    dequeues: bool = False

    @property
    def place(self) -> tuple[int, int]:
        """The position in the order of arrival."""
        return self.split, self.number

    @property
    def insertions(self) -> int:
        """The number of tuples that it inserts."""
        return self.size - self.deletions


class Packer:
    """Packs the records read from one split; its pieces are numbered in order of arrival.

    Records that arrive in order of time are packed as they arrive; others are sorted, many at a time.
    """

    def __init__(self, split: int, schema: Schema) -> None:
        self._split = split
        self._number = 0
        self._tables = [number for number, r in enumerate(schema.relations) if r.table]
        self._keys = [relation.key_of for relation in schema.relations]
        self._pending: list[RecordBatch] = []
        self._sorted = True

    def records(self, batch: RecordBatch) -> Iterator[tuple[PackedPiece, bytes]]:
        """Adds records in order of arrival; yields the pieces that they complete."""
        if self._tables and (is_static := np.isin(batch.relation, self._tables)).any():
            yield self._table(batch.take(is_static))
            batch = batch.take(~is_static)
        if not len(batch):
            return
        first = int(batch.time[0])
        in_order = not self._pending or first >= int(self._pending[-1].time[-1])
        self._sorted &= in_order and not (np.diff(batch.time) < 0).any()
        self._pending.append(batch)
        if sum(map(len, self._pending)) >= (BATCH if self._sorted else MEMORY_RECORDS):
            yield from self.rest()

    def bad(self, records: Sequence[BadRecord]) -> Iterator[tuple[PackedPiece, bytes]]:
        """Adds malformed records; yields their piece."""
        if records:
            yield self._next(Holds.BAD, 0, 0, len(records)), pickle.dumps(list(records), protocol=5)

    def rest(self) -> Iterator[tuple[PackedPiece, bytes]]:
        """The pieces of the records that are not packed yet; called after the last record."""
        pending, in_order = self._pending, self._sorted
        self._pending, self._sorted = [], True
        if not pending:
            return
        if in_order:
            yield self._pack_piece(pending)
            return
        batch = concat_batches(pending)
        batch = batch.take(np.argsort(batch.time, kind="stable"))
        for begin in range(0, len(batch), _MIXED):
            yield self._pack_piece([batch.take(slice(begin, begin + _MIXED))])

    def _pack_piece(self, batches: list[RecordBatch]) -> tuple[PackedPiece, bytes]:
        check()
        size = sum(map(len, batches))
        deleting_batches = [batch for batch in batches if batch.delete is not None]
        deletions = sum(int(batch.deletes().sum()) for batch in deleting_batches)
        first, last = int(batches[0].time[0]), int(batches[-1].time[-1])
        dequeues = any(map(self._dequeues, deleting_batches))
        piece = self._next(Holds.RECORDS, first, last, size, deletions, dequeues=dequeues)
        return piece, pack(concat_batches(batches))

    def _table(self, batch: RecordBatch) -> tuple[PackedPiece, bytes]:
        return self._next(Holds.TABLE, 0, 0, len(batch)), pack(batch)

    def _dequeues(self, batch: RecordBatch) -> bool:
        return any(
            self._keys[record.relation](record.row) is None
            for record in batch.take(batch.deletes()).records()
            if not record.truncates
        )

    def _next(
        self, holds: Holds, first: int, last: int, size: int, deletions: int = 0, *, dequeues: bool = False
    ) -> PackedPiece:
        self._number += 1
        return PackedPiece(self._split, self._number - 1, holds, first, last, size, deletions, dequeues)


def read_pieces(split: Split, schema: Schema) -> Iterator[tuple[PackedPiece, bytes]]:
    """The pieces of a split. Raises SourceError if the file cannot be read."""
    packer = Packer(split.ordinal, schema)
    with explained(f"{split.path}: cannot read", SourceError):
        for chunk in chunks(split, schema):
            yield from packer.bad(chunk.bad)
            yield from packer.records(chunk.records)
        yield from packer.rest()


def unpack_bad(blob: bytes) -> list[BadRecord]:
    """The records of a piece of kind ``BAD``."""
    records: list[BadRecord] = pickle.loads(blob)  # noqa: S301 - written by the same run
    return records
