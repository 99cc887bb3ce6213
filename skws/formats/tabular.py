"""Records from columns (CSV, Parquet), and the CSV reader.

The columns are ``relation``, ``time``, ``op`` and one for each attribute. A stream of several relations has
the columns of all of them; columns of other relations must be empty. A column ``row`` may contain the row as
JSON instead. A file with bare rows of one relation needs no column ``relation``; ``time`` and ``op`` then
belong to the record, unless the relation has attributes of these names. In a stream, an attribute called
``relation``, ``time``, ``op`` or ``row`` can only be in a column ``row``.

A CSV file begins with a header, which also shows whether its fields are separated by commas, semicolons, tabs
or bars; an empty field is NULL. A title, comments or ``sep=;`` may precede it, and rows may have further
fields (``CsvLayout``). It is read in the strict dialect, so that an unclosed quote makes a bad record. A bad
record is reported with its lines, its line number and its offset.
"""

from __future__ import annotations

import csv
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain, count, islice, takewhile
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

from skws.data.batch import BadRecord, Record
from skws.data.value_conversion import TEXT_CONVERSIONS, Convert, MalformedError, timestamp_of_text
from skws.formats.exact_json import loads
from skws.formats.files import BOM, SAVE_AS_UTF8, Advance, Split, ignore, opened
from skws.formats.rows import (
    FIELDS,
    FLAT,
    TRUNCATE,
    Flat,
    Origins,
    RowReader,
    is_deletion,
    lenient,
    logged_row,
    no_relation,
    notes,
    readers,
    refuse_deletion,
    truncated_row,
    within,
)
from skws_schema.errors import nearest, shown
from skws_schema.model import Attribute, Row, Schema, Value

# The conversion of the column at a position to values of an attribute.
ConvertColumn: TypeAlias = Callable[[int, Attribute], Convert]


class ColumnReader:
    """Reads rows of ``columns``. A value is None for NULL, otherwise an argument of ``convert`` or ``time``.

    ``relation``: the position of the relation of bare rows; None for a stream. ``time``: converts a value of
    the column ``time`` to microseconds.
    """

    def __init__(
        self,
        schema: Schema,
        columns: Sequence[str],
        relation: int | None,
        convert: ConvertColumn,
        time: Callable[[Any], int],
    ) -> None:
        self._schema = schema
        self.columns = columns
        self._convert = convert
        self._time = time
        self._readers = readers(schema, relation)
        self._bare = None if relation is None else schema.relations[relation]
        record_fields = (
            FIELDS
            if self._bare is None
            else {"time", "op", *FLAT}.difference(Origins(self._bare).known_names)
        )
        self._record_columns = {name: columns.index(name) for name in record_fields if name in columns}
        self._json = self._record_columns.get("row")
        self._flat = [(name, column) for name, column in self._record_columns.items() if name in FLAT]
        self._layouts: dict[str, _AttributeColumns] = {}

    def record(self, values: Sequence[Any]) -> Record:
        """The record of one row. Raises MalformedError."""
        name = self._bare.name if self._bare is not None else self._field(values, "relation")
        reader = self._readers.get(name) if isinstance(name, str) else None
        if reader is None:
            raise no_relation(name, self._schema)
        op = self._field(values, "op")
        if op == TRUNCATE:
            return self._truncation(reader, values)
        flat = Flat.of({name: values[column] for name, column in self._flat}) if self._flat else None
        delete = flat.deleted if flat is not None else op is not None and is_deletion(op)
        if delete:
            refuse_deletion(reader)
        if flat is not None:
            values = self._logged_values(reader, values, flat)
        row = self._row(reader, values, delete=delete)
        time_value = self._field(values, "time") if reader.takes_time(delete=delete) else None
        record_time = (None if flat is None else flat.time) if time_value is None else self._time(time_value)
        return reader.record(row, record_time, delete=delete)

    def notes(self, source: str) -> list[BadRecord]:
        """Notes on the values passed over since the last call."""
        return notes(self._readers, source)

    def _logged_values(self, reader: RowReader, values: Sequence[Any], flat: Flat) -> Sequence[Any]:
        """The values of a flattened change event, NULL for those that were not logged, as in JSON."""
        return list(logged_row(reader, dict(zip(self.columns, values, strict=True)), flat).values())

    def _truncation(self, reader: RowReader, values: Sequence[Any]) -> Record:
        fields = {self._record_columns.get(name) for name in ("relation", "time", "op")}
        if any(value is not None for column, value in enumerate(values) if column not in fields):
            raise truncated_row(reader)
        time_value = self._field(values, "time")
        return reader.truncation(None if time_value is None else self._time(time_value))

    def _field(self, values: Sequence[Any], name: str) -> Any:
        column = self._record_columns.get(name)
        return None if column is None else values[column]

    def _row(self, reader: RowReader, values: Sequence[Any], *, delete: bool) -> Row:
        if self._json is not None:
            row = self._json_row(values)
            return reader.deletion(row) if delete else reader.insertion(row)
        layout = self._layouts.get(reader.relation.name)
        if layout is None:
            layout = _AttributeColumns(reader, self.columns, self._record_columns.keys(), self._convert)
            self._layouts[reader.relation.name] = layout
        return layout.row(values, delete=delete)

    def _json_row(self, values: Sequence[Any]) -> Any:
        for column, name in enumerate(self.columns):
            if name not in self._record_columns and values[column] is not None:
                raise MalformedError(f"unexpected column {shown(name)} beside 'row'{nearest(name, FIELDS)}")
        text = values[self._json or 0]
        if not isinstance(text, str | bytes):
            return text
        try:
            return loads(text)
        except orjson.JSONDecodeError as error:
            raise MalformedError(f"the column 'row' is not JSON: {error}") from None


