"""Samples of replay files, as columns of values from which a schema is inferred.

Nested objects and arrays have a column for each path to a value.
"""

from __future__ import annotations

import csv
import re
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

from skws.data.value_conversion import MalformedError, Unreadable
from skws.formats import Format
from skws.formats.debezium import changed_table, exact_row, is_change, unwrap
from skws.formats.exact_json import loads
from skws.formats.files import BOM, check_exists, not_json, opened, stem_of
from skws.formats.nested import arrays, without
from skws.formats.parquet import parquet
from skws.formats.rows import DEEPEST, FIELDS, FLAT, MISSING, TRUNCATE, Flat, leaves, value_at
from skws.formats.splits import NoRecordsError, format_of, skipped_notes, visit_files
from skws.formats.tabular import (
    CsvLayout,
    as_text,
    check_utf8,
    column_names,
    csv_fault,
    fields_of,
    fit_fields,
    read_layout,
)
from skws_schema.errors import TOO_DEEP, SourceError, quantity, shown
from skws_schema.infer.column_profile import FEW_ODD, profile
from skws_schema.infer.infer import SAMPLE_ROWS, Nested
from skws_schema.infer.keys import SampledTable, identifier_score
from skws_schema.model import PLACE
from skws_schema.yaml.document import as_name, is_name

SAMPLE_RECORDS: Final = 200_000
"""The most records that are read of one file."""

_KEY_OF_FEW: Final = 0.85
_KEY_OF_MANY: Final = 0.7
"""The least identifier score of a key column, since a row replaces earlier ones with the same key."""
_MANY: Final = 20
_ROW_FIELDS: Final = frozenset({"id", "uuid", "key", "code", "number", "sha", "hash", "name", "title"})
"""Names that fields of rows have, but not fields of an object around rows."""

_DIGITS: Final = re.compile(r"\d+")
_Skip: TypeAlias = Callable[[str], None]
_REASONS: Final = 3


class SampleRow(NamedTuple):
    """A row of a relation (None: the relation of the file). ``timed``: its record has a time.

    ``update``: it replaces a row with its key, so that the key is not unique among all rows. ``json``: its
    arrays of objects may contain rows.
    """

    relation: str | None
    values: Mapping[str, object]
    timed: bool = False
    update: bool = False
    json: bool = False


_MANY_OBJECTS: Final = 3


