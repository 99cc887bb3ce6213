"""Reads CSV as columns, a piece of the file at a time.

A piece is plain if each of its quotes begins or ends a field, or is doubled in a quoted field: then Arrow and
Python's reader agree on its fields. Any other piece, or one with an unusual value, is read record by record,
like a small file.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import IO, Final

import pyarrow as pa
import pyarrow.csv as pv

from skws.data.arrow import reader_of
from skws.data.batch import BATCH, Chunk, Item
from skws.formats.bare_columns import BareColumns
from skws.formats.files import BOM, Advance, Split, ignore, opened
from skws.formats.tabular import CsvReader
from skws_schema.model import Schema

PIECE_BYTES: Final = 1 << 20


def chunks(
    split: Split, schema: Schema, advance: Advance = ignore, piece_bytes: int = PIECE_BYTES
) -> Iterator[Chunk]:
    """The records of a CSV file with bare rows of one relation. Raises SourceError."""
    assert split.relation is not None  # noqa: S101 - a split of bare rows has one
    with opened(split.path, advance, split.end) as file:
        lines = _Lines(file, piece_bytes)
        reader = CsvReader(split, schema, lines)
        items = reader.records()
        yield Chunk.of(_items_until(items, reader, lines.bytes_read))
        columns = BareColumns(schema, split.relation, reader.names)
        # Arrow splits fields only at ASCII characters.
        parse = _Parse(reader) if columns.usable and reader.delimiter.isascii() else None
        while parse is not None and (piece := lines.piece()):
            arrays = parse.columns(b"".join(piece))
            batch = None if arrays is None else columns.batch(arrays)
            if batch is None:
                lines.put_back(piece)
                yield Chunk.of(_items_until(items, reader, reader.end + sum(map(len, piece))))
            else:
                reader.skip_lines(piece)
                yield Chunk(batch)
        # Not at once: if the columns are not usable, these are all rows of the file.
        while batch_items := list(islice(items, BATCH)):
            yield Chunk.of(batch_items)
        yield Chunk.of([*reader.notes(), *columns.notes(str(split.path))])


def _items_until(items: Iterator[Item], reader: CsvReader, end: int) -> Iterator[Item]:
    """The items of a reader up to an offset."""
    while reader.end < end and (item := next(items, None)) is not None:
        yield item


class _Lines:
    """The lines of a file, one by one or a piece at a time. ``bytes_read``: the bytes returned so far."""

    def __init__(self, file: IO[bytes], piece_bytes: int) -> None:
        self._file = file
        self._size = piece_bytes
        self._queue: deque[bytes] = deque()
        self.bytes_read = 0

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        line = self._queue.popleft() if self._queue else next(self._file)
        self.bytes_read += len(line)
        return line

    def piece(self) -> list[bytes]:
        """The next lines, up to the end of an open quoted field unless it is very long; empty at the end."""
        lines = self._file.readlines(self._size)
        is_open, remaining = b"".join(lines).count(b'"') % 2 == 1, self._size
        while is_open and remaining > 0 and (line := self._file.readline()):
            lines.append(line)
            remaining -= len(line)
            is_open = line.count(b'"') % 2 == 0
        self.bytes_read += sum(map(len, lines))
        return lines

    def put_back(self, lines: list[bytes]) -> None:
        """Return lines to the front, to be read one by one."""
        self._queue.extend(lines)
        self.bytes_read -= sum(map(len, lines))


class _Parse:
    """Splits records into fields, by the layout of a reader."""

    def __init__(self, reader: CsvReader) -> None:
        border = re.escape(reader.delimiter.encode())
        self._quoted = re.compile(rb'(?:(?<=[%b\n])|\A)"(?:[^"]|"")*"(?=[%b\r\n]|\Z)' % (border, border))
        self._names = list(map(str, range(len(reader.names))))
        self._delimiter = reader.delimiter
        self._types = pv.ConvertOptions(
            column_types=dict.fromkeys(self._names, pa.string()), null_values=[""], strings_can_be_null=True
        )

    def columns(self, data: bytes) -> list[pa.Array] | None:
        """The columns of some records as texts, NULL for empty ones; None if they are not plain."""
        has_quotes = b'"' in data
        unquoted = self._quoted.sub(b"", data) if has_quotes else data
        if (
            b'"' in unquoted
            or unquoted.count(b"\r") != unquoted.count(b"\r\n")
            or b"\0" in data
            or data.startswith(BOM)
        ):
            return None
        try:
            table = pv.read_csv(
                reader_of(data),
                pv.ReadOptions(column_names=self._names, use_threads=False, block_size=len(data) + 1),
                pv.ParseOptions(
                    delimiter=self._delimiter,
                    quote_char='"' if has_quotes else False,
                    newlines_in_values=has_quotes,
                ),
                self._types,
            )
        except pa.ArrowException:  # differing numbers of fields, or invalid UTF-8
            return None
        return [column.combine_chunks() for column in table.columns] if len(table) else None
