"""JSON lines: one record, bare row or change event a line. The path that most replays take.

Lines are parsed and read without a look at their bytes; only what fails is
looked at again (blank lines, a byte order mark, tombstones, change events).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

import orjson

from schema.model import Schema
from skws.records import BadRecord, Record
from skws.replay.debezium import Changes, is_change
from skws.replay.envelopes import BareRows, Envelopes
from skws.replay.files import BLOCK, BOM, Advance, ignore, not_json, opened
from skws.replay.peek import Holds, json_holds
from skws.replay.splits import Split
from skws.replay.values import MalformedError


def read(split: Split, schema: Schema, advance: Advance = ignore) -> Iterator[Record | BadRecord]:
    """The records of the lines that start in ``split``. Raises SourceError if the file cannot be read."""
    reader = LineReader(split, schema)
    with opened(split.path, advance) as file:
        yield from reader.items(file)


class LineReader:
    """Reads the lines of a split from any file that holds them."""

    def __init__(self, split: Split, schema: Schema) -> None:
        self._split = split
        self._schema = schema
        self._of_changes: bool | None = None
        self._records: BareRows | Envelopes
        self._changes: Changes | None
        if split.relation is None:
            self._records, self._changes = Envelopes(schema), Changes(schema)
        else:
            self._records, self._changes = BareRows(schema, split.relation), None
        self._lines_before: int | None = 0 if split.start == 0 else None

    def items(self, file: IO[bytes]) -> Iterator[Record | BadRecord]:
        """The items of the lines that begin in the split, in order."""
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
        """A line that is not JSON: blank, behind a byte order mark, or bad."""
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
        """JSON that is no record: a change event, a tombstone, or bad."""
        try:
            yield from self._changed(item, error)
        except MalformedError as bad:
            yield self._bad(line, offset, number, str(bad))

    def _changed(self, item: Any, error: MalformedError) -> list[Record]:
        """The records of a change event, none of a tombstone. Raises MalformedError, ``error`` for others."""
        records: list[Record] = []
        if item is not None:
            if self._changes is None or not is_change(item) or "relation" in item:
                raise error
            records = self._changes.records(item)
        if not records and not self.of_changes:
            raise MalformedError("a tombstone, where no change events are") if item is not None else error
        return records

    @property
    def of_changes(self) -> bool:
        """Whether the file is of change events: only there tombstones come to nothing."""
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


def skip_to(file: IO[bytes], start: int) -> int:
    """Moves to the first line that starts at or after ``start``; its offset."""
    if start == 0:
        return 0
    # One byte back: if it ends a line, the line that starts at `start` is ours.
    file.seek(start - 1)
    return start - 1 + len(file.readline())


def _lines_before(split: Split) -> int:
    """How many lines start before the first line of ``split``."""
    with opened(split.path) as file:
        left = skip_to(file, split.start)
        file.seek(0)
        lines = 0
        while left > 0:
            block = file.read(min(left, BLOCK))
            if not block:
                break
            lines += block.count(b"\n")
            left -= len(block)
    return lines