class _AttributeColumns:
    """The columns of one relation's attributes."""

    def __init__(
        self,
        reader: RowReader,
        columns: Sequence[str],
        record_fields: Collection[str],
        convert: ConvertColumn,
    ) -> None:
        self._reader = reader
        self._columns = columns
        indices = {name: i for i, name in enumerate(columns) if name not in record_fields}
        for name in reader.names:
            if name in record_fields:
                raise MalformedError(
                    f"{reader.relation.name}.{name} has the name of a field of the record, so it cannot"
                    " have a column of its own; put the rows as JSON in a column 'row'"
                )
        attributes = reader.relation.attributes
        locations = Origins(reader.relation).columns(indices)
        used_names = {column for column, _ in filter(None, locations)}
        self._unknown_columns = tuple(i for name, i in indices.items() if name not in used_names)
        self._conversions = tuple(
            (-1, _null)
            if location is None
            else (indices[location[0]], _conversion(a, location[1], convert, indices[location[0]]))
            for a, location in zip(attributes, locations, strict=True)
        )
        self._empty = bool(indices) and not used_names
        missing = [a.name for a, location in zip(attributes, locations, strict=True) if location is None]
        self._missing = {
            delete: next((name for name in missing if name in reader.required_names(delete=delete)), None)
            for delete in (False, True)
        }

    def row(self, values: Sequence[Any], *, delete: bool) -> Row:
        """The row from the values of all columns. Raises MalformedError."""
        for column in self._unknown_columns:
            if values[column] is not None:
                if self._empty:
                    raise self._reader.no_attribute(self._columns[column])
                self._reader.unknown(self._columns[column])
        missing = self._missing[delete]
        if missing is not None:
            raise self._reader.missing(missing)
        row: list[Value] = []
        for column, convert in self._conversions:
            value = values[column]
            try:
                row.append(None if value is None else convert(value))
            except MalformedError as error:
                row.append(self._reader.missing_value(self._reader.names[len(row)], error))
        return tuple(row)


def _conversion(attribute: Attribute, path: str | None, convert: ConvertColumn, column: int) -> Convert:
    if path is not None:
        return within(attribute, path)
    return lenient(attribute, convert(column, attribute))


