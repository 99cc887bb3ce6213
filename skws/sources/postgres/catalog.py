"""What a database says of its tables: columns, keys, foreign keys, and what of old rows is logged."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Final

from psycopg2.extensions import connection

from skws.sources.postgres.pgoutput import Identity

# Tables by their bare name, as the search path finds them; partitions are part of their root.
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
    """A table; ``identity_columns``: those whose old values are logged when a row changes or goes."""

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
        """Whether its changes can be followed: views and foreign tables have none."""
        return self.kind in {"r", "p"}

    @property
    def full_name(self) -> str:
        return f"{self.namespace}.{self.name}"


@dataclass(frozen=True, slots=True)
class _Rows:
    """What the queries of the catalog gave; columns by table and number."""

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
