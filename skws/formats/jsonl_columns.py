"""JSON lines read as columns, a chunk at a time.

A chunk is plain if each of its lines is one insertion into a streaming relation, with
each value of its attribute's type. Its lines are decoded straight into the types of the
schema, four times as fast as by way of dictionaries. One other line sends its whole
chunk to the line reader (``jsonl``), which can say why a record is bad; both give the
same records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, reduce
from io import BytesIO
from operator import attrgetter, or_
from typing import IO, Any, Final, Literal

import msgspec
import numpy as np

from skws.data.batch import Chunk, Ints, RecordBatch, Rows
from skws.data.blocks import ColumnBlock, packed_integers
from skws.data.values import EARLIEST, LARGEST, LATEST, SMALLEST, MalformedError, timestamp
from skws.formats import jsonl
from skws.formats.files import Advance, Format, Split, ignore, opened
from skws.formats.rows import needed
from skws.formats.unpacked import is_packed
from skws_schema.model import AttributeType, Relation, Schema, Value

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
"""Raised by lines that are not records: not UTF-8 is a ValueError, and objects may be nested too deeply."""

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
    """Reads JSON lines whose records name their relation."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        # A row of a table, or one with a time of its own, is not plain.
        numbers = [
            i for i, r in enumerate(schema.relations) if not r.table and r.time is None and _columns_once(r)
        ]
        only = len(numbers) == 1
        records = {_record(schema, schema.relations[number], only=only): number for number in numbers}
        self._numbers = records
        self._decoder: Any = msgspec.json.Decoder(reduce(or_, records)) if records else None

    def read(self, split: Split, advance: Advance = ignore) -> Iterator[Chunk]:
        """The records of a split, in order of arrival. Raises SourceError."""
        with opened(split.path, advance) as file:
            offset = jsonl.skip_to(file, split.start)
            while offset < split.end:
                lines = _lines(file, min(CHUNK_BYTES, split.end - offset))
                if not lines:
                    return
                after = offset + sum(map(len, lines))
                plain = self.plain(lines)
                if plain is not None:
                    yield Chunk(plain)
                else:
                    yield Chunk.of(jsonl.read(replace(split, start=offset, end=after), self._schema))
                offset = after

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
        relation, columns = self._schema.relations[number], list[Ints | list[Value]]()
        for place, attribute in enumerate(relation.attributes):
            column: list[Value] = list(map(attrgetter(_name(place)), rows))
            if attribute.type is AttributeType.INTEGER:
                columns.append(_integers(column))
            elif attribute.type is AttributeType.TIMESTAMP:
                columns.append([None if value is None else timestamp(value) for value in column])
            else:
                columns.append(column)
        return ColumnBlock(number, columns, relation.search_columns)


def chunk_reader(schema: Schema) -> ChunkReader:
    """Made once for all splits: that takes milliseconds."""
    # Schemas are equal whatever the sources of their tables, which decide what records may hold.
    return _chunk_reader(schema, tuple(relation.source for relation in schema.relations))


@lru_cache(maxsize=4)
def _chunk_reader(schema: Schema, _sources: tuple[str | None, ...]) -> ChunkReader:
    return ChunkReader(schema)


class TextReader:
    """Reads JSON texts that are no lines of a file: records that name their relation, and change events."""

    def __init__(self, name: str, schema: Schema) -> None:
        self._columns = ChunkReader(schema)
        self._lines = jsonl.StreamedLines(name, schema)

    def read(self, texts: Iterable[bytes]) -> Iterator[Chunk]:
        """The records of texts, in their order; what is none is bad."""
        lines: list[bytes] = []
        size = 0
        for text in texts:
            line = text.replace(b"\n", b" ") + b"\n"  # between the tokens of JSON they mean the same
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
    packed = packed_integers(column)
    if packed is not None:
        return packed
    known = [value for value in column if value is not None]
    if known and not (min(known) >= SMALLEST and max(known) <= LARGEST):
        raise MalformedError("an integer beyond 64 bits")
    return column


def one_a_line(data: bytes) -> int:
    """The number of lines; 0 if as many objects need not be one on each line.

    They are if every line ends with a brace and the next begins with one: inside
    an object no opening brace follows a closing one.
    """
    read = np.frombuffer(data, dtype=np.uint8)
    breaks = np.flatnonzero(read[:-1] == _NEWLINE)
    sure = (read[breaks - 1] == _CLOSING).all() and (read[breaks + 1] == _OPENING).all()
    return len(breaks) + 1 if sure else 0


def _record(schema: Schema, relation: Relation, *, only: bool) -> type[msgspec.Struct]:
    """The type that a line of ``relation`` is decoded to; ``only``: it is the only relation."""
    wanted = needed(schema, relation)
    fields = [
        (_name(place), _TYPES[attribute.type], _field(attribute.column, required=attribute.name in wanted))
        for place, attribute in enumerate(relation.attributes)
    ]
    row = _struct("Row", fields)
    own: list[Any] = [("time", str | int | float), ("row", row), ("op", Literal["+"], "+")]
    if only:  # a decoder of one type looks for no tag
        return _struct("Line", [*own, ("relation", Literal[relation.name])])
    return _struct("Line", own, tag=relation.name)


def _columns_once(relation: Relation) -> bool:
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
        gc=False,  # there are no cycles, and millions of objects
    )


def _field(name: str, *, required: bool) -> Any:
    return msgspec.field(name=name) if required else msgspec.field(name=name, default=None)


def _name(place: int) -> str:
    """A field's name; attributes may have names that Python does not allow."""
    return f"a{place}"


def microseconds(times: list[Any]) -> Ints:
    """Times of records in microseconds, from their JSON values. Raises ValueError."""
    kinds = set(map(type, times))
    if kinds == {float}:
        # As round() does: to the nearest, halves to even.
        with np.errstate(over="ignore"):
            nearest = np.rint(np.array(times) * 1e6)
        if not (nearest.min() >= EARLIEST and nearest.max() <= LATEST):
            raise ValueError("a time outside the years 1 to 9999")
        return nearest.astype(np.int64)
    if kinds == {int}:
        if not (min(times) * 1_000_000 >= EARLIEST and max(times) * 1_000_000 <= LATEST):
            raise ValueError("a time outside the years 1 to 9999")
        return np.array(times, dtype=np.int64) * 1_000_000
    return np.array([timestamp(time) for time in times], dtype=np.int64)
