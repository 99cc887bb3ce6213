"""The snapshot, copied to files: the rows of all tables when the slot was made.

The copy spares the database a long transaction while a search reads the rows, and
it can be read again after a crash, unlike a snapshot of PostgreSQL. The files are
JSON lines, like replays; a header, written last, says that they are complete, with
their checksum and their position in the log.

The server writes the lines. The texts of values are those of the types' output
functions, the same that logical replication sends, as ``concat`` gives them; a cast
to text gives others (``true`` for ``t``).
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import orjson
from psycopg2.extensions import connection
from psycopg2.sql import SQL, Identifier, Literal

from skws.data.batch import Ints
from skws.data.record import BadRecord, Item
from skws.data.values import EARLIEST, timestamp
from skws.durable.files import PRIVATE, explained, keep, summed, synced
from skws.durable.frames import unchecked
from skws.formats import Format, Split, read_split
from skws.formats.files import END
from skws.sources.postgres.catalog import Table
from skws_schema.errors import SourceError
from skws_schema.model import Schema

_NO_TIME: Final = (ValueError, KeyError, TypeError)


def line_order(path: Path, schema: Schema) -> tuple[Ints, Ints]:
    """The first and last offsets of the lines of a snapshot, by time; lines without a time come first.

    Takes 16 bytes of memory a row. Raises OSError.
    """
    named = {
        relation.name: None
        if relation.time is None
        else relation.attributes[relation.columns[relation.time]].column
        for relation in schema.relations
    }
    times, bounds = array("q"), array("q", [0])
    with path.open("rb") as file:
        for line in file:
            times.append(_time(line, named))
            bounds.append(bounds[-1] + len(line))
    places = np.array(bounds, dtype=np.int64)
    order = np.argsort(np.array(times, dtype=np.int64), kind="stable")
    return places[:-1][order], places[1:][order]


def _time(line: bytes, named: Mapping[str, str | None]) -> int:
    """The time of a row: its attribute's if the relation names one, else the record's own."""
    try:
        item = orjson.loads(line)
        name = named[item["relation"]]
        return timestamp(item["time"] if name is None else item["row"][name])
    except _NO_TIME:
        return EARLIEST


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Spool:
    """The files of one slot's snapshot in ``folder``."""

    folder: Path
    slot: str

    @property
    def rows(self) -> Path:
        return self.folder / f"{self.slot}-rows.jsonl"

    @property
    def sorted(self) -> Path:
        """The rows of streams while they are sorted."""
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
        """Exists while a slot and its snapshot are being made: an incomplete pair is of no use."""
        return self.folder / f"{self.slot}-begun"

    def begin(self) -> None:
        """Remove the files of another run, and mark a new snapshot as begun."""
        self.remove()
        with _written(self.begun):
            synced(self.folder)

    def point(self) -> tuple[int, int] | None:
        """Position and time of the snapshot; None if it is missing or incomplete."""
        header = self._header()
        return None if header is None else (header["lsn"], header["time"])

    def check_rows(self) -> None:
        """Raises SourceError unless the streams' rows are as copied."""
        header = self._header()
        with _reading(self.rows):
            whole = header is not None and header["rows"] == summed(self.rows)
        if not whole:
            raise SourceError(
                f"{self.rows}: damaged: the run cannot continue from this snapshot"
                " (drop the slot, and start with a new --checkpoint)"
            )

    def finish(self, lsn: int, time: int) -> None:
        """Mark the files as complete."""
        with _writing(self.header):
            header = {"lsn": lsn, "time": time, "rows": summed(self.rows)}
            synced(self.folder)  # the rows are there before the header is
            keep(self.header, header, self.header.name)
            self.begun.unlink(missing_ok=True)

    def sort(self, schema: Schema) -> None:
        """Sort the streams' rows by time, unless all have the snapshot's time."""
        if not any(relation.time for relation in schema.relations if not relation.table):
            return
        with _written(self.sorted) as file:
            starts, ends = line_order(self.rows, schema)
            with self.rows.open("rb") as rows:
                for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
                    rows.seek(start)
                    file.write(rows.read(end - start))
        with _writing(self.rows):
            self.sorted.replace(self.rows)

    def forget_rows(self) -> None:
        """Remove the streams' rows, which are read. Raises SourceError."""
        with _writing(self.rows):
            self.rows.unlink(missing_ok=True)

    def size(self) -> int:
        """Bytes of the streams' rows."""
        with _reading(self.rows):
            return self.rows.stat().st_size

    def remove(self) -> None:
        """Remove all files, the header first: without it, the others do not count."""
        for path in (self.header, self.rows, self.sorted, self.tables, self.begun):
            with _writing(path):
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


# A line of JSON holds no control characters, so that nothing is quoted or escaped: what is written is JSON.
_COPY: Final = SQL("""
    COPY (SELECT json_build_object('relation', {}::text, 'time', {}::text, 'row', json_object({}, ARRAY[{}]))
          FROM {}) TO STDOUT (FORMAT csv, QUOTE E'\\x01', DELIMITER E'\\x02')""")
# Only a missing value is not distinct from NULL; a composite value of NULLs is.
_TEXT: Final = SQL("CASE WHEN {0} IS DISTINCT FROM NULL THEN concat({0}) END")


def copy_tables(
    connected: connection, found: Mapping[int, Table], schema: Schema, time: int, path: Path
) -> None:
    """Write the rows of tables, by position of their relation, as records of ``time`` (microseconds).

    Raises psycopg2.Error, SourceError if the file cannot be written.
    """
    moment = (_EPOCH + timedelta(microseconds=time)).isoformat()
    with _written(path) as file, connected.cursor() as cursor:
        for position, table in found.items():
            relation = schema.relations[position]
            names = [attribute.column for attribute in relation.attributes]
            statement = _COPY.format(
                Literal(relation.name),
                Literal(moment),
                Literal(names),
                SQL(", ").join(_TEXT.format(Identifier(name)) for name in names),
                table.quoted,
            )
            cursor.copy_expert(statement.as_string(connected), file)


@contextmanager
def _written(path: Path) -> Iterator[IO[bytes]]:
    """A new file that only its owner may read: it holds data of the database."""
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())


def _writing(path: Path) -> AbstractContextManager[None]:
    return explained(f"{path}: cannot write the snapshot", SourceError)


def _reading(path: Path) -> AbstractContextManager[None]:
    return explained(f"{path}: cannot read the snapshot", SourceError)


def lines_end(path: Path, start: int, limit: int) -> int:
    """The offset after ``limit`` lines from ``start`` on, or after the last. Raises SourceError."""
    with _reading(path), path.open("rb") as file:
        file.seek(start)
        return start + sum(len(line) for _, line in zip(range(limit), file, strict=False))