def _null(_value: Any) -> Value:
    return None


# The largest field, which bounds the text after an unclosed quote; csv's own limit (128 KiB) is smaller than
# real documents.
FIELD_BYTES = 16 << 20
OPEN_QUOTE: Final = "a quoted field is never closed"
_OPEN_AT_THE_END: Final = "unexpected end of data"  # messages of Python's csv module
_LONE_LINE_END: Final = "new-line character seen in unquoted field"


_SEPARATORS: Final = ",;\t|"
_SEPARATOR_LINE: Final = re.compile(r"\ufeff?\"?sep=(.)\"?\s*", re.IGNORECASE)
"""The first line in which Excel names the separator."""
_VALUE: Final = re.compile(r"[-+]?[0-9.,:/ -]*[0-9][0-9.,:/ -]*")
"""A field that is unlikely to be a name."""
HEAD_LINES: Final = 50
"""The number of lines from which the layout is determined."""
_TITLE_LINES: Final = 10


class CsvLayout(NamedTuple):
    """The position of the header of a CSV file, and the separator of its fields.

    ``before``: the lines before the header. ``passed_over``: the number of lines with a title or comments.
    ``width``: the number of fields of a record, more than in the header if most records have more.
    """

    before: int
    passed_over: int
    delimiter: str
    name_count: int
    width: int

    @classmethod
    def of(cls, lines: Sequence[str]) -> CsvLayout:
        """The layout of the file that begins with ``lines``, ``HEAD_LINES`` or all of them.

        A line is the header unless it names the separator, is a comment, or has at most half the fields of a
        later line near it, if most of the following lines have as many fields as that line.
        """
        first_line = next((line_number for line_number, line in enumerate(lines) if line.strip()), len(lines))
        separator = _SEPARATOR_LINE.fullmatch(lines[first_line]) if first_line < len(lines) else None
        delimiters = separator[1] if separator else _SEPARATORS
        lines_with_text = [
            line_number
            for line_number, line in enumerate(lines)
            if line.strip() and line_number >= first_line + bool(separator)
        ]
        options = [cls._at(lines, line_number, delimiters) for line_number in lines_with_text[:_TITLE_LINES]]
        if not options:
            return cls(len(lines), 0, delimiters[0], 0, 0)
        comments = list(takewhile(lambda option: option.is_comment(lines), options))
        first = comments[-1] if comments else options[0]  # the last of several comments may name the columns
        header_option = next((option for option in options if option.is_header_after(first, lines)), first)
        skipped = [line_number for line_number in lines_with_text if line_number < header_option.before]
        return header_option._replace(passed_over=len(skipped))

    @classmethod
    def _at(cls, lines: Sequence[str], line_number: int, delimiters: str) -> CsvLayout:
        """The layout with the header at a line."""
        delimiter = max(delimiters, key=lines[line_number].count)
        widths = [len(_trim(fields)) for fields in _lenient(lines[line_number:], delimiter)]
        name_count, rows = (widths[0] if widths else 0), Counter(widths[1:])
        width, count = rows.most_common(1)[0] if rows else (name_count, 0)
        return cls(
            line_number,
            0,
            delimiter,
            name_count,
            max(name_count, width) if 2 * count > rows.total() else name_count,
        )

    def is_header_after(self, first: CsvLayout, lines: Sequence[str]) -> bool:
        """True if the header is here and not at ``first``, which is then a title or a comment."""
        if self.name_count < 2 or self.name_count != self.width or self.is_comment(lines):
            return False
        if self.before == first.before:
            return True
        names, *rows = _lenient(lines[self.before :], self.delimiter)
        if any(map(_VALUE.fullmatch, names)):
            return False
        if any(all(map(_VALUE.fullmatch, column)) for column in zip(*rows, strict=False)):
            return first.name_count < self.name_count  # names over values
        if lines[first.before].startswith("#"):
            return True
        is_title = " " in lines[first.before].strip() or not lines[first.before + 1].strip()
        return 2 * first.name_count <= self.name_count and (self.name_count > 2 or is_title)

    def is_comment(self, lines: Sequence[str]) -> bool:
        """True if the line is a comment; a "#" may also directly precede the first name of a header."""
        return lines[self.before].startswith("#") and lines[self.before][1:2] in ("#", "!", " ", "\t")


