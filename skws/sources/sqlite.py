"""A SQLite file as a database: its rows, and a schema inferred from its catalog. Opened read-only.

As a source it returns its present rows, all of static tables, and then ends.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from skws.data.batch import NO_RECORDS, NOTHING, Chunk
from skws.data.value_conversion import EXACT, MalformedError, MissingError, conversion
from skws.durable import as_unicode
from skws.formats.rows import RowReader
from skws.sources.feed import Batch, Feed, Offset, Source
from skws_schema.errors import SourceError, nearest, nearest_file
from skws_schema.infer.column_profile import is_finer, is_identifier_name, profile
from skws_schema.infer.infer import (
    BYTES,
    NAMELESS,
    NO_ATTRIBUTES,
    NO_RELATION,
    REFERS,
    SAMPLE_OF_DATABASE,
    Inference,
    InferredRelation,
    Omission,
    with_joins_by_values,
    with_valid_names,
)
from skws_schema.infer.keys import Finding
from skws_schema.model import Attribute, AttributeType, Join, Relation, Schema
from skws_schema.yaml.document import as_name

SAMPLE_ROWS: Final = 1000
LOOKED_AT: Final = 50_000
"""The most values that are tried as a type other than SQLite's own."""
_AT_ONCE: Final = 500
"""The most columns of a statement, which SQLite limits."""
_STATIC: Final = "a file is read once"
# Parts of declared types: those of SQLite's rules, and more specific ones.
_TYPES: Final = (
    ("BOOL", AttributeType.BOOLEAN),
    ("DATE", AttributeType.TIMESTAMP),
    ("TIME", AttributeType.TIMESTAMP),
    ("INT", AttributeType.INTEGER),
    ("REAL", AttributeType.NUMBER),
    ("FLOA", AttributeType.NUMBER),
    ("DOUB", AttributeType.NUMBER),
    ("NUM", AttributeType.NUMBER),
    ("DEC", AttributeType.NUMBER),
)
_STORED: Final = {
    AttributeType.INTEGER: {"integer"},
    AttributeType.NUMBER: {"integer", "real"},
}
"""The storage classes of the values of each type."""
_OPTIONS: Final = {
    AttributeType.INTEGER: (AttributeType.INTEGER, AttributeType.NUMBER),
    AttributeType.NUMBER: (AttributeType.NUMBER, AttributeType.INTEGER),
}
"""The types that columns of numbers may have, the declared type first."""
_MISFIT_REASONS: Final = {
    AttributeType.INTEGER: "of whole numbers",
    AttributeType.NUMBER: "but not all values are",
}
_DECIMAL: Final = ("NUM", "DEC")
_TEXTS: Final = (AttributeType.TEXT, AttributeType.STRING)
_INTERNAL: Final = 1
"""Marks of columns of virtual tables that ``*`` does not show; generated columns have other marks."""
_GENERATED: Final = " GENERATED ALWAYS"
_Column: TypeAlias = tuple[str, str]
"""A table and its column."""
_Kinds: TypeAlias = dict[_Column, Finding[AttributeType]]


class CatalogColumn(NamedTuple):
    """``key``: its position in the primary key, from 1; 0 if it is not in the key."""

    name: str
    declared: str
    key: int