class Samples:
    """The first ``SAMPLE_ROWS`` rows of each relation.

    ``unreadable``: the number of bad records; ``reasons``: locations and reasons of the first ones.
    ``skipped``: the reasons for files that are left out. ``notes``: lines on files with rows that are not
    read.
    """

    def __init__(self) -> None:
        self._rows: dict[str, list[dict[str, object]]] = {}
        self._updates: dict[str, list[dict[str, object]]] = {}
        self.timed: set[str] = set()
        self.unreadable = 0
        self.reasons: list[str] = []
        self.skipped: list[NoRecordsError] = []
        self.notes: list[str] = []
        self._arrays: dict[str, str] = {}
        self._outer_rows: dict[str, list[int]] = {}
        self._outer_names: dict[str, tuple[str, ...]] = {}

    def skip(self, reason: str) -> None:
        """Count a bad record."""
        self.unreadable += 1
        if len(self.reasons) < _REASONS:
            self.reasons.append(reason)

    def add_file(self, relation: str, rows: Iterable[SampleRow], document: Path | None = None) -> None:
        """Add a file's rows. ``relation``: the relation of bare rows, which are bad if other rows name one.

        ``document``: the file, if it may be a single object around the rows.
        """
        bare: list[SampleRow] = []
        count, has_relations = 0, False
        for row in rows:
            if row.relation is not None:
                has_relations = True
                self.add(row.relation, row)
                continue
            count += 1
            if len(bare) < SAMPLE_ROWS:
                bare.append(row)
        if has_relations:
            self.unreadable += count
            return
        if document and count == 1 and bare[0].json:
            bare = self._unwrap(relation, bare[0])
            if len(bare) == 1 and (wrapped := _keyed_objects(bare[0].values)) is not None:
                path, size = wrapped
                jq_path = "".join(f"[{orjson.dumps(name).decode()}]" for name in path)
                entries = (
                    f".{jq_path} | to_entries[] | {{key}} + .value"
                    if path
                    else "to_entries[] | {key} + .value"
                )
                self.notes.append(
                    f"1 record of {document.name} holds {size:,} objects by name; to search them as rows:"
                    f" jq -c {shlex.quote(entries)} {shlex.quote(str(document))} > rows.jsonl"
                )
        for row in bare:
            self.add(relation, row)

    def _unwrap(self, relation: str, row: SampleRow) -> list[SampleRow]:
        """The rows that an object wraps, at the path used for earlier ones; otherwise the object as a row."""
        earlier_path = self._arrays.get(relation)
        if relation in self._rows and earlier_path is None:
            return [row]
        path = (_array_path(row.values) or "") if earlier_path is None else earlier_path.partition(".")[2]
        elements = value_at(row.values, path) if path else MISSING
        if not isinstance(elements, list):
            return [row]
        if earlier_path is None:
            self._arrays[relation] = f"{relation}.{path}"
            self._outer_names[relation] = tuple(leaves(without(row.values, {path: None})))
        return [SampleRow(None, element, json=True) for element in elements if isinstance(element, dict)]

    def add(self, relation: str, row: SampleRow) -> None:
        rows = (self._updates if row.update else self._rows).setdefault(relation, [])
        if row.timed:
            self.timed.add(relation)
        if len(rows) >= SAMPLE_ROWS:
            return
        nested = arrays(row.values) if row.json else {}
        try:
            rows.append(leaves(without(row.values, nested) if nested else row.values))
        except RecursionError:  # circular arrays
            self.skip(f"{relation}: {TOO_DEEP}")
            return
        for path, elements in nested.items():
            child = as_name(f"{relation}_{path}")
            self._arrays[child] = f"{relation}.{path}"
            outer_rows = self._outer_rows.setdefault(child, [])
            for element in elements[: SAMPLE_ROWS - len(outer_rows)]:
                count = len(self._rows.get(child, ()))
                self.add(child, SampleRow(child, element, json=True))
                if len(self._rows[child]) > count:
                    outer_rows.append(len(rows) - 1)

    def tables(self) -> dict[str, dict[str, list[object]]]:
        """Columns by relation; missing attributes are NULL. Rows in arrays have the key of the outer row."""
        self._fold_mixed_arrays()
        tables = {relation: _columns(rows) for relation, rows in (self._updates | self._rows).items()}
        for child, origin in self._arrays.items():
            parent, _, path = origin.partition(".")
            if parent != child:
                tables[parent].pop(path, None)  # rows without the array have NULL there
        for child, nested in self.nested.items():
            if not nested.own:
                continue
            outer = tables[nested.parent]
            if nested.parents not in outer:
                outer[nested.parents] = [
                    f"{PLACE}{number}" for number in range(len(self._rows[nested.parent]))
                ]
            values = outer[nested.parents]
            tables[child] = {nested.own: [values[n] for n in self._outer_rows[child]], **tables[child]}
        return tables

    def _fold_mixed_arrays(self) -> None:
        """Turn the rows in arrays into values of the outer rows if some of these have other values there."""
        mixed: set[str] = set()
        for child, origin in self._arrays.items():
            parent, _, path = origin.partition(".")
            if parent != child and (parent in mixed or self._has_values(parent, path)):
                mixed.add(child)
        for child in reversed([child for child in self._arrays if child in mixed]):  # inner ones first
            parent, _, path = self._arrays.pop(child).partition(".")
            for number, row in zip(self._outer_rows.pop(child), self._rows.pop(child), strict=True):
                outer = self._rows[parent][number]
                for name, value in row.items():
                    inner_path = f"{path}.{name}"
                    earlier = outer.get(inner_path, [])
                    outer[inner_path] = [*_listed(earlier), *_listed(value)]

    def _has_values(self, relation: str, path: str) -> bool:
        """True if more than a few rows of a relation have a value at ``path`` that is no array of objects."""
        rows = self._rows[relation]
        names = [name for name in set[str]().union(*rows) if name == path or name.startswith(f"{path}.")]
        count = sum(any(row.get(name) is not None for name in names) for row in rows)
        return count > len(rows) * FEW_ODD

    @cached_property
    def nested(self) -> dict[str, Nested]:
        """The relations whose rows are in arrays; outer ones first."""
        nested_relations: dict[str, Nested] = {}
        for child, origin in self._arrays.items():
            parent = origin.partition(".")[0]
            if parent == child:
                nested_relations[child] = Nested(origin, beside=self._outer_names[child])
                continue
            key = self._key(parent)
            nested_relations[child] = Nested(origin, f"{parent}.{key}", key)
        return nested_relations

    def _key(self, relation: str) -> str:
        """The column that identifies the rows of a relation, or the one with their location."""
        columns = {
            name: values
            for name, values in _columns(self._rows[relation]).items()
            if is_name(name) and len(set(map(type, values))) == 1 and type(values[0]) in (str, int)
        }
        table = SampledTable(relation, {name: profile(name, values) for name, values in columns.items()})
        unique = [column for column in table.columns.values() if column.unique and column.joinable]
        if not unique:
            return PLACE
        best = max(unique, key=lambda column: identifier_score(table, column))
        threshold = _KEY_OF_MANY if table.rows >= _MANY else _KEY_OF_FEW
        return best.name if identifier_score(table, best) >= threshold else PLACE


