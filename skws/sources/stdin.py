"""Standard input: JSON lines as they come, each of them once. What was read cannot be read again."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import IO, Final

from schema.errors import SourceError
from schema.model import Schema
from skws.records import BadRecord, Record
from skws.replay.jsonl import LineReader
from skws.replay.splits import END, Format, Split
from skws.sources.feed import Batch, Feed, Item, Offset
from skws.sources.readiness import readable

NAME: Final = "standard input"
_BLOCK: Final = 1 << 16


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

    def adopt(self, schema: Schema) -> None:
        self._static = frozenset(i for i, relation in enumerate(schema.relations) if relation.table)
        self._reader = LineReader(Split(Path(NAME), Format.JSON_LINES, None, 0, END, 0, 0), schema)

    def start(self) -> Offset:
        return {"lines": 0}

    def tables(self) -> Iterator[Item]:
        """None: nothing can be read ahead of the stream."""
        return iter(())

    def poll(self, start: Offset, limit: int) -> Batch:
        """Raises SourceError for an offset that is not where the input stands."""
        if start.get("lines") != self._lines:
            raise SourceError(f"{NAME} stands behind line {self._lines}, and cannot go to {start!r}")
        lines = self._take(limit)
        items = [self._placed(item) for item in self._reader.items(BytesIO(b"".join(lines)))]
        self._lines += len(lines)
        self._bytes += sum(map(len, lines))
        given = [i for i in items if not isinstance(i, Record) or i.relation not in self._static]
        static = len(items) - len(given)
        notices = (f"{NAME} held {static} rows of static tables, which take no part",) if static else ()
        return Batch(given, {"lines": self._lines}, notices, ended=self._ended and not self._rest)

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
