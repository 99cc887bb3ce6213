"""Indexes on disk, made from their sources: in the cache of the machine, or in a file of the user's choice.

The first process that needs an index makes it; others wait for it. The source, the state of its data, and
the relations with the columns of their joins identify an index. It has rows, join values, words, and counts
of texts.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from skws import __version__
from skws.data.batch import BadRecord, Record, RecordBatch
from skws.durable import CACHE, cache_folder
from skws.formats import BadRecordLog
from skws.formats.files import Format, Split
from skws.formats.parquet import parquet
from skws.formats.rows import RowReader
from skws.formats.splits import plan, read_split
from skws.formats.stored_columns import typed_batches
from skws.index.database import StoredTuples, save_database_slots, save_slots
from skws.index.kept import DATABASES, TABLES, delete_old, locked_folder, locked_parent
from skws.index.postings import ChunkCollector, IndexFile, data_file, mark_of, packed_folder, save
from skws.index.table import (
    PART,
    TableIndex,
    TableRows,
    arrow_schema,
    write_rows,
)
from skws.index.values import join_values, row_identities
from skws.progress import Progress, ReportProgress, unreported
from skws.sources.addresses import Database, database_at, is_postgres, is_sqlite
from skws.sources.feed import redacted
from skws.spec.enums import OnError
from skws_mesh.columnar.columns import NULL, Flags, Ints
from skws_mesh.columnar.live import KeySets
from skws_schema.errors import SourceError, UsageError
from skws_schema.model import Relation, Row, Schema, Unknown, sourced

MOST = (1 << 32) - 1  # rows, whose numbers take 32 bits


def make_index(
    folder: Path,
    relation: Relation,
    key_sets: Sequence[tuple[int, ...]],
    batches: Iterable[pa.RecordBatch],
    passed_over: Mapping[str, int],
    report: Callable[[str, int, int | None], None],
) -> None:
    """Write the parts of a table's index into a folder; ``report`` receives the progress. Raises SourceError.

    ``passed_over``: the numbers of missing values in ``batches`` by reason, complete once all are read.
    """
    size = 0
    for size in write_rows(data_file(folder, "rows"), relation, batches):
        if size > MOST:
            raise SourceError(f"table {relation.name}: more than {MOST:,} rows")
        report("reading", size, None)
    rows = TableRows(pa.memory_map(str(data_file(folder, "rows"))), 0)
    superseded, occurrences = _find_repetitions(rows, relation, size)
    is_superseded = np.zeros(size, dtype=bool)
    is_superseded[superseded] = True
    for number, columns in enumerate(key_sets):
        report(f"joins {number + 1} of {len(key_sets)} of", size, size)
        values = _values_of_rows(rows, size, lambda b: join_values(b, columns))  # noqa: B023
        _save_join_index(folder, number, values, is_superseded)
    texts = _save_words(folder, relation, rows, is_superseded, lambda done: report("words of", done, size))
    save(folder, "gone", superseded)
    save(folder, "occurrences", occurrences)
    names = [[relation.attributes[column].name for column in columns] for columns in key_sets]
    meta = {"rows": size, "keys": names, "texts": texts, "passed_over": passed_over}
    data_file(folder, "meta").write_bytes(orjson.dumps(meta))


def make_parts(
    folder: Path,
    schema: Schema,
    batches: Callable[[RowReader], Iterator[pa.RecordBatch]],
    report: Callable[[int], None] = lambda _: None,
    unchanged: Mapping[int, IndexFile] = MappingProxyType({}),
) -> None:
    """Write the parts of the index of a database; ``report`` receives the number of rows read so far.

    ``unchanged``: the files with the parts of relations that need not be read. Raises SourceError, OSError.
    """
    rows_before = 0
    for number, relation in enumerate(schema.relations):
        subfolder = folder / str(number)
        subfolder.mkdir()
        if number in unchanged:
            unchanged[number].unpack(f"{number}/", subfolder)
            continue
        reader = RowReader(schema, number)
        rows_read = 0

        def report_reading(step: str, size: int, _of: int | None, before: int = rows_before) -> None:
            nonlocal rows_read
            if step == "reading":
                rows_read = size
                report(before + size)

        columns = KeySets(schema).columns[number]
        make_index(subfolder, relation, columns, batches(reader), reader.passed_over, report_reading)
        rows_before += rows_read
    save_database_slots(folder, schema)


def as_batches(rows: Iterable[Sequence[Any]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows as columns, in batches of PART rows."""
    pending: list[Sequence[Any]] = []
    for row in rows:
        pending.append(row)
        if len(pending) == PART:
            yield _batch(pending, schema)
            pending = []
    if pending:
        yield _batch(pending, schema)