class SqliteDatabase:
    """The tables and views of a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        if not path.is_file():
            problem = "a directory" if path.is_dir() else "no such SQLite file"
            raise SourceError(
                f"{path}: {problem}; expected FILE, sqlite:FILE or postgresql://USER@HOST/DATABASE"
                f"{nearest_file(path)}"
            )

    @classmethod
    def of(cls, address: str) -> SqliteDatabase:
        """The file of a path, or of ``sqlite:FILE``. Raises SourceError."""
        return cls(Path(address.removeprefix("sqlite://").removeprefix("sqlite:")))

    @property
    def name(self) -> str:
        return str(self._path)

    @property
    def identity(self) -> str:
        return str(self._path.resolve())

    def stamp(self, relations: Sequence[Relation]) -> str:  # noqa: ARG002 - all are in one file
        """Path, size and time of the file and of its write-ahead log."""
        files = (self._path, Path(f"{self._path}-wal"))
        states = [file.stat() for file in files if file.exists()]
        return repr((str(self._path.resolve()), [(state.st_size, state.st_mtime_ns) for state in states]))

    def inferred(self, *, followed: bool = False) -> Inference:  # noqa: ARG002 - a file has no changes
        """The schema from declared types, keys and references.

        Samples show text columns with numbers, and joins if no table declares a reference.
        """
        readable_columns = {
            name: list(filter(self._column_filter(name), columns)) for name, columns in self._tables.items()
        }
        usable = {name: columns for name, columns in readable_columns.items() if _is_usable(name) and columns}
        if not usable:
            raise SourceError(f"{self.name}: no tables to infer a schema from")
        joins = tuple(self._joins(usable))
        join_columns = {
            attribute
            for join in (inference.value for inference in joins)
            for near, far in join.on
            for attribute in ((join.left, near), (join.right, far))
        }
        kinds = {
            (table, column.name): self._kind(
                table, column, identifies=bool(column.key) or (table, column.name) in join_columns
            )
            for table, columns in usable.items()
            for column in columns
        }
        self._unify_types(kinds, joins)
        referring_columns = {(join.value.left, column) for join in joins for column, _ in join.value.on}
        relations = tuple(
            self._relation(name, columns, kinds, referring_columns) for name, columns in usable.items()
        )
        left_out = tuple(Omission(name, self._fault(name)) for name in self._tables if name not in usable)
        inference = Inference(as_unicode(self._path.stem), relations, joins, "none", left_out)
        return with_valid_names(
            inference if joins else with_joins_by_values(inference, self._first_rows(usable))
        )

    def values(self, relation: Relation) -> Iterator[tuple[Any, ...]]:
        table = self._table(relation.stored)
        columns = {_folded(column.name): column.name for column in self._tables[table]}
        for attribute in relation.attributes:
            if _folded(attribute.column) not in columns:
                raise SourceError(
                    f"{self.name}: table {table} has no column {attribute.column!r}"
                    f"{nearest(attribute.column, columns.values())}"
                )
        names = ", ".join(_quote(attribute.column) for attribute in relation.attributes)
        with self._connection() as connection:
            connection.text_factory = str
            query = f"SELECT {names} FROM {_quote(table)}"  # noqa: S608 - names of the catalog
            try:
                yield from connection.execute(query)
            except sqlite3.OperationalError:
                _check_texts(self.name, relation, connection, query)
                raise

    def _table(self, name: str) -> str:
        tables = {_folded(table): table for table in self._tables}
        if _folded(name) not in tables:
            raise SourceError(f"{self.name}: no table {name!r}{nearest(name, self._tables)}")
        return tables[_folded(name)]

    @cached_property
    def _tables(self) -> dict[str, list[CatalogColumn]]:
        with self._connection() as connection:
            names = connection.execute(
                "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')"
                " AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY rowid"
            ).fetchall()
            kinds = connection.execute("PRAGMA table_list").fetchall()
            # The tables in which virtual tables store their data.
            shadow_tables = {name for _, name, kind, *_ in kinds if kind == "shadow"}
            return {name: self._columns(connection, name) for (name,) in names if name not in shadow_tables}

    def _columns(self, connection: sqlite3.Connection, table: str) -> list[CatalogColumn]:
        """The columns of a table; none for a view or virtual table that cannot be read at present."""
        try:
            rows = connection.execute(f"PRAGMA table_xinfo({_quote(table)})").fetchall()
        except sqlite3.OperationalError:
            return []
        return [
            CatalogColumn(name, declared.upper().removesuffix(_GENERATED), key)
            for _, name, declared, _, _, key, hidden in rows
            if hidden != _INTERNAL
        ]

    def _relation(
        self, table: str, columns: list[CatalogColumn], kinds: _Kinds, referring_columns: set[tuple[str, str]]
    ) -> InferredRelation:
        left_out = [column for column in self._tables[table] if column not in columns]
        # Part of a key is not a key.
        is_complete = not any(column.key for column in left_out)
        key = tuple(c.name for c in sorted(columns, key=lambda c: c.key) if c.key and is_complete)
        attributes = tuple(_attribute((table, column.name), kinds, referring_columns) for column in columns)
        key_finding = Finding(key, 1.0, "the primary key") if key else None
        reasons = tuple(Omission(c.name, BYTES if c.name else NAMELESS) for c in left_out)
        return InferredRelation(table, attributes, key_finding, None, _STATIC, reasons)

    def _fault(self, table: str) -> str:
        """The reason why a table is not in the schema."""
        if not self._tables[table]:
            return "it cannot be read"
        return NO_ATTRIBUTES if _is_usable(table) else NO_RELATION

    def _column_filter(self, table: str) -> Callable[[CatalogColumn], bool]:
        classes = self._classes[table]
        return lambda column: _has_texts(column, classes) and column.name != ""

    @cached_property
    def _classes(self) -> dict[str, dict[str, set[str]]]:
        """The storage classes of the values of each table and column, except NULL and empty texts.

        They may differ from the declared class.
        """
        return {table: self._classes_of(table, columns) for table, columns in self._tables.items()}

    def _classes_of(self, table: str, columns: list[CatalogColumn]) -> dict[str, set[str]]:
        class_lists: list[str | None] = []
        with self._connection() as connection:
            for first in range(0, len(columns), _AT_ONCE):
                names = [_quote(column.name) for column in columns[first : first + _AT_ONCE]]
                expressions = (
                    f"group_concat(DISTINCT CASE WHEN {name} IS NOT '' THEN typeof({name}) END)"
                    for name in names
                )
                query = f"SELECT {', '.join(expressions)} FROM {_quote(table)}"  # noqa: S608 - names of the catalog
                class_lists += connection.execute(query).fetchone()
        return {
            column.name: set((classes or "").split(",")) - {"", "null"}
            for column, classes in zip(columns, class_lists, strict=True)
        }

    def _kind(self, table: str, column: CatalogColumn, *, identifies: bool) -> Finding[AttributeType]:
        """The declared type, unless values do not fit it; without a declaration, the type of the values.

        A decimal that ``identifies`` is an integer if possible, since doubles of different decimals may be
        equal.
        """
        declared = next((kind for part, kind in _TYPES if part in column.declared), None)
        if declared is not None:
            kinds = _OPTIONS.get(declared, (declared,))
            identifies = identifies or is_identifier_name(column.name)
            if (
                declared is AttributeType.NUMBER
                and identifies
                and any(part in column.declared for part in _DECIMAL)
            ):
                kinds = kinds[::-1]
            for kind in kinds:
                if self._fits(table, column.name, kind):
                    declaration = column.declared.lower()
                    return Finding(
                        kind,
                        1.0,
                        declaration if kind is declared else f"{declaration}, {_MISFIT_REASONS[kind]}",
                    )
            return Finding(AttributeType.TEXT, 1.0, f"{column.declared.lower()}, but not all values are")
        if self._classes[table][column.name] & {"integer", "real"} or not column.declared:
            column_profile = profile(column.name, self._sample(table, column.name))
            if column_profile.type is not AttributeType.TEXT and self._fits(
                table, column.name, column_profile.type
            ):
                return Finding(column_profile.type, 0.8, f"holds {column_profile.reason}")
        return Finding(AttributeType.TEXT, 0.9, column.declared.lower() or "no numbers")

    def _fits(self, table: str, column: str, kind: AttributeType) -> bool:
        """True if all values are of a type, or can be read as it; for times, the first values.

        Integers that a double may not represent do not count as numbers.
        """
        classes = self._classes[table][column]
        if kind is AttributeType.NUMBER and "integer" in classes and self._has_long(table, column):
            return False
        other_classes = classes - _STORED.get(kind, set())
        if not other_classes or kind in _TEXTS:
            return True
        with self._connection() as connection:
            name, placeholders = _quote(column), ", ".join("?" * len(other_classes))
            rows = connection.execute(
                f"SELECT DISTINCT {name} FROM {_quote(table)}"  # noqa: S608 - names of the catalog
                f" WHERE typeof({name}) IN ({placeholders}) AND {name} IS NOT '' LIMIT {LOOKED_AT}",
                sorted(other_classes),
            )
            return all(_converts(value, kind) for (value,) in rows)

    def _has_long(self, table: str, column: str) -> bool:
        name = _quote(column)
        with self._connection() as connection:
            rows = connection.execute(
                f"SELECT 1 FROM {_quote(table)} WHERE typeof({name}) = 'integer'"  # noqa: S608 - as above
                f" AND {name} NOT BETWEEN {-EXACT} AND {EXACT} LIMIT 1"
            )
            return rows.fetchone() is not None

    def _unify_types(self, kinds: _Kinds, joins: Sequence[Finding[Join]]) -> None:
        """Give columns that refer to each other comparable types, since SQLite compares any types.

        A text becomes a number if all of its values are numbers; otherwise all of them become texts.
        """
        pairs = [((j.value.left, a), (j.value.right, b)) for j in joins for a, b in j.value.on]
        referred_columns = {far for _, far in pairs}
        for columns in _connected(pairs):
            column_types = [kinds[c].value for c in sorted(columns, key=lambda c: c not in referred_columns)]
            if len({kind.family for kind in column_types}) == 1:
                continue
            options = (kind for kind in dict.fromkeys(column_types) if kind not in _TEXTS)
            kind = next(
                (kind for kind in options if all(self._fits(*column, kind) for column in columns)),
                AttributeType.STRING,
            )
            for column in columns:
                if kinds[column].value.family is not kind.family:
                    kinds[column] = Finding(kind, 0.9, "like the column with which it is compared")

    def _sample(self, table: str, column: str) -> list[object]:
        with self._connection() as connection:
            rows = connection.execute(
                f"SELECT {_quote(column)} FROM {_quote(table)} LIMIT {SAMPLE_ROWS}"  # noqa: S608 - as above
            )
            return [value for (value,) in rows]

    def _first_rows(self, usable: dict[str, list[CatalogColumn]]) -> dict[str, dict[str, list[object]]]:
        """Values of the first rows by table and column, without views, which repeat the values of tables."""
        values_by_table: dict[str, dict[str, list[object]]] = {}
        with self._connection() as connection:
            kinds = {name: kind for _, name, kind, *_ in connection.execute("PRAGMA table_list")}
            for table in (table for table in usable if kinds[table] == "table"):
                names = [column.name for column in usable[table]]
                rows = connection.execute(
                    f"SELECT {', '.join(map(_quote, names))} FROM {_quote(table)}"  # noqa: S608 - as above
                    f" LIMIT {SAMPLE_OF_DATABASE}"
                ).fetchall()
                values_by_table[table] = {
                    name: [row[index] for row in rows] for index, name in enumerate(names)
                }
        return values_by_table

    def _joins(self, usable: dict[str, list[CatalogColumn]]) -> Iterator[Finding[Join]]:
        tables = {_folded(name): name for name in usable}
        joins: set[Join] = set()
        for table in usable:
            for target_name, pairs in self._references(table):
                target = tables.get(_folded(target_name))
                on = None if target is None else self._condition(usable, table, target, pairs)
                if target is None or on is None:
                    continue
                join = Join.of(table, target, on)
                if join not in joins:
                    joins.add(join)
                    yield Finding(join, 1.0, "a foreign key")

    def _references(self, table: str) -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
        with self._connection() as connection:
            rows = connection.execute(f"PRAGMA foreign_key_list({_quote(table)})").fetchall()
        for number in dict.fromkeys(row[0] for row in rows):
            key_rows = sorted((row for row in rows if row[0] == number), key=lambda row: row[1])
            yield key_rows[0][2], [(row[3], row[4]) for row in key_rows]

    def _condition(
        self,
        usable: dict[str, list[CatalogColumn]],
        table: str,
        target: str,
        pairs: list[tuple[str, str | None]],
    ) -> tuple[tuple[str, str], ...] | None:
        """Pairs of columns; None if one of them is not part of the schema."""
        near_names = {_folded(column.name): column.name for column in usable[table]}
        far_names = {_folded(column.name): column.name for column in usable[target]}
        key = [column.name for column in sorted(self._tables[target], key=lambda c: c.key) if column.key]
        on = []
        for index, (near, far) in enumerate(pairs):
            far_name = far if far is not None else key[index] if index < len(key) else ""
            if _folded(near) not in near_names or _folded(far_name) not in far_names:
                return None
            on.append((near_names[_folded(near)], far_names[_folded(far_name)]))
        return tuple(on)

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            uri = f"{self._path.resolve().as_uri()}?mode=ro"
            with closing(sqlite3.connect(uri, uri=True)) as connection:
                connection.text_factory = _text
                yield connection
        except sqlite3.Error as error:
            raise SourceError(f"{self.name}: {error}") from None


def _text(value: bytes) -> str:
    """A text that is read before the rows; a text that is not UTF-8 is reported with its row."""
    return value.decode(errors="replace")


def _check_texts(name: str, relation: Relation, connection: sqlite3.Connection, query: str) -> None:
    """Raises SourceError at the first text of a relation that is not UTF-8: SQLite accepts any bytes."""
    connection.text_factory = bytes
    for number, row in enumerate(connection.execute(query), 1):
        for attribute, value in zip(relation.attributes, row, strict=True):
            if isinstance(value, bytes) and not _is_utf8(value):
                raise SourceError(
                    f"{name}: row {number:,}: {relation.name}.{attribute.column}: not UTF-8: {value[:40]!r}"
                    " (convert it in the database, or leave the attribute out of the schema)"
                )


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _has_texts(column: CatalogColumn, classes: Mapping[str, set[str]]) -> bool:
    """True if a column has anything but bytes."""
    return "BLOB" not in column.declared and "blob" not in classes[column.name]


def _is_usable(table: str) -> bool:
    """True if a relation can have the name of a table; with a dot, ``from:`` would be a path."""
    return as_name(table) != "" and "." not in table


def _attribute(
    key: tuple[str, str], kinds: _Kinds, referring_columns: set[tuple[str, str]]
) -> Finding[Attribute]:
    kind = kinds[key]
    if kind.value is AttributeType.TEXT and key in referring_columns:
        kind = Finding(AttributeType.STRING, kind.confidence, REFERS)
    return Finding(Attribute(key[1], kind.value), kind.confidence, kind.reason)


def _connected(pairs: Sequence[tuple[_Column, _Column]]) -> list[list[_Column]]:
    """The columns of the pairs, in groups of those that pairs connect."""
    groups: list[list[_Column]] = []
    for pair in pairs:
        joined = [group for group in groups if not set(group).isdisjoint(pair)]
        columns = dict.fromkeys((*(column for group in joined for column in group), *pair))
        groups = [*(group for group in groups if group not in joined), list(columns)]
    return groups


def _converts(value: Any, kind: AttributeType) -> bool:
    try:
        conversion(kind, type(value))(value)
    except MissingError:
        return True
    except MalformedError:
        return False
    return not (kind is AttributeType.NUMBER and isinstance(value, str) and is_finer(value))


def _folded(name: str) -> bytes:
    """A key for a name: SQLite ignores the case of the letters of ASCII alone."""
    return name.encode().lower()


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class SnapshotFeed(Feed):
    """The rows of the tables that the schema names."""

    def __init__(self, database: SqliteDatabase, schema: Schema) -> None:
        self._database = database
        self.change_schema(schema)

    def change_schema(self, schema: Schema) -> None:
        """Raises SourceError for a relation that is not a static table, since its rows would need times."""
        streams = [relation.name for relation in schema.relations if not relation.table]
        if streams:
            raise SourceError(
                f"{self._database.name}: a database file is read once, so its relations are static;"
                f" {streams[0]} needs table: true"
            )
        self._schema = schema

    def start(self) -> Offset:
        return {"rows": 0}

    def tables(self) -> Iterator[Chunk]:
        from skws.formats.stored_columns import table_records  # noqa: PLC0415 - Arrow is slow to import

        for number, relation in enumerate(self._schema.relations):
            if relation.source is None:
                reader = RowReader(self._schema, number)
                yield from map(
                    Chunk, table_records(self._database.name, reader, self._database.values(relation))
                )
                yield Chunk(NO_RECORDS, list(reader.notes(self._database.name)))

    def poll(self, start: Offset, limit: int) -> Batch:  # noqa: ARG002 - nothing follows the tables
        return Batch(NOTHING, start, ended=True)

    def replay(self, start: Offset, end: Offset) -> Chunk:  # noqa: ARG002 - as above
        return NOTHING


@dataclass(frozen=True)
class SnapshotSource(Source):
    """``address``: a path, or ``sqlite:FILE``."""

    address: str

    @property
    def name(self) -> str:
        return self.address

    @property
    def bounded(self) -> bool:
        return True

    def open(self, schema: Schema) -> Feed:
        return SnapshotFeed(SqliteDatabase.of(self.address), schema)