def _trim(fields: list[str]) -> list[str]:
    """The fields, without empty ones at the end."""
    while fields and not fields[-1].strip():
        fields.pop()
    return fields


def _lenient(lines: Iterable[str], delimiter: str) -> Iterator[list[str]]:
    """The non-empty records, up to the first one that cannot be read."""
    try:
        yield from filter(None, _csv_reader(lines, delimiter, strict=False))
    except csv.Error:
        return


def fields_of(lines: Iterable[str], layout: CsvLayout, *, strict: bool = True) -> Iterator[list[str]]:
    """The fields of each record, the header first; empty lists for lines without a record.

    Raises csv.Error.
    """
    return _csv_reader(islice(lines, layout.before, None), layout.delimiter, strict=strict)


def _csv_reader(lines: Iterable[str], delimiter: str, *, strict: bool) -> Iterator[list[str]]:
    csv.field_size_limit(max(csv.field_size_limit(), FIELD_BYTES))  # for the whole process
    return csv.reader(lines, strict=strict, delimiter=delimiter)


def csv_fault(error: Exception) -> str:
    """The reason why a record cannot be read, for a message."""
    reason = str(error)
    if reason == _OPEN_AT_THE_END:
        return OPEN_QUOTE
    return "a line break in an unquoted field" if reason.startswith(_LONE_LINE_END) else reason


def column_names(header: Sequence[str], width: int = 0) -> list[str]:
    """The names of columns: an unnamed one gets its number, a duplicate the count of its name.

    ``width``: the number of columns, if more than in the header.
    """
    names: dict[str, None] = {}
    header_names = set(header)
    counts: defaultdict[str, Iterator[int]] = defaultdict(lambda: count(2))
    for position, field in enumerate([*header, *[""] * (width - len(header))], 1):
        text = field.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        base = name = text if text.strip() else f"column_{position}"
        while name in names or (name != base and name in header_names):
            name = f"{base}_{next(counts[base])}"
        names[name] = None
    return list(names)


def fit_fields(fields: list[str], layout: CsvLayout) -> list[str]:
    """``fields``, filled up to the width of the layout, without empty ones beyond.

    Raises MalformedError if there are more, or fewer than the header has.
    """
    width = layout.width
    if len(fields) == width:
        return fields
    if len(fields) > width and not any(fields[width:]):
        return fields[:width]
    if layout.name_count <= len(fields) < width:
        return [*fields, *[""] * (width - len(fields))]
    raise MalformedError(f"{len(fields)} fields, but the header names {layout.name_count}")


def read(split: Split, schema: Schema, advance: Advance = ignore) -> Iterator[Record | BadRecord]:
    """The records of a CSV file. Raises SourceError if the file cannot be read."""
    with opened(split.path, advance, split.end) as file:
        yield from CsvReader(split, schema, file).items()


def as_text(line: bytes) -> str:
    """A line; bytes that are not UTF-8 become lone surrogates."""
    return line.decode("utf-8", "surrogateescape")


def read_layout(file: Iterable[bytes]) -> tuple[CsvLayout, Iterator[bytes]]:
    """The layout of a file, and all of its lines without a byte order mark."""
    lines = iter(file)
    head = list(islice(lines, HEAD_LINES))
    if head:
        head[0] = head[0].removeprefix(BOM)
    return CsvLayout.of(list(map(as_text, head))), chain(head, lines)


