"""Sources of a table's rows: files, a SQLite file, a PostgreSQL server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa

from skws.data.record import Record
from skws.formats import BadRecordLog
from skws.formats.files import Format, Split
from skws.formats.splits import plan, read_split
from skws.index.make import as_batches
from skws.index.rows import arrow_schema
from skws.sources.addresses import is_postgres
from skws.sources.databases import Database, database_at, is_sqlite
from skws.sources.feed import redacted
from skws.spec.enums import OnError
from skws_schema.errors import SourceError, UsageError
from skws_schema.model import Row, Schema

_REMEDY: Final = "the source of a table has rows of that table only, whatever --on-error says"


class TableSource(Protocol):
    """Rows of one relation. All methods may raise SourceError."""

    def identity(self) -> str:
        """A text that changes whenever the rows change."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as columns. Raises BadRecordsError."""


def table_source(schema: Schema, number: int) -> TableSource:
    """The source of a relation that names one. Raises UsageError, SourceError."""
    address = schema.relations[number].source or ""
    if is_postgres(address) or is_sqlite(address):
        return _InDatabase(database_at(address), schema, number)
    if "://" in address:
        raise UsageError(f"{redacted(address)}: a table is in files, sqlite:FILE or postgresql://...")
    return _Files(Path(address), schema, number)


@dataclass(frozen=True)
class _InDatabase:
    """The table of a database with the relation's name."""

    database: Database
    schema: Schema
    number: int

    def identity(self) -> str:
        return self.database.stamp([self.schema.relations[self.number]])

    def batches(self) -> Iterator[pa.RecordBatch]:
        relation = self.schema.relations[self.number]
        return as_batches(self.database.rows(relation), arrow_schema(relation))


@dataclass(frozen=True)
class _Files:
    """Bare rows in a file, or in all files of a folder; names do not matter."""

    path: Path
    schema: Schema
    number: int

    @cached_property
    def _splits(self) -> list[Split]:
        return plan(self.path, self._reading, relation=self.number)

    @cached_property
    def _reading(self) -> Schema:
        """The schema with the relation as one whose rows come in records."""
        relations = list(self.schema.relations)
        relations[self.number] = replace(relations[self.number], source=None)
        return replace(self.schema, relations=tuple(relations))

    def identity(self) -> str:
        files = dict.fromkeys(split.path.resolve() for split in self._splits)
        return repr([(str(file), (found := file.stat()).st_size, found.st_mtime_ns) for file in files])

    def batches(self) -> Iterator[pa.RecordBatch]:
        relation = self.schema.relations[self.number]
        read: set[Path] = set()
        with BadRecordLog(OnError.FAIL, remedy=_REMEDY) as bad:
            for split in self._splits:
                if split.format is Format.PARQUET:
                    from skws.formats.parquet_columns import table_batches  # noqa: PLC0415 - reads Parquet

                    whole = table_batches(split.path, relation) if split.path not in read else None
                    if whole is not None:
                        read.add(split.path)
                        yield from whole
                    if split.path in read:
                        continue
                records = bad.records(read_split(split, self._reading))
                yield from as_batches(self._rows(split, records), arrow_schema(relation))

    def _rows(self, split: Split, records: Iterator[Record]) -> Iterator[Row]:
        relations = self.schema.relations
        for record in records:
            if record.relation != self.number:
                raise SourceError(
                    f"{split.path}: holds a record of {relations[record.relation].name}; expected rows of"
                    f" {relations[self.number].name} alone"
                )
            yield record.row
