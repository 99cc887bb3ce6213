"""The tables of a database: columns, keys, replica identity, and whether they fit a schema's relations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from psycopg2.extensions import connection
from psycopg2.sql import Identifier

from skws.sources.postgres.pgoutput import Identity
from skws_schema.errors import SourceError, nearest
from skws_schema.model import Relation, Schema

# Tables that the search path finds by their bare name; partitions are part of their root.
_TABLES: Final = """
    SELECT c.oid, n.nspname, c.relname, c.relkind, c.relreplident
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition AND pg_table_is_visible(c.oid)
      AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_'
    ORDER BY c.relname"""
# A domain counts as the type below it.
_COLUMNS: Final = """
    SELECT a.attrelid, a.attnum, a.attname, coalesce(b.typname, t.typname), coalesce(b.typtype, t.typtype),
           a.atttypmod, a.attgenerated <> ''
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_type b ON b.oid = nullif(t.typbasetype, 0)
    WHERE a.attrelid = ANY(%s::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attrelid, a.attnum"""
_KEYS: Final = """
    SELECT i.indrelid, i.indisprimary, i.indisreplident,
           (i.indkey::int2[])[0:i.indnkeyatts - 1]
    FROM pg_index i
    WHERE i.indrelid = ANY(%s::oid[]) AND (i.indisprimary OR i.indisreplident)"""
_REFERENCES: Final = """
    SELECT c.conname, c.conrelid, c.confrelid, c.conkey, c.confkey
    FROM pg_constraint c
    WHERE c.contype = 'f' AND c.conparentid = 0
      AND c.conrelid = ANY(%s::oid[]) AND c.confrelid = ANY(%s::oid[])
    ORDER BY c.conrelid::regclass::text, c.conname"""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """``type``: its name inside PostgreSQL (``int4``); ``kind``: b (base), e (enum), c (composite), ..."""

    name: str
    type: str
    kind: str
    modifier: int
    generated: bool


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """``columns`` of the table refer to ``to_columns`` of the table called ``to``."""

    name: str
    columns: tuple[str, ...]
    to: str
    to_columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table; ``identity_columns``: those whose old values are logged with updates and deletes."""

    oid: int
    namespace: str
    name: str
    kind: str
    identity: Identity
    columns: tuple[TableColumn, ...]
    key: tuple[str, ...]
    identity_columns: frozenset[str]
    references: tuple[ForeignKey, ...]

    @property
    def replicated(self) -> bool:
        """Whether its changes are logged: those of views and foreign tables are not."""
        return self.kind in {"r", "p"}

    @property
    def full_name(self) -> str:
        return f"{self.namespace}.{self.name}"

    @property
    def quoted(self) -> Identifier:
        """The name as SQL takes it."""
        return Identifier(self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The results of the catalog queries; columns by table and number."""

    tables: list[tuple[Any, ...]]
    columns: dict[int, dict[int, TableColumn]]
    keys: list[tuple[Any, ...]]
    references: list[tuple[Any, ...]]

    def named(self, oid: int, numbers: list[int]) -> tuple[str, ...]:
        return tuple(self.columns[oid][number].name for number in numbers)


def tables(connected: connection) -> dict[str, Table]:
    """The tables that the search path shows, by name. Raises psycopg2.Error."""
    rows = _queried(connected)
    primary = {oid: rows.named(oid, numbers) for oid, is_primary, _, numbers in rows.keys if is_primary}
    chosen = {oid: rows.named(oid, numbers) for oid, _, is_identity, numbers in rows.keys if is_identity}
    references = _references(rows)
    return {
        name: Table(
            oid,
            namespace,
            name,
            kind,
            Identity(identity),
            tuple(rows.columns[oid].values()),
            primary.get(oid, ()),
            _identity_columns(
                Identity(identity), rows.columns[oid], primary.get(oid, ()), chosen.get(oid, ())
            ),
            tuple(references[oid]),
        )
        for oid, namespace, name, kind, identity in rows.tables
    }


def _queried(connected: connection) -> _Rows:
    with connected.cursor() as cursor:
        cursor.execute(_TABLES)
        found = cursor.fetchall()
        oids = [row[0] for row in found]
        cursor.execute(_COLUMNS, (oids,))
        columns: dict[int, dict[int, TableColumn]] = defaultdict(dict)
        for oid, number, *column in cursor.fetchall():
            columns[oid][number] = TableColumn(*column)
        cursor.execute(_KEYS, (oids,))
        keys = cursor.fetchall()
        cursor.execute(_REFERENCES, (oids, oids))
        return _Rows(found, columns, keys, cursor.fetchall())


def _references(rows: _Rows) -> dict[int, list[ForeignKey]]:
    names = {oid: name for oid, _, name, _, _ in rows.tables}
    found: dict[int, list[ForeignKey]] = defaultdict(list)
    for name, oid, to, numbers, to_numbers in rows.references:
        found[oid].append(ForeignKey(name, rows.named(oid, numbers), names[to], rows.named(to, to_numbers)))
    return found


def _identity_columns(
    identity: Identity, columns: dict[int, TableColumn], key: tuple[str, ...], chosen: tuple[str, ...]
) -> frozenset[str]:
    match identity:
        case Identity.FULL:
            return frozenset(column.name for column in columns.values())
        case Identity.DEFAULT:
            return frozenset(key)
        case Identity.INDEX:
            return frozenset(chosen)
        case Identity.NOTHING:
            return frozenset()


@dataclass(frozen=True, slots=True)
class MatchedTables:
    """The tables of a schema by position of their relation, streams apart from static tables."""

    streams: Mapping[int, Table]
    static: Mapping[int, Table]
    warnings: tuple[str, ...]


def match_tables(schema: Schema, known: Mapping[str, Table], database: str) -> MatchedTables:
    """Match relations to tables by name. Raises SourceError that names everything that is missing."""
    faults: list[str] = []
    found: dict[int, Table] = {}
    for position, relation in enumerate(schema.relations):
        if position in schema.evolution.removed_relations or relation.source is not None:
            continue
        faults += mismatches(relation, known)
        if relation.name in known:
            found[position] = known[relation.name]
    if all(relation.table for relation in schema.relations):
        faults.append("all its relations are static tables, and there is nothing to follow")
    if faults:
        raise SourceError(f"{database} does not fit schema {schema.name}: " + "; ".join(faults))
    streams = {i: table for i, table in found.items() if not schema.relations[i].table}
    static = {i: table for i, table in found.items() if schema.relations[i].table}
    warnings = tuple(
        warning for i, table in streams.items() for warning in _warnings(schema.relations[i], table)
    )
    return MatchedTables(streams, static, warnings)


def mismatches(relation: Relation, known: Mapping[str, Table]) -> Iterator[str]:
    """The reasons why a relation cannot be read; none if it can."""
    if relation.name in known:
        yield from _faults(relation, known[relation.name])
    else:
        yield f"no table {relation.name!r} in the search path{nearest(relation.name, known)}"


def _faults(relation: Relation, table: Table) -> Iterator[str]:
    columns = {column.name: column for column in table.columns}
    for attribute in relation.attributes:
        column = columns.get(attribute.column)
        if column is None:
            yield f"{table.full_name} has no column {attribute.column!r}{nearest(attribute.column, columns)}"
        elif column.generated and not relation.table:
            yield (
                f"{table.full_name}.{column.name} is a generated column, which PostgreSQL does not replicate"
            )
    if not relation.table and not table.replicated:
        yield (
            f"{table.full_name} is a view or a foreign table, whose changes cannot be followed"
            " (`table: true` reads it once)"
        )


def _warnings(relation: Relation, table: Table) -> Iterator[str]:
    if table.identity is not Identity.FULL and not table.identity_columns:
        name = table.full_name
        yield (
            f"{name} has no primary key: while it is in a publication, the server refuses all its updates"
            f" and deletes, from every client (ALTER TABLE {name} REPLICA IDENTITY FULL)"
        )
    elif not identifies(relation, table.identity, table.identity_columns):
        reason = advice(relation, table.full_name)
        yield f"updates and deletes of {table.full_name} will be bad records: {reason}"


def identifies(relation: Relation, identity: Identity, columns: frozenset[str]) -> bool:
    """Whether a logged old row identifies its tuple."""
    key = [attribute.column for attribute in relation.attributes if attribute.name in relation.key]
    return identity is Identity.FULL or (bool(key) and columns.issuperset(key))


def advice(relation: Relation, table: str) -> str:
    """The remedy where old rows do not identify the tuple."""
    need = "the whole row, as the schema has no key"
    if relation.key:
        need = f"the key {list(relation.key)} of the schema"
    return (
        f"old rows are not logged with {need}"
        f" (ALTER TABLE {table} REPLICA IDENTITY FULL, or make the table's primary key the `key`)"
    )