class CsvReader:
    """Reads records from lines, which begin with the header or lines before it.

    ``layout``: the layout of the file; None to determine it from the lines.
    """

    def __init__(
        self, split: Split, schema: Schema, file: Iterable[bytes], layout: CsvLayout | None = None
    ) -> None:
        self._split = split
        self._schema = schema
        self._layout, self._file = (layout, file) if layout is not None else _layout_with_mark(file)
        self._is_noted = not self._layout.passed_over
        self._lines_of_record: list[bytes] = []
        self._line = 1
        self._offset = 0
        self._row_reader: ColumnReader | None = None

    @property
    def end(self) -> int:
        """The offset of the end of the latest record."""
        return self._offset + sum(map(len, self._lines_of_record))

    @property
    def names(self) -> Sequence[str]:
        """The names of the columns, once the header has been read."""
        return () if self._row_reader is None else self._row_reader.columns

    @property
    def delimiter(self) -> str:
        return self._layout.delimiter

    def items(self) -> Iterator[Record | BadRecord]:
        """The records and bad records, then notes on values passed over."""
        yield from self.records()
        yield from self.notes()

    def skip_lines(self, lines: Sequence[bytes]) -> None:
        """Skip lines that have been read in another way; called between two records."""
        self._advance()
        self._lines_of_record += lines
        self._advance()

    def notes(self) -> list[BadRecord]:
        """Notes on the values passed over since the last call."""
        source = str(self._split.path)
        passed_over = [] if self._row_reader is None else self._row_reader.notes(source)
        if not self._is_noted:
            self._is_noted = True
            reason = f"text before the header in {self._split.path.name}"
            passed_over.append(BadRecord(source, 0, 0, b"", reason, passed_over=self._layout.passed_over))
        return passed_over

    def records(self) -> Iterator[Record | BadRecord]:
        """The records and bad records."""
        parser = fields_of(self._texts(), self._layout)
        while True:
            try:
                fields = next(parser, None)
                if fields is None:
                    return
                if fields and self._row_reader is None:
                    self._header(fields)
                elif fields and self._row_reader is not None:
                    yield self._record(self._row_reader, fields)
            except (csv.Error, MalformedError) as error:
                yield self._bad(csv_fault(error))
            self._advance()

    def _texts(self) -> Iterator[str]:
        """The lines as text; bytes that are not UTF-8 become lone surrogates, which ``check_utf8`` finds."""
        for line in self._file:
            is_first = self._offset == 0 and not self._lines_of_record
            self._lines_of_record.append(line)
            yield as_text(line.removeprefix(BOM) if is_first else line)

    def _header(self, fields: list[str]) -> None:
        names = column_names(fields, self._layout.width)
        self._layout = self._layout._replace(width=len(names))
        self._row_reader = ColumnReader(
            self._schema, names, self._split.relation, _of_text, timestamp_of_text
        )

    def _record(self, row_reader: ColumnReader, fields: list[str]) -> Record:
        fields = fit_fields(fields, self._layout)
        if not all(map(str.isascii, fields)):
            for field in fields:
                check_utf8(field)
        return row_reader.record([field or None for field in fields])

    def _bad(self, reason: str) -> BadRecord:
        raw = b"".join(self._lines_of_record).rstrip(b"\r\n")
        return BadRecord(str(self._split.path), self._line, self._offset, raw, reason)

    def _advance(self) -> None:
        self._line += len(self._lines_of_record)
        self._offset += sum(map(len, self._lines_of_record))
        self._lines_of_record.clear()


def _layout_with_mark(file: Iterable[bytes]) -> tuple[CsvLayout, Iterator[bytes]]:
    """Like ``read_layout``, with the byte order mark, which counts in offsets."""
    lines = iter(file)
    head = list(islice(lines, HEAD_LINES))
    return read_layout(head)[0], chain(head, lines)


def _of_text(_column: int, attribute: Attribute) -> Convert:
    return TEXT_CONVERSIONS[attribute.type]


def check_utf8(text: str) -> None:
    """Raises MalformedError if a text contains a lone surrogate, which replaces invalid UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise MalformedError(
            f"not UTF-8: {text[error.start : error.end].encode('utf-8', 'surrogateescape')!r}; {SAVE_AS_UTF8}"
        ) from None
