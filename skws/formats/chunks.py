"""JSON lines read as columns, a chunk at a time, and the check that they are in order of time.

Three readers give the same records. ``typed`` takes plain chunks. Of the others,
a chunk is read here if all its lines are valid insertions into streaming
relations; one line that is not sends its whole chunk to the line reader.

A replay that is in order of time is searched while it is read, in the memory
of one window; any other is read whole, and sorted, before the first result. So
the file is read twice: a result cannot be taken back when the last line turns
out to be the earliest. The check takes a tenth of the time of a search.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter, itemgetter
from typing import IO, Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import orjson

from skws.data.batch import RecordBatch, Rows
from skws.data.blocks import ColumnBlock, RowBlock
from skws.data.record import BadRecord, Record
from skws.formats.files import Advance, Format, Split, ignore, opened
from skws.formats.jsonl import skip_to
from skws.formats.rows import RowReader
from skws.formats.splits import read_split
from skws.formats.typed import UNDECODABLE, TypedLines, in_range, microseconds, one_a_line
from skws.formats.values import MalformedError
from skws_schema.model import AttributeType, Relation, Row, Schema, Value

CHUNK_BYTES = 300_000  # larger chunks leave the processor's caches
_SHAPE = ("relation", "time", "row")
_NULL = type(None)

# The types that need no conversion; with others, a relation's rows are converted one by one.
_OWN: dict[AttributeType, frozenset[type]] = {
    AttributeType.TEXT: frozenset({str, _NULL}),
    AttributeType.STRING: frozenset({str, _NULL}),
    AttributeType.INTEGER: frozenset({int, _NULL}),
    AttributeType.NUMBER: frozenset({float, _NULL}),
    AttributeType.BOOLEAN: frozenset({bool, _NULL}),
    AttributeType.TIMESTAMP: frozenset({_NULL}),
}


def reads_columns(split: Split, schema: Schema) -> bool:
    """True for plain JSON lines whose records have their own relation and time."""
    return (
        split.format is Format.JSON_LINES
        and split.relation is None
        and split.path.suffix != ".gz"
        and not any(relation.time for relation in schema.relations if not relation.table)
    )


class Unusual(Exception):  # noqa: N818 - a signal, not an error
    """A chunk holds a line that only the line reader can handle."""


class ChunkReader:
    """Reads JSON lines whose records name their relation."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._relations = schema.relations
        self._getters = [_getter(relation) for relation in schema.relations]
        self._readers = [RowReader(schema, number) for number in range(len(schema.relations))]
        # The relations whose rows are read here: no tables, and none with a time attribute.
        self._numbers = {r.name: i for i, r in enumerate(schema.relations) if not r.table and r.time is None}
        self._typed = TypedLines(schema, self._numbers)

    def read(
        self, split: Split, advance: Advance = ignore
    ) -> Iterator[RecordBatch | list[Record | BadRecord]]:
        """The records of a split, in order of arrival."""
        with opened(split.path, advance) as file:
            offset = skip_to(file, split.start)
            while offset < split.end:
                lines = _lines(file, min(CHUNK_BYTES, split.end - offset))
                if not lines:
                    return
                after = offset + sum(map(len, lines))
                try:
                    yield self._typed.read(lines) or self._batch(lines)
                except Unusual:
                    yield list(read_split(replace(split, start=offset, end=after), self._schema))
                offset = after

    def _batch(self, lines: list[bytes]) -> RecordBatch:
        try:
            items = list(map(orjson.loads, lines))
            names, times, objects = map(list, zip(*map(itemgetter(*_SHAPE), items), strict=True))
            relation = np.array([self._numbers[name] for name in names], dtype=np.int64)
        except (ValueError, KeyError, TypeError):
            raise Unusual from None
        if set(map(len, items)) != {len(_SHAPE)}:
            raise Unusual
        rows = Rows.grouped(relation, objects, self._block)
        try:
            return RecordBatch(relation, microseconds(times), rows)
        except ValueError:
            raise Unusual from None

    def _block(self, number: int, objects: list[Any]) -> RowBlock | ColumnBlock:
        try:
            columns = list(zip(*map(self._getters[number], objects), strict=True))
            if self._as_they_are(number, objects, columns):
                return ColumnBlock(number, columns, self._relations[number].search_columns)
        except (KeyError, TypeError):
            pass
        try:
            return RowBlock(number, list(map(self._readers[number].insertion, objects)))
        except MalformedError:
            raise Unusual from None

    def _as_they_are(self, number: int, objects: list[Any], columns: Sequence[tuple[Value, ...]]) -> bool:
        """True if every object has exactly the relation's attributes, and no value needs conversion."""
        relation = self._relations[number]
        if set(map(len, objects)) != {len(relation.attributes)}:
            return False
        return all(
            _OWN[attribute.type].issuperset(map(type, column))
            and (attribute.type is not AttributeType.INTEGER or in_range(column))
            for attribute, column in zip(relation.attributes, columns, strict=True)
        )


