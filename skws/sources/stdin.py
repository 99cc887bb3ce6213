"""Standard input as a source: JSON lines, read once as they arrive, and never again."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import chain
from typing import IO, Final

from skws.data.batch import NOTHING, BadRecord, Chunk, Item, Record, chunked
from skws.durable import explained
from skws.formats.jsonl import StreamedLines
from skws.sources.feed import Batch, Feed, Offset, Source, readable
from skws_schema.errors import SourceError
from skws_schema.model import Schema

NAME: Final = "standard input"
_BLOCK: Final = 1 << 16
_PORTION: Final = 10_000  # lines


class StdinFeed(Feed):
    """Reads lines from the descriptor of ``file``, which stays open; never waits for input."""

    def __init__(self, file: IO[bytes], schema: Schema) -> None:
        self._descriptor = file.fileno()
        self.change_schema(schema)
        self._buffer = bytearray()
        self._search_start = 0
        self._lines = 0
        self._bytes = 0
        self._ended = False
        self._in_stream = not self._static  # the rows of tables have ended, or there are no tables

    @property
    def tables_pending(self) -> bool:
        return not self._in_stream

    def change_schema(self, schema: Schema) -> None:
        self._schema = schema
        self._static = frozenset(i for i, r in enumerate(schema.relations) if r.table and r.source is None)
        self._reader = StreamedLines(NAME, schema)

    def start(self) -> Offset:
        return {"lines": self._lines}

    def tables(self) -> Iterator[Chunk]:
        """The rows of static tables that have arrived, and bad records, before the first of a stream."""
        yield from chunked(self._table_rows())

    def _table_rows(self) -> Iterator[Item]:
        for _ in range(_PORTION):
            lines = [] if self._in_stream else self._take(1)
            if not lines:
                break
            items = self._items(lines)
            if any(isinstance(item, Record) and item.relation not in self._static for item in items):
                self._in_stream = True
                self._buffer[:0] = lines[0]
                return
            self._advance(lines)
            yield from items
        self._in_stream = self._in_stream or (self._ended and not self._buffer)

    def poll(self, start: Offset, limit: int) -> Batch:
        """Raises SourceError unless ``start`` is the current position."""
        if start.get("lines") != self._lines:
            raise SourceError(f"{NAME} is after line {self._lines}, and cannot go to {start!r}")
        self._in_stream = True
        lines = self._take(limit)
        items = self._items(lines)
        if any(isinstance(item, Record) and item.relation in self._static for item in items):
            items = list(chain.from_iterable(map(self._stream_items, lines)))
        else:
            self._advance(lines)
        return Batch(Chunk.of(items), {"lines": self._lines}, ended=self._ended and not self._buffer)

    def _stream_items(self, line: bytes) -> list[Item]:
        """The items of the next line; rows of static tables are bad here."""
        items = [self._refuse_table_row(item, line) for item in self._items([line])]
        self._advance([line])
        return items

    def _refuse_table_row(self, item: Item, line: bytes) -> Item:
        if not isinstance(item, Record) or item.relation not in self._static:
            return item
        reason = (
            f"{self._schema.relations[item.relation].name} is a table, whose rows must come"
            " before the first record of a stream"
        )
        return BadRecord(NAME, self._lines + 1, self._bytes, line.rstrip(b"\r\n"), reason)

    def _items(self, lines: list[bytes]) -> list[Item]:
        return [self._relocated(item) for item in self._reader.items(BytesIO(b"".join(lines)))]

    def _advance(self, lines: list[bytes]) -> None:
        self._lines += len(lines)
        self._bytes += sum(map(len, lines))

    def replay(self, start: Offset, end: Offset) -> Chunk:
        if start == end:
            return NOTHING
        raise SourceError(f"{NAME} cannot be read again")

    def _take(self, limit: int) -> list[bytes]:
        """At most ``limit`` of the whole lines that have arrived; the last line needs no line end."""
        lines: list[bytes] = []
        while len(lines) < limit:
            end = self._buffer.find(b"\n", self._search_start) + 1
            if not end and self._fill():
                continue
            if not end and not (self._ended and self._buffer):
                break
            end = end or len(self._buffer)
            lines.append(bytes(self._buffer[:end]))
            del self._buffer[:end]
            self._search_start = 0
        return lines

    def _fill(self) -> bool:
        """Read the input that has arrived; False if there is none, or the input has ended."""
        self._search_start = len(self._buffer)
        if self._ended or not readable(self._descriptor, 0):
            return False
        with explained(f"{NAME}: cannot read", SourceError):
            block = os.read(self._descriptor, _BLOCK)
        self._ended = not block
        self._buffer += block
        return True

    def _relocated(self, item: Item) -> Item:
        if not isinstance(item, BadRecord):
            return item
        return replace(item, line=item.line + self._lines, offset=item.offset + self._bytes)


@dataclass(frozen=True)
class StdinSource(Source):
    """JSON lines or Debezium events on standard input (or another file, for tests)."""

    file: IO[bytes] | None = None

    @property
    def name(self) -> str:
        return NAME

    @property
    def local_only(self) -> bool:
        return True

    def open(self, schema: Schema) -> Feed:
        return StdinFeed(self.file or sys.stdin.buffer, schema)
