"""JSON lines by the thousand: what is as usual becomes columns at once, the rest goes to the line reader.

What is plain goes through ``typed``. Of the rest, a chunk is usual if all its
lines are insertions of streaming relations with nothing wrong. One line that
is not sends its whole chunk to the line reader, so that the answer is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import IO, Any

import numpy as np
import orjson

from schema.model import AttributeType, Relation, Row, Schema, Value
from skws.batches import RecordBatch, Rows
from skws.blocks import ColumnBlock, RowBlock
from skws.records import BadRecord, Record
from skws.replay.files import Advance, ignore, opened
from skws.replay.jsonl import skip_to
from skws.replay.reader import read_split
from skws.replay.rows import RowReader
from skws.replay.splits import Format, Split
from skws.replay.typed import TypedLines, in_range, microseconds
from skws.replay.values import MalformedError

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
    """True for JSON lines whose records name their relation and tell its time themselves."""
    return (
        split.format is Format.JSON_LINES
        and split.relation is None
        and split.path.suffix != ".gz"
        and not any(relation.time for relation in schema.relations if not relation.table)
    )


class Unusual(Exception):  # noqa: N818 - a signal, not an error
    """A chunk holds something that the line reader has to look at."""


class ChunkReader:
    """Reads JSON lines whose records name their relation."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._relations = schema.relations
        self._getters = [_getter(relation) for relation in schema.relations]
        self._readers = [RowReader(schema, number) for number in range(len(schema.relations))]
        # Relations whose rows are read here; others are tables, or take their time from a row.
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
        """True if every object has just the relation's attributes, and all values have their own type."""
        relation = self._relations[number]
        if set(map(len, objects)) != {len(relation.attributes)}:
            return False
        return all(
            _OWN[attribute.type].issuperset(map(type, column))
            and (attribute.type is not AttributeType.INTEGER or in_range(column))
            for attribute, column in zip(relation.attributes, columns, strict=True)
        )


def _lines(file: IO[bytes], size: int) -> list[bytes]:
    """Lines until at least ``size`` bytes are read: those that begin before."""
    # Python reads on until there is more than it was told, and all if that was 0.
    return file.readlines(size - 1) if size > 1 else [line for line in (file.readline(),) if line]


def _getter(relation: Relation) -> Callable[[Any], Row]:
    names = [attribute.name for attribute in relation.attributes]
    if len(names) > 1:
        return itemgetter(*names)
    only = names[0]
    return lambda row: (row[only],)
