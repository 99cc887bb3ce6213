"""CSV files: a header, then records by columns; an empty field is NULL.

Read in the strict dialect, so that a quote that never closes is a bad record
and no text. The lines that the parser takes for one record are kept beside
it: they are the raw bytes of a bad record, and tell its line and offset.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from typing import Final

from schema.model import Attribute, Schema
from skws.records import BadRecord, Record
from skws.replay.files import BOM, Advance, ignore, opened
from skws.replay.flat import FlatReader
from skws.replay.splits import Split
from skws.replay.values import TEXT_CONVERSIONS, Convert, MalformedError, timestamp_of_text

# The largest field. It bounds what an unclosed quote can swallow; csv's own limit (128 KiB)
# is below the size of real documents.
FIELD_BYTES = 16 << 20
OPEN_QUOTE: Final = "a quoted field is never closed"
_OPEN_AT_THE_END: Final = "unexpected end of data"  # as Python's csv says it


def read(split: Split, schema: Schema, advance: Advance = ignore) -> Iterator[Record | BadRecord]:
    """The records of a CSV file. Raises SourceError if the file cannot be read."""
    with opened(split.path, advance) as file:
        yield from CsvReader(split, schema, file).items()


class CsvReader:
    """Reads records from lines, the first of which are the header."""

    def __init__(self, split: Split, schema: Schema, file: Iterable[bytes]) -> None:
        self._split = split
        self._schema = schema
        self._file = file
        self._taken: list[bytes] = []
        self._line = 1
        self._offset = 0
        self._width = 0
        self._flat: FlatReader | None = None
        self._fault = ""

    @property
    def end(self) -> int:
        """Bytes up to the end of the record that came out last."""
        return self._offset + sum(map(len, self._taken))

    def items(self) -> Iterator[Record | BadRecord]:
        csv.field_size_limit(max(csv.field_size_limit(), FIELD_BYTES))
        parser = csv.reader(self._texts(), strict=True)
        while True:
            try:
                fields = next(parser, None)
                if fields is None:
                    return
                if fields and self._width == 0:
                    self._header(fields)
                elif fields:
                    yield self._record(fields)
            except (csv.Error, MalformedError) as error:
                reason = str(error)
                yield self._bad(OPEN_QUOTE if reason == _OPEN_AT_THE_END else reason)
            self._advance()

    def _texts(self) -> Iterator[str]:
        """The lines as text; bytes that are no UTF-8 become lone surrogates, to be found in the fields."""
        for line in self._file:
            start = self._offset == 0 and not self._taken
            self._taken.append(line)
            yield (line.removeprefix(BOM) if start else line).decode("utf-8", "surrogateescape")

    def _header(self, fields: list[str]) -> None:
        self._width = len(fields)
        # What is wrong with the header is wrong with every record below it.
        twice = next((name for name in fields if fields.count(name) > 1), None)
        if twice is not None:
            self._fault = f"the header names the column {twice!r} twice"
        else:
            self._flat = FlatReader(self._schema, fields, self._split.relation, _of_text, timestamp_of_text)

    def _record(self, fields: list[str]) -> Record:
        if self._flat is None:
            raise MalformedError(self._fault)
        if len(fields) != self._width:
            raise MalformedError(f"{len(fields)} fields, and the header names {self._width}")
        if not all(map(str.isascii, fields)):
            for field in fields:
                _check_utf8(field)
        return self._flat.record([field or None for field in fields])

    def _bad(self, reason: str) -> BadRecord:
        raw = b"".join(self._taken).rstrip(b"\r\n")
        return BadRecord(str(self._split.path), self._line, self._offset, raw, reason)

    def _advance(self) -> None:
        self._line += len(self._taken)
        self._offset += sum(map(len, self._taken))
        self._taken.clear()


def _of_text(_column: int, attribute: Attribute) -> Convert:
    return TEXT_CONVERSIONS[attribute.type]


def _check_utf8(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise MalformedError(
            f"not UTF-8: {text[error.start : error.end].encode('utf-8', 'surrogateescape')!r}"
        ) from None