def sample(paths: Sequence[Path]) -> Samples:
    """Samples of replay files, also in directories; bad records are skipped and counted.

    Files of a directory whose names differ only in numbers, such as ``1.json`` and ``2.json``, contain one
    relation, named after the directory. So do files of Spark, such as ``part-0.csv``, also in directories of
    partitions such as ``day=1``.

    Raises SourceError for a missing file, an unknown format, a file that cannot be read, or no record at all.
    """
    samples = Samples()
    for path in paths:
        # Files of a folder are not always next to each other: 1.csv, 1/a.csv, 2.csv.
        files_by_folder: defaultdict[Path, list[Path]] = defaultdict(list)
        for file in _files(path, samples.skipped):
            files_by_folder[file.parent].append(file)
        for files_of_folder in files_by_folder.values():
            is_series = _is_series(files_of_folder)
            for file in files_of_folder:
                in_partition = file.parent != path and "=" in file.parent.name
                is_part = in_partition or file.name.startswith("part-")
                in_series = path.is_dir() and (is_series or is_part)
                rows = islice(_rows(file, samples.skip), SAMPLE_RECORDS)
                document = file if ".json" in map(str.lower, file.suffixes[-2:]) else None
                named_path = _series_folder(file.parent, path) if in_series else file
                samples.add_file(as_name(stem_of(named_path)), rows, document)
    if not samples.tables():
        reasons = "".join(f"\n{line}" for line in (*samples.reasons, *skipped_notes(samples.skipped)))
        bad = f" ({quantity(samples.unreadable, 'record')} that cannot be read)" if samples.unreadable else ""
        raise SourceError(f"no records in {', '.join(map(str, paths))} to infer a schema from{bad}{reasons}")
    return samples


def _array_path(item: Mapping[str, Any]) -> str | None:
    """The path to the rows in an object that only wraps them: it has one list, of objects, and no name."""
    arrays_by_path = arrays(item)
    if len(arrays_by_path) != 1 or _lists(item) != 1 or any(name.lower() in _ROW_FIELDS for name in item):
        return None
    return next(iter(arrays_by_path))


def _keyed_objects(item: Mapping[str, Any], depth: int = DEEPEST) -> tuple[tuple[str, ...], int] | None:
    """The path to an object whose values are several objects of one form, and their number."""
    inner = [value for value in item.values() if isinstance(value, Mapping)]
    if len(inner) == len(item) >= _MANY_OBJECTS and set.intersection(*map(set, inner)):
        return (), len(inner)
    for name, value in item.items() if depth else ():
        if isinstance(value, Mapping) and (inner_result := _keyed_objects(value, depth - 1)) is not None:
            return (name, *inner_result[0]), inner_result[1]
    return None


def _lists(value: object, depth: int = DEEPEST) -> int:
    """The number of lists in objects, without those in lists."""
    if isinstance(value, list):
        return 1
    return (
        sum(_lists(inner, depth - 1) for inner in value.values())
        if isinstance(value, Mapping) and depth
        else 0
    )


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _columns(rows: Sequence[Mapping[str, object]]) -> dict[str, list[object]]:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [_plain(row.get(name)) for row in rows] for name in names}


def _files(path: Path, skipped: list[NoRecordsError]) -> Iterator[Path]:
    def check_format(parts: Sequence[Path]) -> Path:
        format_of(parts[-1])
        return parts[-1]

    check_exists(path)
    return visit_files(path, check_format, skipped.append)


def _is_series(files: Sequence[Path]) -> bool:
    """True if there are several files, whose names differ only in numbers."""
    return len(files) > 1 and len({_DIGITS.sub("0", file.name) for file in files}) == 1


def _series_folder(folder: Path, root: Path) -> Path:
    """The directory that names a series of files: the nearest one that is no partition, under ``root``."""
    while folder != root and "=" in folder.name:
        folder = folder.parent
    return folder


def _rows(file: Path, skip: _Skip) -> Iterator[SampleRow]:
    match format_of(file):
        case Format.JSON_LINES:
            return _json_rows(file, skip)
        case Format.CSV:
            return _csv_rows(file, skip)
        case Format.PARQUET:
            return _parquet_rows(file, skip)


def _json_rows(file: Path, skip: _Skip) -> Iterator[SampleRow]:
    with opened(file) as lines:
        for number, line in enumerate(lines, 1):
            try:
                item = loads(line.removeprefix(BOM))
            except orjson.JSONDecodeError as error:
                if line.strip():
                    skip(f"{file}:{number}: {not_json(line, error)}")
                continue
            if isinstance(item, dict) and item:
                try:
                    yield from _rows_of_record(item)
                except MalformedError as error:
                    skip(f"{file}:{number}: {error}")
            elif item is not None:
                skip(f"{file}:{number}: expected a JSON object, got {shown(item)}")


