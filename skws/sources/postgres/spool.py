"""The snapshot, copied to files: the rows that were there when the slot was made.

So the database is not held in a long transaction while a search digests them,
and they can be read again after a crash, which a snapshot of PostgreSQL
cannot. The files are JSON lines as replays are; a third one, written last,
says that they are whole, their checksum, and at which position of the log they stand.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any, Final

import orjson
from psycopg2.extensions import connection
from psycopg2.sql import SQL, Identifier

from schema.errors import SourceError
from schema.model import Relation, Schema
from skws.durable.frames import checked, unchecked
from skws.durable.summed import summed
from skws.records import BadRecord
from skws.replay import Format, Split, read_split
from skws.replay.splits import END
from skws.sources.feed import Item
from skws.sources.postgres.catalog import Table
from skws.sources.postgres.copytext import CopiedRows, values
from skws.sources.postgres.ordering import line_order

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PRIVATE: Final = 0o600


@dataclass(frozen=True, slots=True)
class Spool:
    """The files of one slot's snapshot in ``folder``."""

    folder: Path
    slot: str

    @property
    def rows(self) -> Path:
        """The rows of streams."""
        return self.folder / f"{self.slot}-rows.jsonl"

    @property
    def sorted(self) -> Path:
        """The same while they are put in order."""
        return self.folder / f"{self.slot}-sorted.jsonl"

    @property
    def tables(self) -> Path:
        """The rows of static tables."""
        return self.folder / f"{self.slot}-tables.jsonl"

    @property
    def header(self) -> Path:
        return self.folder / f"{self.slot}-snapshot.json"

    @property
    def begun(self) -> Path:
        """There while a slot and its snapshot are being made: what is left of both is of no use then."""
        return self.folder / f"{self.slot}-begun"

    def begin(self) -> None:
        """Remove what is left of another run, and say that a new one is being made."""
        self.remove()
        with _written(self.begun):
            pass

    def point(self) -> tuple[int, int] | None:
        """Position and time of the snapshot; None if it is not there, or not whole."""
        header = self._header()
        return None if header is None else (header["lsn"], header["time"])

    def check_rows(self) -> None:
        """Raises SourceError unless the streams' rows are those that were copied."""
        header = self._header()
        try:
            whole = header is not None and header["rows"] == summed(self.rows)
        except OSError as error:
            raise SourceError(f"{self.rows}: cannot read the snapshot: {error.strerror}") from None
        if not whole:
            raise SourceError(
                f"{self.rows}: damaged: the run cannot go on from this snapshot"
                " (drop the slot, and start with a new --checkpoint)"
            )

    def finish(self, lsn: int, time: int) -> None:
        """Say that the files are whole."""
        part = self.header.with_suffix(".part")
        with _written(part) as file:
            header = {"lsn": lsn, "time": time, "rows": summed(self.rows)}
            file.write(checked(orjson.dumps(header), self.header.name))
        part.replace(self.header)
        self.begun.unlink(missing_ok=True)

    def sort(self, schema: Schema) -> None:
        """Put the streams' rows in order of time; as copied they are where all have the snapshot's."""
        if not any(relation.time for relation in schema.relations if not relation.table):
            return
        with _written(self.sorted) as file:
            starts, ends = line_order(self.rows, schema)
            with self.rows.open("rb") as rows:
                for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
                    rows.seek(start)
                    file.write(rows.read(end - start))
        self.sorted.replace(self.rows)

    def size(self) -> int:
        """Bytes of the streams' rows."""
        try:
            return self.rows.stat().st_size
        except OSError as error:
            raise SourceError(f"{self.rows}: cannot read the snapshot: {error.strerror}") from None

    def remove(self) -> None:
        """The header first: without it, the rest is as good as not there."""
        for path in (self.header, self.rows, self.sorted, self.tables, self.begun):
            path.unlink(missing_ok=True)

    def _header(self) -> dict[str, Any] | None:
        try:
            text = unchecked(self.header.read_bytes(), self.header.name)
        except OSError:
            return None
        return None if text is None else orjson.loads(text)

    def read(self, path: Path, schema: Schema, start: int = 0, end: int = END) -> Iterator[Item]:
        """The items of lines that begin in a range of bytes. Raises SourceError."""
        for item in read_split(Split(path, Format.JSON_LINES, None, start, end, 0, 0), schema):
            yield replace(item, source=f"snapshot of {self.slot}") if isinstance(item, BadRecord) else item


def copy_tables(
    connected: connection, found: Mapping[int, Table], schema: Schema, time: int, path: Path
) -> None:
    """Write the rows of tables, by position of their relation, as records of ``time`` (microseconds).

    Raises psycopg2.Error, SourceError if the file cannot be written.
    """
    with _written(path) as file, connected.cursor() as cursor:
        for position, table in found.items():
            relation = schema.relations[position]
            columns = SQL(", ").join(Identifier(a.name) for a in relation.attributes)
            statement = SQL("COPY (SELECT {} FROM {}) TO STDOUT").format(
                columns, Identifier(table.namespace, table.name)
            )
            cursor.copy_expert(statement.as_string(connected), _Writer(file, relation, time))


class _Writer:
    """Takes the rows of one COPY, and writes records."""

    def __init__(self, file: IO[bytes], relation: Relation, time: int) -> None:
        self._file = file
        self._relation = relation.name
        self._names = tuple(a.name for a in relation.attributes)
        self._time = (_EPOCH + timedelta(microseconds=time)).isoformat()
        self._copied = CopiedRows()

    def write(self, piece: bytes) -> None:
        self._file.writelines(map(self._line, self._copied.rows(piece)))

    def _line(self, copied: bytes) -> bytes:
        try:
            texts = [value if value is None else value.decode() for value in values(copied)]
        except UnicodeDecodeError:
            # No JSON, so that it is read as a bad record.
            return b"not UTF-8: " + self._relation.encode() + b"\t" + copied + b"\n"
        row = dict(zip(self._names, texts, strict=True))
        return orjson.dumps({"relation": self._relation, "time": self._time, "row": row}) + b"\n"


@contextmanager
def _written(path: Path) -> Iterator[IO[bytes]]:
    """A new file that only its owner may read: it holds what the database does."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise SourceError(f"{path}: cannot write the snapshot: {error.strerror}") from None


def lines_end(path: Path, start: int, limit: int) -> int:
    """The position behind ``limit`` lines from ``start`` on, or behind the last. Raises SourceError."""
    try:
        with path.open("rb") as file:
            file.seek(start)
            return start + sum(len(line) for _, line in zip(range(limit), file, strict=False))
    except OSError as error:
        raise SourceError(f"{path}: cannot read the snapshot: {error.strerror}") from None