def _batch(rows: list[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(values, kind) for values, kind in zip(columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _values_of_rows(rows: TableRows, size: int, values: Callable[[Any], Ints]) -> Ints:
    all_values = np.empty(size, dtype=np.int64)
    for first, block in rows.parts():
        all_values[first : first + len(block)] = values(block)
    return all_values


def _save_join_index(folder: Path, number: int, values: Ints, is_superseded: Flags) -> None:
    """Index the values of all rows except superseded ones."""
    rows = np.flatnonzero((values != NULL) & ~is_superseded)
    rows = rows[np.argsort(values[rows], kind="stable")]
    save(folder, f"join_{number}_values", values[rows])
    save(folder, f"join_{number}_rows", rows.astype(np.uint32))


def _save_words(
    folder: Path, relation: Relation, rows: TableRows, is_superseded: Flags, report: Callable[[int], None]
) -> dict[str, tuple[int, int]]:
    """Write the postings of all searched columns; returns each column's numbers of texts and characters."""
    texts = dict.fromkeys(relation.search, (0, 0))
    analyzers = {name: relation.attributes[relation.columns[name]].analyzer for name in relation.search}
    with closing(ChunkCollector(folder, dict.fromkeys(analyzers.values()))) as collector:
        for first, block in rows.parts():
            is_current = pa.array(~is_superseded[first : first + len(block)])
            for column, name in zip(relation.search_columns, relation.search, strict=True):
                column_texts = pc.if_else(is_current, block.texts(column), None)
                count, characters = texts[name]
                length = pc.sum(pc.utf8_length(column_texts)).as_py() or 0
                texts[name] = count + len(column_texts) - column_texts.null_count, characters + length
                collector.add(first, column_texts, analyzers[name])
            report(first + len(block))
        collector.save(folder)
    return texts


def _find_repetitions(rows: TableRows, relation: Relation, size: int) -> tuple[Ints, Ints]:
    """Rows whose key is repeated later, and (row, number of equal rows before it) for rows without a key."""
    values = _values_of_rows(rows, size, lambda block: row_identities(block, relation))
    order = np.argsort(values, kind="stable")
    equal = values[order[1:]] == values[order[:-1]]
    is_repeated = np.zeros(size, dtype=bool)
    is_repeated[1:] |= equal
    is_repeated[:-1] |= equal
    suspects = order[is_repeated]
    superseded: list[int] = []
    occurrences: list[tuple[int, int]] = []
    current, seen = None, dict[tuple[Any, ...], int]()
    for number, value, row in _numbered_rows(rows, suspects, values):
        if value != current:
            current, seen = value, {}
        key = relation.key_of(row)
        if key is not None:
            if key in seen:
                superseded.append(seen[key])
            seen[key] = number
        else:
            count = seen.get(row, 0)
            if count:
                occurrences.append((number, count))
            seen[row] = count + 1
    return (
        np.array(sorted(superseded), dtype=np.int64),
        np.array(sorted(occurrences), dtype=np.int64).reshape(len(occurrences), 2),
    )


def _numbered_rows(
    rows: TableRows, numbers: Ints, values: Ints
) -> Iterator[tuple[int, int, tuple[Any, ...]]]:
    for first in range(0, len(numbers), PART):
        part_numbers = numbers[first : first + PART]
        part_rows = rows.take(part_numbers).rows(np.arange(len(part_numbers)))
        yield from zip(part_numbers.tolist(), values[part_numbers].tolist(), part_rows, strict=True)


_REMEDY: Final = "the source of a table must have only rows of that table, whatever --on-error says"
_FORMAT: Final = 9
SPACE: Final = 1 << 20
"""The space for tuples of a stream after the rows of tables; beyond it, all columns are copied."""
_INDEX_PREFIX: Final = "index:"
"""Replaces a source by the file of its index, for processes that must see the same rows."""


def digest(text: str) -> str:
    """A short name for the data of an index: equal only for equal texts."""
    return blake2b(text.encode(errors="surrogateescape"), digest_size=16).hexdigest()


def open_tables(schema: Schema, report: ReportProgress = unreported) -> list[TableIndex]:
    """The indexes of all tables with a source; made if missing. Raises SkwsError."""
    return [_open_table(schema, number, report) for number in sourced(schema)]


def rows_of_tables(schema: Schema, relations: Collection[int]) -> Iterator[RecordBatch]:
    """All rows of some tables with their own source. Raises SkwsError."""
    for table in open_tables(schema):
        if table.relation not in relations:
            continue
        numbers = table.row_numbers()
        for part_numbers in np.split(numbers, range(PART, len(numbers), PART)):
            yield RecordBatch.of_block(table.rows(part_numbers), np.zeros_like(part_numbers))


def pinned(schema: Schema, report: ReportProgress = unreported, bad: BadRecordLog | None = None) -> Schema:
    """A schema with which other processes of this machine see the present state of the tables.

    ``bad`` receives the missing values in them.
    """
    relations = list(schema.relations)
    tables = open_tables(schema, report)
    if bad is not None:
        bad.take(passed_over(tables))
    for index in tables:
        source = f"{_INDEX_PREFIX}{index.path}"
        relations[index.relation] = replace(relations[index.relation], source=source)
    return replace(schema, relations=tuple(relations))


def _open_table(schema: Schema, number: int, report: ReportProgress) -> TableIndex:
    relation = schema.relations[number]
    if relation.source and relation.source.startswith(_INDEX_PREFIX):
        path = Path(relation.source.removeprefix(_INDEX_PREFIX))
        if not path.is_file():
            raise SourceError(
                f"table {relation.name}: its index {path} is not on this machine: set {CACHE} to a folder"
                " that all machines share"
            )
        return TableIndex(IndexFile(path), number, relation)
    source = table_source(schema, number)
    identity = source.identity()
    columns = sorted(KeySets(schema).columns[number])
    description = repr((_FORMAT, __version__, relation, columns))

    def report_rows(step: str, rows: int, total: int | None) -> None:
        report(Progress(f"{step} {relation.name}", rows, total, "rows"))

    try:
        subfolder = cache_folder(TABLES) / f"{relation.name}-{digest(description)}"
        path = subfolder / f"{digest(identity)}.index"
        with locked_folder(subfolder, f"table {relation.name} of {relation.source}"):
            if _ensure(
                path,
                path.stem,
                lambda to: make_index(
                    to, relation, columns, source.batches(), source.passed_over, report_rows
                ),
            ):
                _delete_others(path)
                delete_old(subfolder)
            return TableIndex(IndexFile(path), number, relation)
    except OSError as error:
        raise SourceError(
            f"table {relation.name}: cannot keep its index in {cache_folder(TABLES)}:"
            f" {error.strerror or error} ({CACHE} names another folder)"
        ) from None


def stored_tuples(schema: Schema, tables: Sequence[TableIndex]) -> StoredTuples:
    """All rows of indexed tables as tuples; their columns are made if missing. Raises SourceError."""
    names = [schema.relations[table.relation].name for table in tables]
    folder = cache_folder(TABLES) / f"tuples-{digest(repr((names, schema)))}"
    path, mark = folder / "index", repr((_FORMAT, __version__, [str(table.path) for table in tables]))
    try:
        with locked_folder(folder, f"searches of the tables {', '.join(names)}"):
            if _ensure(path, mark, lambda to: save_slots(to, schema, tables, SPACE)):
                delete_old(folder)
            return StoredTuples(IndexFile(path), tables)
    except OSError as error:
        raise SourceError(
            f"tables {', '.join(names)}: cannot keep an index in {folder}: {error.strerror or error}"
            f" ({CACHE} names another folder)"
        ) from None


def _delete_others(path: Path) -> None:
    """Delete the indexes of earlier states, except the latest, which may still be in use."""
    paths = [other for other in path.parent.glob("*.index") if other != path]
    for other in sorted(paths, key=lambda path: path.stat().st_mtime)[:-1]:
        other.unlink(missing_ok=True)


def database_index(
    database: Database, schema: Schema, file: Path | None, report: Callable[[int], None]
) -> StoredTuples:
    """The index of a database.

    ``file``: its file; None for one in the cache. It is made unless it has the present state of the data. The
    parts of tables that have not changed are copied from the file of an earlier state.

    Raises UsageError if ``file`` is another kind of file, SourceError.
    """
    path = file if file is not None else _cache_path(database, schema)
    if file is not None and file.exists() and not _is_index(file):
        raise UsageError(f"--index {path}: the file is not an index; expected an index or a new name")
    states = [_state(database, schema, number) for number in range(len(schema.relations))]
    mark = " ".join([__version__, str(_FORMAT), *states])

    def make(folder: Path) -> None:
        make_parts(folder, schema, partial(_batches_of, database), report, _unchanged(path, mark))

    try:
        if file is None:
            lock: AbstractContextManager[None] = locked_folder(path.parent, database.name)
        else:  # an index that is up to date need not wait for others in the folder
            lock = nullcontext() if _has_mark(path, mark) else locked_parent(path)
        with lock:
            is_new = _ensure(path, mark, make)
            index = StoredTuples.of_database(IndexFile(path), schema)
        if is_new and file is None:
            delete_old(path.parent)
    except (OSError, pa.ArrowException) as error:
        raise SourceError(f"{path}: cannot index: {error}") from None
    return index


def _state(database: Database, schema: Schema, number: int) -> str:
    """A text without blanks that changes whenever the rows of a relation or the schema do."""
    # The whole schema counts, since joins with other relations determine how values are read.
    return digest(f"{database.stamp([schema.relations[number]])} {number} {schema!r}")


def _unchanged(path: Path, mark: str) -> dict[int, IndexFile]:
    """The relations whose parts are in the file of an earlier state of the data, with that file."""
    with suppress(OSError, ValueError):
        file = IndexFile(path)
        (*earlier_version, earlier_states), (*version, states) = (
            text.split(" ", 2) for text in (file.mark, mark)
        )
        if earlier_version == version:
            pairs = enumerate(zip(earlier_states.split(), states.split(), strict=True))
            return {number: file for number, (earlier_state, state) in pairs if earlier_state == state}
    return {}


def passed_over(tables: Iterable[TableIndex]) -> Iterator[BadRecord]:
    """The values that were missing when the rows of some tables were read."""
    for table in tables:
        for reason, count in table.passed_over.items():
            yield BadRecord(str(table.path), 0, 0, b"", reason, passed_over=count)


def _cache_path(database: Database, schema: Schema) -> Path:
    """A file for each database and schema; the index of newer data replaces it."""
    folder = cache_folder(DATABASES) / digest(f"{database.identity} {schema!r}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SourceError(
            f"{database.name}: cannot keep its index in {folder.parent}: {error.strerror or error}"
            f" ({CACHE} names another folder, --index a file)"
        ) from None
    return folder / "index"


def _ensure(path: Path, mark: str, make: Callable[[Path], None]) -> bool:
    """Make an index, with its parts in a folder by ``make``, unless the file has this state of the data.

    Returns True if it was made.
    """
    if _has_mark(path, mark):
        return False
    with packed_folder(path, mark) as folder:
        make(folder)
    return True


def _has_mark(path: Path, mark: str) -> bool:
    with suppress(OSError):
        return mark_of(path) == mark
    return False


def _is_index(path: Path) -> bool:
    """True if a file is an index, perhaps one of an earlier version, which was an SQLite file."""
    with suppress(OSError):
        if mark_of(path) is not None:
            return True
    with suppress(sqlite3.Error), closing(sqlite3.connect(path)) as connection:
        return bool(connection.execute("SELECT mark FROM made").fetchone())
    return False


class TableSource(Protocol):
    """Rows of one relation. All methods may raise SourceError."""

    @property
    def passed_over(self) -> Mapping[str, int]:
        """The numbers of missing values in the batches so far, by reason."""

    def identity(self) -> str:
        """A text that changes whenever the rows change."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as columns. Raises BadRecordsError."""


def table_source(schema: Schema, number: int) -> TableSource:
    """The source of a relation that names one. Raises UsageError, SourceError."""
    address = schema.relations[number].source or ""
    if is_postgres(address) or is_sqlite(address):
        return _DatabaseTable(database_at(address), schema, number)
    if "://" in address:
        raise UsageError(f"{redacted(address)}: expected files, sqlite:FILE or postgresql://... for a table")
    return _FileTable(Path(address), schema, number)


@dataclass(frozen=True)
class _DatabaseTable:
    """The table of a database with the relation's name."""

    database: Database
    schema: Schema
    number: int

    @cached_property
    def _reader(self) -> RowReader:
        return RowReader(self.schema, self.number)

    @property
    def passed_over(self) -> Mapping[str, int]:
        return self._reader.passed_over

    def identity(self) -> str:
        return self.database.stamp([self._reader.relation])

    def batches(self) -> Iterator[pa.RecordBatch]:
        return _batches_of(self.database, self._reader)


def _batches_of(database: Database, reader: RowReader) -> Iterator[pa.RecordBatch]:
    """The rows of the reader's relation, with a column for each attribute. Raises SourceError."""
    return typed_batches(database.name, reader, database.values(reader.relation))


@dataclass(frozen=True)
class _FileTable:
    """Bare rows in a file, or in all files of a folder; the names of the files do not matter."""

    path: Path
    schema: Schema
    number: int
    passed_over: Counter[str] = field(default_factory=Counter)

    @cached_property
    def _splits(self) -> list[Split]:
        return plan(self.path, self._reading_schema, relation=self.number)

    @cached_property
    def _reading_schema(self) -> Schema:
        """The schema for reading: the relation has no source, so its rows are read as records.

        Unknown fields are errors, since nobody would see a note about them once the index is made.
        """
        relations = list(self.schema.relations)
        relations[self.number] = replace(relations[self.number], source=None)
        return replace(self.schema, relations=tuple(relations), unknown=Unknown.FAIL)

    def identity(self) -> str:
        files = dict.fromkeys(split.path.resolve() for split in self._splits)
        return repr([(str(file), (state := file.stat()).st_size, state.st_mtime_ns) for file in files])

    def batches(self) -> Iterator[pa.RecordBatch]:
        relation = self.schema.relations[self.number]
        paths: set[Path] = set()
        with BadRecordLog(OnError.FAIL, remedy=_REMEDY) as bad:
            for split in self._splits:
                if split.format is Format.PARQUET:
                    batches = (
                        parquet().table_batches(split.path, relation) if split.path not in paths else None
                    )
                    if batches is not None:
                        paths.add(split.path)
                        yield from batches
                    if split.path in paths:
                        continue
                records = bad.records(read_split(split, self._reading_schema))
                yield from as_batches(self._rows(split, records), arrow_schema(relation))
            self.passed_over.update(bad.passed_over)

    def _rows(self, split: Split, records: Iterator[Record]) -> Iterator[Row]:
        relations = self.schema.relations
        for record in records:
            if record.relation != self.number:
                raise SourceError(
                    f"{split.path}: holds a record of {relations[record.relation].name}; expected only rows"
                    f" of {relations[self.number].name}"
                )
            yield record.row
