"""JSON lines: one record, bare row or change event per line, the usual form of a replay.

Every line is parsed as a record first; only lines that fail are examined (blank lines, a byte order mark,
tombstones, change events).

Long files are read as columns, a chunk at a time. A chunk is plain if each of its lines is an insertion into
a streaming relation with values of the attributes' types. Its lines are decoded straight into the types of
the schema, four times as fast as through dictionaries. A chunk with any other line is read by the line
reader, which can say why a record is bad; both return the same records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import Enum, auto
from functools import lru_cache, reduce
from io import BytesIO
from operator import attrgetter, or_
from pathlib import Path
from typing import IO, Any, Final, Literal

import msgspec
import numpy as np
import orjson

from skws.data.batch import BadRecord, Chunk, Ints, Record, RecordBatch, Rows
from skws.data.blocks import ColumnBlock, Values, packed_integers
from skws.data.value_conversion import EARLIEST, LARGEST, LATEST, SMALLEST, MalformedError, timestamp
from skws.formats.debezium import ChangeReader, changed_table, is_change
from skws.formats.exact_json import loads
from skws.formats.files import (
    BOM,
    END,
    Advance,
    Format,
    Split,
    ignore,
    is_packed,
    line_count,
    not_json,
    opened,
)
from skws.formats.nested import NestedReader, has_nested
from skws.formats.rows import FIELDS, BareRowReader, Origins, RecordReader, RowReader, needed
from skws_schema.model import AttributeType, Relation, Schema, Value

PEEK_LINES: Final = 1000
_BARE_FIELDS: Final = frozenset({"time", "op"})


class LinesHold(Enum):
    """The content of a file of JSON lines."""

    ROWS = auto()
    RECORDS = auto()
    CHANGES = auto()


def json_holds(path: Path, schema: Schema, relation: int | None) -> LinesHold | None:
    """The content of a file of JSON lines; None if its first lines have no object.

    The first record of a relation of the schema decides, so that a bad line before it does not mislead; if
    there is none, the first object decides. ``relation``: the relation of bare rows. Raises SourceError.
    """
    guess: LinesHold | None = None
    for item in _objects(path):
        if _is_row(item, schema, relation):
            return LinesHold.ROWS
        holds, name = _shape(item)
        if isinstance(name, str) and name in schema.index:
            return holds
        guess = guess or holds
    return guess


def _objects(path: Path) -> Iterator[dict[str, Any]]:
    """The objects among the first lines that are not empty."""
    with opened(path) as file:
        for _, line in zip(range(PEEK_LINES), file, strict=False):
            item = _parse(line)
            if type(item) is dict and item:
                yield item


def _is_row(item: dict[str, Any], schema: Schema, relation: int | None) -> bool:
    if relation is None:
        return False
    columns = Origins(schema.relations[relation]).known_names
    return item.keys() <= columns | _BARE_FIELDS and not columns.isdisjoint(item)


def _shape(item: dict[str, Any]) -> tuple[LinesHold, Any]:
    """The form of an object, and the relation that it names if it is complete."""
    if "relation" in item and ("row" in item or item.keys() <= FIELDS):
        return LinesHold.RECORDS, item["relation"] if type(item.get("row")) is dict else None
    return (LinesHold.CHANGES, changed_table(item)) if is_change(item) else (LinesHold.ROWS, None)


def _parse(line: bytes) -> Any:
    try:
        return loads(line.removeprefix(BOM))
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
        self._has_changes: bool | None = None
        self._records: BareRowReader | RecordReader
        self._nested: NestedReader | None = None
        self._changes: ChangeReader | None
        if split.relation is None:
            self._records, self._changes = RecordReader(schema), ChangeReader(schema)
        else:
            self._records, self._changes = BareRowReader(schema, split.relation), None
            if has_nested(schema, split.relation):
                self._nested = NestedReader(schema, split.relation, split.path.name)
        self._lines_before: int | None = 0 if split.start == 0 else None

    def items(self, file: IO[bytes]) -> Iterator[Record | BadRecord]:
        """The items of the lines that begin in the split, in order, then notes on values passed over."""
        yield from self._items(file)
        source = str(self._split.path)
        yield from (self._nested or self._records).notes(source)
        if self._changes is not None:
            yield from self._changes.notes(source)

    def _items(self, file: IO[bytes]) -> Iterator[Record | BadRecord]:
        offset, end = skip_to(file, self._split.start), self._split.end
        record = self._records.record
        if offset >= end:
            return
        for number, line in enumerate(file, start=1):
            try:
                item = loads(line)
            except ValueError:
                yield from self._non_json_items(line, offset, number)
            else:
                try:
                    if self._nested is None:
                        yield record(item)
                    else:
                        yield from self._nested_items(self._nested, item, offset, number)
                except MalformedError as error:
                    yield from self._non_record_items(item, error, line, offset, number)
            offset += len(line)
            if offset >= end:
                return

    def _nested_items(
        self, reader: NestedReader, item: Any, offset: int, number: int
    ) -> list[Record | BadRecord]:
        """The records of a line with rows in arrays. Raises MalformedError."""
        return reader.records(item, offset, lambda text, reason: self._bad(text, offset, number, reason))

    def _non_json_items(self, line: bytes, offset: int, number: int) -> Iterator[Record | BadRecord]:
        """A line that is not JSON: blank, after a byte order mark, or bad."""
        text = line.removeprefix(BOM) if offset == 0 else line
        if not text.strip():
            return
        try:
            item = loads(text)
            if self._nested is None:
                yield self._records.record(item)
            else:
                yield from self._nested_items(self._nested, item, offset, number)
        except orjson.JSONDecodeError as error:
            yield self._bad(line, offset, number, not_json(text, error))
        except MalformedError as error:
            yield from self._non_record_items(item, error, line, offset, number)

    def _non_record_items(
        self, item: Any, error: MalformedError, line: bytes, offset: int, number: int
    ) -> Iterator[Record | BadRecord]:
        """JSON that is not a record: a change event, a tombstone, or bad."""
        try:
            yield from self._change_records(item, error)
        except MalformedError as fault:
            yield self._bad(line, offset, number, str(fault))

    def _change_records(self, item: Any, error: MalformedError) -> list[Record]:
        """The records of a change event, none for a tombstone. Raises ``error`` for other JSON."""
        records: list[Record] = []
        if item is not None:
            if self._changes is None or not is_change(item) or "relation" in item:
                raise error
            records = self._changes.records(item)
        if not records and not self.has_changes:
            raise MalformedError("a tombstone, but no change events") if item is not None else error
        return records

    @property
    def has_changes(self) -> bool:
        """True if the file has change events: only then are tombstones ignored."""
        if self._has_changes is None:
            holds = json_holds(self._split.path, self._schema, self._split.relation)
            self._has_changes = holds is LinesHold.CHANGES
        return self._has_changes

    def _bad(self, line: bytes, offset: int, number: int, reason: str) -> BadRecord:
        if self._lines_before is None:
            self._lines_before = _lines_before(self._split)
        return BadRecord(
            str(self._split.path), self._lines_before + number, offset, line.rstrip(b"\r\n"), reason
        )


class StreamedLines(LineReader):
    """A line reader that cannot look ahead: it ignores tombstones after the first change event."""

    def __init__(self, name: str, schema: Schema) -> None:
        super().__init__(Split(Path(name), Format.JSON_LINES, None, 0, END, 0, 0), schema)
        self._has_changes = False

    def _change_records(self, item: Any, error: MalformedError) -> list[Record]:
        records = super()._change_records(item, error)
        self._has_changes = True
        return records


def skip_to(file: IO[bytes], start: int) -> int:
    """Seek to the first line that starts at or after ``start``; returns its offset."""
    if start == 0:
        return 0
    # One byte back: if that byte ends a line, the line at `start` belongs to the split.
    file.seek(start - 1)
    return start - 1 + len(file.readline())


def _lines_before(split: Split) -> int:
    """The number of lines before the first line of ``split``."""
    with opened(split.path) as file:
        first = skip_to(file, split.start)
        file.seek(0)
        return line_count(file, first)


CHUNK_BYTES = 300_000  # larger chunks leave the processor's caches

_TYPES: Final[dict[AttributeType, Any]] = {
    AttributeType.TEXT: str | None,
    AttributeType.STRING: str | None,
    AttributeType.INTEGER: int | None,
    AttributeType.NUMBER: float | None,
    AttributeType.BOOLEAN: bool | None,
    AttributeType.TIMESTAMP: str | int | float | None,
}

UNDECODABLE: Final = (msgspec.DecodeError, ValueError, RecursionError)
"""Errors of lines that are not records: ValueError for invalid UTF-8, RecursionError for deep nesting."""

_OPENING, _CLOSING, _NEWLINE = b"{}\n"
TIME: Final = attrgetter("time")
_ROW: Final = attrgetter("row")


def reads_columns(split: Split, schema: Schema) -> bool:
    """True for plain JSON lines whose records have their own relation and time."""
    return (
        split.format is Format.JSON_LINES
        and split.relation is None
        and not is_packed(split.path)
        and not any(relation.time for relation in schema.relations if not relation.table)
    )


class ChunkReader:
    """Reads JSON lines whose records name their relation, about ``chunk_bytes`` at a time."""

    def __init__(self, schema: Schema, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._schema = schema
        self._chunk_bytes = chunk_bytes
        # A row of a table, or one with a time attribute, is not plain.
        numbers = [
            i
            for i, r in enumerate(schema.relations)
            if not r.table and r.time is None and _has_distinct_columns(r)
        ]
        is_only = len(numbers) == 1
        records = {_record(schema, schema.relations[number], only=is_only): number for number in numbers}
        self._numbers = records
        self._decoder: Any = msgspec.json.Decoder(reduce(or_, records)) if records else None

    def read(self, split: Split, advance: Advance = ignore) -> Iterator[Chunk]:
        """The records of a split, in order of arrival. Raises SourceError."""
        with opened(split.path, advance) as file:
            offset = skip_to(file, split.start)
            while offset < split.end:
                lines = _lines(file, min(self._chunk_bytes, split.end - offset))
                if not lines:
                    return
                next_offset = offset + sum(map(len, lines))
                plain = self.plain(lines)
                if plain is not None:
                    yield Chunk(plain)
                else:
                    yield Chunk.of(read(replace(split, start=offset, end=next_offset), self._schema))
                offset = next_offset

    def plain(self, lines: Sequence[bytes]) -> RecordBatch | None:
        """The records of ``lines``; None if any line is not plain."""
        data = b"".join(lines)
        if self._decoder is None or not one_a_line(data):
            return None
        try:
            items = self._decoder.decode_lines(data)
            if len(items) != len(lines):
                return None
            relation = np.fromiter(map(self._numbers.__getitem__, map(type, items)), np.int64, len(items))
            rows = Rows.grouped(relation, list(map(_ROW, items)), self._block)
            return RecordBatch(relation, microseconds(list(map(TIME, items))), rows)
        except UNDECODABLE:
            return None

    def _block(self, number: int, rows: list[Any]) -> ColumnBlock:
        relation, columns = self._schema.relations[number], list[Values]()
        for position, attribute in enumerate(relation.attributes):
            column: list[Value] = list(map(attrgetter(_name(position)), rows))
            if attribute.type is AttributeType.INTEGER:
                columns.append(_integers(column))
            elif attribute.type is AttributeType.TIMESTAMP:
                columns.append(_instants(column))
            else:
                columns.append(column)
        return ColumnBlock(number, columns, relation.search_columns)


class BareChunkReader(ChunkReader):
    """Reads JSON lines with bare rows of the relation at a position, if ``reads_bare_columns``."""

    def __init__(self, schema: Schema, relation: int, chunk_bytes: int = CHUNK_BYTES) -> None:
        super().__init__(schema, chunk_bytes)
        definition = schema.relations[relation]
        known_names = Origins(definition).known_names
        self._number = relation
        self._reader = RowReader(schema, relation)
        fields = _fields(schema, definition)
        if self._reader.takes_record_time:
            fields.append(("time", str | int | float, msgspec.field()))
        if "op" not in known_names:
            fields.append(("op", Literal["+"], "+"))
        self._decoder = msgspec.json.Decoder(_struct("Row", fields))

    def plain(self, lines: Sequence[bytes]) -> RecordBatch | None:
        data = b"".join(lines)
        if not one_a_line(data):
            return None
        try:
            rows = self._decoder.decode_lines(data)
            if len(rows) != len(lines):
                return None
            block = self._block(self._number, rows)
            times = self._times(rows, block)
        except UNDECODABLE:
            return None
        if times is None:
            return None
        return RecordBatch.of_block(block, times)

    def _times(self, rows: list[Any], block: ColumnBlock) -> Ints | None:
        if self._reader.table:
            return np.zeros(len(rows), dtype=np.int64)
        if self._reader.time_column is None:
            return microseconds(list(map(TIME, rows)))
        return block.integers(self._reader.time_column)


def reads_bare_columns(split: Split, schema: Schema) -> bool:
    """True for plain JSON lines with bare rows of one relation, without rows in arrays."""
    if split.format is not Format.JSON_LINES or split.relation is None or is_packed(split.path):
        return False
    relation = schema.relations[split.relation]
    has_time_field = "time" in Origins(relation).known_names and relation.time is None and not relation.table
    return (
        relation.source is None
        and not has_time_field
        and not has_nested(schema, split.relation)
        and _has_distinct_columns(relation)
    )


@lru_cache(maxsize=64)
def bare_chunk_reader(schema: Schema, relation: int) -> BareChunkReader:
    return BareChunkReader(schema, relation)


def chunk_reader(schema: Schema) -> ChunkReader:
    """A cached reader, since making one takes milliseconds."""
    # Equal schemas may differ in the sources of tables, which determine the fields of records.
    return _chunk_reader(schema, tuple(relation.source for relation in schema.relations))


@lru_cache(maxsize=4)
def _chunk_reader(schema: Schema, _sources: tuple[str | None, ...]) -> ChunkReader:
    return ChunkReader(schema)


class TextReader:
    """Reads JSON texts that are not lines of a file: records that name their relation, and change events."""

    def __init__(self, name: str, schema: Schema) -> None:
        self._columns = ChunkReader(schema)
        self._lines = StreamedLines(name, schema)

    def read(self, texts: Iterable[bytes]) -> Iterator[Chunk]:
        """The records of texts, in order; blank texts are skipped, and others are bad records."""
        lines: list[bytes] = []
        size = 0
        for text in texts:
            # Both are white space between the tokens of JSON, and not allowed inside a string.
            line = text.replace(b"\n", b"\r") + b"\n"
            lines.append(line)
            size += len(line)
            if size >= CHUNK_BYTES:
                yield self._chunk(lines)
                lines, size = [], 0
        if lines:
            yield self._chunk(lines)

    def _chunk(self, lines: list[bytes]) -> Chunk:
        plain = self._columns.plain(lines)
        return Chunk.of(self._lines.items(BytesIO(b"".join(lines)))) if plain is None else Chunk(plain)


def _lines(file: IO[bytes], size: int) -> list[bytes]:
    """The lines that begin within the next ``size`` bytes."""
    # readlines() stops once it has read more than its hint; a hint of 0 reads everything.
    return file.readlines(size - 1) if size > 1 else [line for line in (file.readline(),) if line]


def _integers(column: list[Any]) -> Ints | list[Value]:
    """Integers as an array; as a list if some are NULL. Raises MalformedError beyond 64 bits."""
    array = packed_integers(column)
    if array is not None:
        return array
    integers = [value for value in column if value is not None]
    if integers and not (min(integers) >= SMALLEST and max(integers) <= LARGEST):
        raise MalformedError("an integer beyond 64 bits")
    return column


def one_a_line(data: bytes) -> int:
    """The number of lines; 0 unless each line is certain to contain one object.

    It is certain if every line ends with a brace and the next begins with one, because inside an object no
    opening brace follows a closing one.
    """
    text = np.frombuffer(data, dtype=np.uint8)
    breaks = np.flatnonzero(text[:-1] == _NEWLINE)
    is_certain = (text[breaks - 1] == _CLOSING).all() and (text[breaks + 1] == _OPENING).all()
    return len(breaks) + 1 if is_certain else 0


def _instants(column: list[Any]) -> list[Value]:
    distinct = set(column)
    if 4 * len(distinct) < len(column):  # as with days
        instants = {value: None if value is None else timestamp(value) for value in distinct}
        return list(map(instants.__getitem__, column))
    return [None if value is None else timestamp(value) for value in column]


def _record(schema: Schema, relation: Relation, *, only: bool) -> type[msgspec.Struct]:
    """The type of a decoded line of ``relation``; ``only``: there is no other relation."""
    row = _struct("Row", _fields(schema, relation))
    fields: list[Any] = [("time", str | int | float), ("row", row), ("op", Literal["+"], "+")]
    if only:  # a decoder of one type needs no tag
        return _struct("Line", [*fields, ("relation", Literal[relation.name])])
    return _struct("Line", fields, tag=relation.name)


def _fields(schema: Schema, relation: Relation) -> list[Any]:
    """The fields of a row."""
    required = needed(schema, relation)
    return [
        (
            _name(position),
            _TYPES[attribute.type],
            _field(attribute.column, required=attribute.name in required),
        )
        for position, attribute in enumerate(relation.attributes)
    ]


def _has_distinct_columns(relation: Relation) -> bool:
    """True if no two attributes are read from one field."""
    return len({attribute.column for attribute in relation.attributes}) == len(relation.attributes)


def _struct(name: str, fields: list[Any], tag: str | None = None) -> type[msgspec.Struct]:
    return msgspec.defstruct(
        name,
        fields,
        kw_only=True,
        forbid_unknown_fields=True,
        tag_field=None if tag is None else "relation",
        tag=tag,
        gc=False,  # there are no cycles, and there are millions of objects
    )


def _field(name: str, *, required: bool) -> Any:
    return msgspec.field(name=name) if required else msgspec.field(name=name, default=None)


def _name(position: int) -> str:
    """The name of a field in Python, which does not allow the names of all attributes."""
    return f"a{position}"


def microseconds(times: list[Any]) -> Ints:
    """Times of records in microseconds, from their JSON values. Raises ValueError."""
    types = set(map(type, times))
    if types == {float}:
        # Like round(): to the nearest, halves to even.
        with np.errstate(over="ignore"):
            nearest = np.rint(np.array(times) * 1e6)
        # The double nearest to LATEST is the microsecond after it.
        if not (nearest.min() >= EARLIEST and nearest.max() < LATEST + 1):
            raise ValueError("a time outside the years 1 to 9999")
        return nearest.astype(np.int64)
    if types == {int}:
        if not (min(times) * 1_000_000 >= EARLIEST and max(times) * 1_000_000 <= LATEST):
            raise ValueError("a time outside the years 1 to 9999")
        return np.array(times, dtype=np.int64) * 1_000_000
    if times and times.count(times[0]) == len(times):  # usual for a snapshot
        return np.full(len(times), timestamp(times[0]), dtype=np.int64)
    return np.array([timestamp(time) for time in times], dtype=np.int64)
