"""Rows in the text format of COPY, read by columns.

A line has the position of a relation, then its attributes. A value is written by the output function of its
type, as in logical replication. Line ends and tabs inside values are escaped, so that lines can be counted,
cut and sorted unchanged.

All values of a column are converted at once. If one is unusual (``NaN``, say), the rows with it are
converted one by one, as changes of the log are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import orjson
import pyarrow as pa
from pyarrow import csv

from skws.data.arrow import flags, integers, reader_of
from skws.data.batch import NO_RECORDS, BadRecord, Chunk, Ints, Item, Record, RecordBatch, concat_batches
from skws.data.blocks import ColumnBlock
from skws.data.texts import Texts
from skws.data.value_conversion import EARLIEST, MalformedError, timestamp
from skws.formats.bare_columns import block_values, typed
from skws.formats.rows import RowReader
from skws_schema.model import AttributeType, Schema

_NULL: Final = "\\N"
_ESCAPED: Final = re.compile(r"\\(.)")
_LETTERS: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class CopiedRows:
    """Reads lines of the relations of a schema. ``time``: that of their records, in microseconds.

    ``source``: the origin that bad records name.
    """

    def __init__(self, schema: Schema, time: int, source: str) -> None:
        self._time = time
        self._source = source
        self._readers = [RowReader(schema, n, by_origin=False) for n in range(len(schema.relations))]

    def read(self, lines: bytes, offset: int = 0) -> Chunk:
        """The records of whole lines, in order. ``offset``: that of the first line."""
        batches: list[RecordBatch] = []
        orders: list[Ints] = []
        bad: list[BadRecord] = []
        for number, relation_lines, row_numbers in _by_relation(lines):
            columns = _columns(relation_lines, len(self._readers[number].names))
            batch = self._columnar_batch(number, columns)
            if batch is None:
                offsets = (offset + _line_bounds(lines)[0].take(row_numbers)).tolist()
                items = list(self._row_items(number, columns, offsets))
                row_numbers = row_numbers[[type(item) is Record for item in items]]  # noqa: PLW2901 - without bad ones
                chunk = Chunk.of(items)
                batch = chunk.records
                bad += chunk.bad
            batches.append(batch)
            orders.append(row_numbers)
        records = concat_batches(batches) if batches else NO_RECORDS
        if len(batches) > 1:
            records = records.take(np.argsort(np.concatenate(orders), kind="stable"))
        bad += [note for reader in self._readers for note in reader.notes(self._source)]
        return Chunk(records, bad)

    def times(self, lines: bytes) -> Ints:
        """The time of each line; the earliest time for a line that is not a record."""
        times = np.full(lines.count(b"\n"), self._time, dtype=np.int64)
        for number, relation_lines, row_numbers in _by_relation(lines):
            reader = self._readers[number]
            if reader.time_column is not None:
                (column,) = _columns(relation_lines, len(reader.names), reader.time_column)
                values = typed(column, AttributeType.TIMESTAMP)
                if values is not None:
                    times[row_numbers] = np.where(flags(values.is_valid()), integers(values), EARLIEST)
                else:
                    times[row_numbers] = [
                        EARLIEST if text is None else _time(text) for text in column.to_pylist()
                    ]
        return times

    def _columnar_batch(self, number: int, columns: Sequence[pa.Array]) -> RecordBatch | None:
        """The records of rows as columns; None if a value is unusual."""
        reader, size = self._readers[number], len(columns[0])
        values = [typed(c, a.type) for c, a in zip(columns, reader.relation.attributes, strict=True)]
        stored_columns = [block_values(column) for column in values if column is not None]
        if len(stored_columns) < len(values):
            return None
        times: object = np.full(size, 0 if reader.table else self._time, dtype=np.int64)
        if reader.time_column is not None:
            times = stored_columns[reader.time_column]
        if not isinstance(times, np.ndarray):  # some rows have no time
            return None
        return RecordBatch.of_block(
            ColumnBlock(number, stored_columns, reader.relation.search_columns), times
        )

    def _row_items(self, number: int, columns: Sequence[pa.Array], offsets: Sequence[int]) -> Iterator[Item]:
        reader = self._readers[number]
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        for offset, row in zip(offsets, rows, strict=True):
            try:
                yield reader.record(reader.convert(row), self._time)
            except MalformedError as error:
                row_fields = {
                    "relation": reader.relation.name,
                    "row": dict(zip(reader.names, row, strict=True)),
                }
                where = f"({reader.relation.name}, at byte {offset:,})"
                yield BadRecord(self._source, 0, offset, orjson.dumps(row_fields), str(error), where)


def _time(text: str) -> int:
    try:
        return timestamp(text)
    except MalformedError:
        return EARLIEST


def _by_relation(lines: bytes) -> Iterator[tuple[int, bytes, Ints]]:
    """The lines of each relation, and their numbers."""
    if not lines:
        return
    starts, ends = _line_bounds(lines)
    prefix = lines[: lines.index(b"\t") + 1]
    characters = np.frombuffer(lines + bytes(len(prefix)), dtype=np.uint8)
    if all((characters.take(starts + index) == letter).all() for index, letter in enumerate(prefix)):
        yield int(prefix), lines, np.arange(len(starts))
        return
    groups: dict[bytes, list[int]] = {}
    for number, start in enumerate(starts.tolist()):
        groups.setdefault(lines[start : lines.index(b"\t", start)], []).append(number)
    for relation, numbers in groups.items():
        yield int(relation), b"".join([lines[starts[n] : ends[n]] for n in numbers]), np.array(numbers)


def _line_bounds(lines: bytes) -> tuple[Ints, Ints]:
    """The offsets of the first byte of each line, and after its last."""
    ends = np.flatnonzero(np.frombuffer(lines, dtype=np.uint8) == ord("\n")) + 1
    return np.concatenate([[0], ends[:-1]]), ends


def _columns(lines: bytes, number: int, only: int | None = None) -> list[pa.Array]:
    """The texts of a relation's attributes, or of one attribute."""
    names = [str(index) for index in range(-1, number)]  # the first is the position of the relation
    table = csv.read_csv(
        reader_of(lines),
        csv.ReadOptions(column_names=names, block_size=len(lines) + 1, use_threads=False),
        csv.ParseOptions(delimiter="\t", quote_char=False, escape_char=False, ignore_empty_lines=False),
        csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            include_columns=names[1:] if only is None else [str(only)],
            strings_can_be_null=True,
            null_values=[_NULL],
        ),
        memory_pool=pa.system_memory_pool(),  # Arrow's own pool keeps the memory of the largest piece
    )
    return [_unescape_column(array.combine_chunks()) for array in table.columns]


def _unescape_column(column: pa.Array) -> pa.Array:
    if b"\\" not in bytes(Texts.of([column]).data):
        return column
    texts = column.to_pylist()
    return pa.array([text and _ESCAPED.sub(_unescape, text) for text in texts], pa.string())


def _unescape(match: re.Match[str]) -> str:
    return _LETTERS.get(match[1], match[1])
