"""JSON lines: one record, bare row or change event a line. The path that most replays take.

Every line is parsed as a record first; only lines that fail are examined (blank
lines, a byte order mark, tombstones, change events).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from pathlib import Path
from typing import IO, Any, Final

import orjson

from skws.data.record import BadRecord, Record
from skws.data.values import MalformedError
from skws.formats.debezium import ChangeReader, changed_table, is_change
from skws.formats.files import BOM, END, Advance, Format, Split, ignore, line_count, not_json, opened
from skws.formats.origins import Origins
from skws.formats.rows import FIELDS, BareRowReader, RecordReader
from skws_schema.model import Schema

PEEK_LINES: Final = 1000
_OWN: Final = frozenset({"time", "op"})


class Holds(Enum):
    """The content of a file of JSON lines."""

    ROWS = auto()
    RECORDS = auto()
    CHANGES = auto()


def json_holds(path: Path, schema: Schema, relation: int | None) -> Holds | None:
    """The content of a file of JSON lines, None if its first lines hold no object.

    The first record that the schema knows decides, so that a bad line before it does
    not mislead; if there is none, the first object decides. ``relation``: the one
    whose bare rows it may hold. Raises SourceError.
    """
    guess: Holds | None = None
    for item in _objects(path):
        if _is_row(item, schema, relation):
            return Holds.ROWS
        holds, name = _shape(item)
        if isinstance(name, str) and name in schema.index:
            return holds
        guess = guess or holds
    return guess


def _objects(path: Path) -> Iterator[dict[str, Any]]:
    """The objects among the first lines that are not empty."""
    with opened(path) as file:
        for _, line in zip(range(PEEK_LINES), file, strict=False):
            item = _parsed(line)
            if type(item) is dict and item:
                yield item


def _is_row(item: dict[str, Any], schema: Schema, relation: int | None) -> bool:
    if relation is None:
        return False
    columns = Origins(schema.relations[relation]).known
    return item.keys() <= columns | _OWN and not columns.isdisjoint(item)


def _shape(item: dict[str, Any]) -> tuple[Holds, Any]:
    """The form of an object, and the relation that it names if it is complete."""
    if "relation" in item and ("row" in item or item.keys() <= FIELDS):
        return Holds.RECORDS, item["relation"] if type(item.get("row")) is dict else None
    return (Holds.CHANGES, changed_table(item)) if is_change(item) else (Holds.ROWS, None)


def _parsed(line: bytes) -> Any:
    try:
        return orjson.loads(line.removeprefix(BOM))
    except orjson.JSONDecodeError:
        return None


def read(split: Split, schema: Schema, advance: Advance = ignore) -> Iterator[Record | BadRecord]:
    """The records of the lines that start in ``split``. Raises SourceError if the file cannot be read."""
    reader = LineReader(split, schema)
    with opened(split.path, advance) as file:
        yield from reader.items(file)


class LineReader:
    """Reads the lines of a split from any file object."""

    def __init__(self, split: Split, schema: Schema) -> None:
        self._split = split
        self._schema = schema
        self._of_changes: bool | None = None
        self._records: BareRowReader | RecordReader
        self._changes: ChangeReader | None
        if split.relation is None:
            self._records, self._changes = RecordReader(schema), ChangeReader(schema)
        else:
            self._records, self._changes = BareRowReader(schema, split.relation), None
        self._lines_before: int | None = 0 if split.start == 0 else None

    def items(self, file: IO[bytes]) -> Iterator[Record | BadRecord]:
        """The items of the lines that begin in the split, in order; then what was passed over in them."""
        yield from self._items(file)
        source = str(self._split.path)
        yield from self._records.notes(source)
        if self._changes is not None:
            yield from self._changes.notes(source)

    def _items(self, file: IO[bytes]) -> Iterator[Record | BadRecord]:
        offset, end = skip_to(file, self._split.start), self._split.end
        record = self._records.record
        loads = orjson.loads
        if offset >= end:
            return
        for number, line in enumerate(file, start=1):
            try:
                item = loads(line)
            except ValueError:
                yield from self._unreadable(line, offset, number)
            else:
                try:
                    yield record(item)
                except MalformedError as error:
                    yield from self._unusual(item, error, line, offset, number)
            offset += len(line)
            if offset >= end:
                return

    def _unreadable(self, line: bytes, offset: int, number: int) -> Iterator[Record | BadRecord]:
        """A line that is not JSON: blank, after a byte order mark, or bad."""
        text = line.removeprefix(BOM) if offset == 0 else line
        if not text.strip():
            return
        try:
            item = orjson.loads(text)
            yield self._records.record(item)
        except orjson.JSONDecodeError as error:
            yield self._bad(line, offset, number, not_json(text, error))
        except MalformedError as error:
            yield from self._unusual(item, error, line, offset, number)

    def _unusual(
        self, item: Any, error: MalformedError, line: bytes, offset: int, number: int
    ) -> Iterator[Record | BadRecord]:
        """JSON that is not a record: a change event, a tombstone, or bad."""
        try:
            yield from self._changed(item, error)
        except MalformedError as bad:
            yield self._bad(line, offset, number, str(bad))

    def _changed(self, item: Any, error: MalformedError) -> list[Record]:
        """The records of a change event, none of a tombstone. Raises ``error`` for other JSON."""
        records: list[Record] = []
        if item is not None:
            if self._changes is None or not is_change(item) or "relation" in item:
                raise error
            records = self._changes.records(item)
        if not records and not self.of_changes:
            raise MalformedError("a tombstone, but no change events") if item is not None else error
        return records

    @property
    def of_changes(self) -> bool:
        """Whether the file holds change events: only then tombstones are ignored."""
        if self._of_changes is None:
            holds = json_holds(self._split.path, self._schema, self._split.relation)
            self._of_changes = holds is Holds.CHANGES
        return self._of_changes

    def _bad(self, line: bytes, offset: int, number: int, reason: str) -> BadRecord:
        if self._lines_before is None:
            self._lines_before = _lines_before(self._split)
        return BadRecord(
            str(self._split.path), self._lines_before + number, offset, line.rstrip(b"\r\n"), reason
        )


class StreamedLines(LineReader):
    """A line reader that cannot look ahead: tombstones are ignored once there was a change event."""

    def __init__(self, name: str, schema: Schema) -> None:
        super().__init__(Split(Path(name), Format.JSON_LINES, None, 0, END, 0, 0), schema)
        self._of_changes = False

    def _changed(self, item: Any, error: MalformedError) -> list[Record]:
        records = super()._changed(item, error)
        self._of_changes = True
        return records


def skip_to(file: IO[bytes], start: int) -> int:
    """Seek to the first line that starts at or after ``start``; returns its offset."""
    if start == 0:
        return 0
    # One byte back: if that byte ends a line, the line at `start` belongs to the split.
    file.seek(start - 1)
    return start - 1 + len(file.readline())


def _lines_before(split: Split) -> int:
    """How many lines start before the first line of ``split``."""
    with opened(split.path) as file:
        first = skip_to(file, split.start)
        file.seek(0)
        return line_count(file, first)
