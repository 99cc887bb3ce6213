"""Standard input: JSON lines as they come, each of them once. What was read cannot be read again."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import IO, Any, Final

from schema.errors import SourceError
from schema.model import Schema
from skws.records import BadRecord, Record
from skws.replay.jsonl import LineReader
from skws.replay.splits import END, Format, Split
from skws.replay.values import MalformedError
from skws.sources.feed import Batch, Feed, Item, Offset
from skws.sources.readiness import readable

NAME: Final = "standard input"
_BLOCK: Final = 1 << 16
_PORTION: Final = 10_000  # lines


class _Lines(LineReader):
    """Nothing can be looked at ahead: there are tombstones once there was a change event."""

    def __init__(self, split: Split, schema: Schema) -> None:
        super().__init__(split, schema)
        self._of_changes = False

    def _changed(self, item: Any, error: MalformedError) -> list[Record]:
        records = super()._changed(item, error)
        self._of_changes = True
        return records


class StdinFeed:
    """Reads lines from the descriptor of ``file``, without waiting for any."""

    def __init__(self, file: IO[bytes], schema: Schema) -> None:
        self._descriptor = file.fileno()
        self.adopt(schema)
        self._rest = bytearray()
        self._searched = 0
        self._lines = 0
        self._bytes = 0
        self._ended = False
        self._streams = not self._static  # what comes now is stream, or there is no table to come

    @property
    def tables_come(self) -> bool:
        return not self._streams

    def adopt(self, schema: Schema) -> None:
        self._schema = schema
        self._static = frozenset(i for i, r in enumerate(schema.relations) if r.table and r.source is None)
        self._reader = _Lines(Split(Path(NAME), Format.JSON_LINES, None, 0, END, 0, 0), schema)

    def start(self) -> Offset:
        return {"lines": self._lines}

    def tables(self) -> Iterator[Item]:
        """The rows of static tables that are here, and bad records, up to the first record of a stream."""
        for _ in range(_PORTION):
            lines = [] if self._streams else self._take(1)
            if not lines:
                break
            items = self._items(lines)
            if any(isinstance(item, Record) and item.relation not in self._static for item in items):
                self._streams = True
                self._rest[:0] = lines[0]
                return
            self._passed(lines)
            yield from items
        self._streams = self._streams or (self._ended and not self._rest)

    def poll(self, start: Offset, limit: int) -> Batch:
        """Raises SourceError for an offset that is not where the input stands."""
        if start.get("lines") != self._lines:
            raise SourceError(f"{NAME} stands behind line {self._lines}, and cannot go to {start!r}")
        self._streams = True
        lines = self._take(limit)
        items = self._items(lines)
        if any(isinstance(item, Record) and item.relation in self._static for item in items):
            items = list(chain.from_iterable(map(self._streamed, lines)))
        else:
            self._passed(lines)
        return Batch(items, {"lines": self._lines}, ended=self._ended and not self._rest)

    def _streamed(self, line: bytes) -> list[Item]:
        """The items of the next line; rows of static tables are bad here."""
        items = [self._refused(item, line) for item in self._items([line])]
        self._passed([line])
        return items

    def _refused(self, item: Item, line: bytes) -> Item:
        if not isinstance(item, Record) or item.relation not in self._static:
            return item
        reason = (
            f"{self._schema.relations[item.relation].name} is a table, whose rows have to come"
            " before the first record of a stream"
        )
        return BadRecord(NAME, self._lines + 1, self._bytes, line.rstrip(b"\r\n"), reason)

    def _items(self, lines: list[bytes]) -> list[Item]:
        return [self._placed(item) for item in self._reader.items(BytesIO(b"".join(lines)))]

    def _passed(self, lines: list[bytes]) -> None:
        self._lines += len(lines)
        self._bytes += sum(map(len, lines))

    def again(self, start: Offset, end: Offset) -> Iterator[Item]:
        if start == end:
            return iter(())
        raise SourceError(f"{NAME} cannot be read again")

    def commit(self, end: Offset) -> None:
        """What was read is gone anyway."""

    def behind(self, offset: Offset) -> str:  # noqa: ARG002 - what is still to come is not known
        return ""

    def close(self) -> None:
        """Left open: it is not ours."""

    def _take(self, limit: int) -> list[bytes]:
        """At most ``limit`` whole lines of those that are here; the input's last one needs no line end."""
        lines: list[bytes] = []
        while len(lines) < limit:
            end = self._rest.find(b"\n", self._searched) + 1
            if not end and self._fill():
                continue
            if not end and not (self._ended and self._rest):
                break
            end = end or len(self._rest)
            lines.append(bytes(self._rest[:end]))
            del self._rest[:end]
            self._searched = 0
        return lines

    def _fill(self) -> bool:
        """Reads what is here; False if that is nothing, now or for ever."""
        self._searched = len(self._rest)
        if self._ended or not readable(self._descriptor, 0):
            return False
        try:
            block = os.read(self._descriptor, _BLOCK)
        except OSError as error:
            raise SourceError(f"{NAME}: cannot read: {error.strerror}") from None
        self._ended = not block
        self._rest += block
        return True

    def _placed(self, item: Item) -> Item:
        if not isinstance(item, BadRecord):
            return item
        return replace(item, line=item.line + self._lines, offset=item.offset + self._bytes)


@dataclass(frozen=True)
class StdinSource:
    """JSON lines or Debezium events on standard input (or another file, for tests)."""

    file: IO[bytes] | None = None
    local_only: bool = True

    @property
    def name(self) -> str:
        return NAME

    def open(self, schema: Schema) -> Feed:
        return StdinFeed(self.file or sys.stdin.buffer, schema)