def _lines(file: IO[bytes], size: int) -> list[bytes]:
    """The lines that begin within the next ``size`` bytes."""
    # readlines() stops once it has read more than its hint; a hint of 0 reads everything.
    return file.readlines(size - 1) if size > 1 else [line for line in (file.readline(),) if line]


def _getter(relation: Relation) -> Callable[[Any], Row]:
    names = [attribute.name for attribute in relation.attributes]
    if len(names) > 1:
        return itemgetter(*names)
    only = names[0]
    return lambda row: (row[only],)


ORDER_BLOCK = 1 << 18  # larger blocks leave the processor's caches
# An escaped quote inside a text does not match: the backslash stands between.
_TIME_FIELD = re.compile(rb'"time"\s*:\s*("[^"\\]*"|-?[0-9.eE+-]+)')
_OF: Final = attrgetter("time")


class _Numbered(msgspec.Struct, gc=False):
    """The time of a record, in seconds."""

    time: float


class _Written(msgspec.Struct, gc=False):
    """The time of a record, as text."""

    time: str


_DECODERS: Final[tuple[tuple[Any, Any], ...]] = (
    (msgspec.json.Decoder(_Numbered), np.float64),
    (msgspec.json.Decoder(_Written), np.str_),
)


def in_order(splits: Sequence[Split]) -> bool:
    """True if each line holds one time, and times do not decrease; False if that is not certain.

    Times are all numbers, or all texts of one form whose order is that of time.
    Splits are in order of arrival.
    """
    last: npt.NDArray[Any] | None = None
    for path in dict.fromkeys(split.path for split in splits):
        with opened(path) as file:
            for lines in _blocks(file):
                times = _times(lines)
                if times is None or (last is not None and (last.dtype != times.dtype or last[0] > times[0])):
                    return False
                if (times[1:] < times[:-1]).any():
                    return False
                last = times[-1:]
    return True


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    """Blocks of whole lines."""
    while block := file.read(ORDER_BLOCK):
        yield block if block.endswith(b"\n") else block + file.readline()


def _times(lines: bytes) -> npt.NDArray[Any] | None:
    """Times as an array whose order is that of time, or None."""
    if count := one_a_line(lines):
        for decoder, kind in _DECODERS:
            try:
                found = list(map(_OF, decoder.decode_lines(lines)))
            except UNDECODABLE:
                continue
            if len(found) == count:
                times = np.array(found, dtype=kind)
                return times if kind is np.float64 or _sortable(times) else None
    count = lines.count(b"\n") + (not lines.endswith(b"\n"))
    # Lines that are not valid records can be in order of time, too.
    texts = [text.decode("ascii", "replace") for text in _TIME_FIELD.findall(lines)]
    if len(texts) != count:
        return None
    if not texts[0].startswith('"'):
        try:
            return np.array(texts).astype(np.float64)
        except ValueError:
            return None
    times = np.array([text.strip('"') for text in texts])
    return times if _sortable(times) else None


def _sortable(texts: npt.NDArray[np.str_]) -> bool:
    """Whether the order of the texts is that of their times."""
    lengths = np.char.str_len(texts)
    return bool((lengths == lengths[0]).all()) and bool(np.char.endswith(texts, "Z").all())