def _rows_of_record(item: dict[str, Any]) -> Iterator[SampleRow]:
    """The row of a record or a change event, or a bare row; none for a deletion, which may be only a key."""
    if isinstance(item.get("row"), dict) and isinstance(item.get("relation"), str):
        if item.get("op") not in ("-", TRUNCATE):
            yield SampleRow(item["relation"], item["row"], item.get("time") is not None)
    elif is_change(item):
        yield from _rows_of_change(item)
    else:
        yield from _rows_of_bare(item)


def _rows_of_bare(item: Mapping[str, Any]) -> Iterator[SampleRow]:
    """A bare row, without the extra fields of flattened change events; none for a deletion.

    Raises MalformedError for an event whose time is out of range.
    """
    flat = Flat.of(item)
    if flat is None:
        yield SampleRow(None, item, json=True)
    elif not flat.deleted:
        row = {name: value for name, value in item.items() if name not in FLAT}
        yield SampleRow(None, row, timed=True, update=flat.updated)


def _rows_of_change(item: dict[str, Any]) -> Iterator[SampleRow]:
    """The row after a change event; none for a deletion."""
    _, schema, event = unwrap(item)
    table, row = changed_table(item), event.get("after") if isinstance(event, dict) else None
    if isinstance(table, str) and isinstance(row, dict):
        yield SampleRow(table, exact_row(schema, row), timed=True)


def _csv_rows(file: Path, skip: _Skip) -> Iterator[SampleRow]:
    with opened(file) as raw:
        layout, lines = read_layout(raw)
        reader = fields_of(map(as_text, lines), layout, strict=False)
        try:
            header = column_names(next(filter(None, reader), []), layout.width)
        except csv.Error as error:
            skip(f"{file}: the header: {csv_fault(error)}")
            return
        records = _csv_records(file, reader, layout._replace(width=len(header)), skip)
        rows = (dict(zip(header, (f or None for f in fields), strict=True)) for fields in records)
        yield from _rows_of_columns(rows, header, skip)


def _csv_records(file: Path, reader: Any, layout: CsvLayout, skip: _Skip) -> Iterator[list[str]]:
    while True:
        try:
            fields = next(reader, None)
            if fields is None:
                return
            if fields:
                fields = fit_fields(fields, layout)
                check_utf8("".join(fields))
                yield fields
        except (csv.Error, MalformedError) as error:
            skip(f"{file}:{layout.before + reader.line_num}: {csv_fault(error)}")


def _parquet_rows(file: Path, skip: _Skip) -> Iterator[SampleRow]:
    with parquet().opened(file) as opened_file:
        names = opened_file.schema_arrow.names
        rows = (
            dict(zip(names, row, strict=True))
            for batch in opened_file.iter_batches()
            for row in zip(*map(parquet().python_values, batch.columns), strict=True)
        )
        yield from _rows_of_columns(rows, names, skip)


def _bare_rows(rows: Iterable[Mapping[str, Any]], skip: _Skip) -> Iterator[SampleRow]:
    for row in rows:
        try:
            yield from _rows_of_bare(row)
        except MalformedError as error:
            skip(str(error))


def _rows_of_columns(
    rows: Iterable[Mapping[str, Any]], header: Sequence[str], skip: _Skip
) -> Iterator[SampleRow]:
    """Rows of columns: bare rows, or records whose attributes are among the columns or in ``row``."""
    if "relation" not in header:
        yield from islice(_bare_rows(rows, skip), SAMPLE_ROWS)  # all are of one relation
        return
    for row in rows:
        relation, values = row["relation"], row.get("row")
        if relation is None or row.get("op") in ("-", TRUNCATE):
            continue
        if values is None:
            values = {n: v for n, v in row.items() if n not in FIELDS and v is not None}
        elif isinstance(values, str | bytes):
            try:
                values = loads(values)
            except orjson.JSONDecodeError as error:
                skip(f"the column 'row' is not JSON: {error}")
                continue
        if not isinstance(relation, str):
            skip(f"expected the name of a relation, got {shown(relation)}")
        elif not isinstance(values, dict):
            skip(f"expected a row (a JSON object) of {relation}, got {shown(values)}")
        else:
            yield SampleRow(relation, values, row.get("time") is not None)


def _plain(value: object) -> object:
    """A value as JSON represents it."""
    match value:
        case list():
            return [_plain(element) for element in value]
        case Unreadable():
            return None
    return value
