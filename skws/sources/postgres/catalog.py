"""The tables of a server: the match with a schema, a schema from the catalog, rows in a snapshot.

Types, keys and joins are those of the catalog. If it has no foreign keys, joins are inferred from names and
values.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Any, Final

from psycopg2.errors import InsufficientPrivilege
from psycopg2.extensions import connection, cursor
from psycopg2.sql import SQL, Composable, Identifier, Literal

from skws.sources.postgres.database_address import DatabaseAddress
from skws.sources.postgres.numerics import (
    AS_TEXT,
    NUMERIC,
    ColumnRef,
    are_doubles,
    is_identifying,
    is_integer,
    scale_of,
    spread,
    with_texts,
)
from skws.sources.postgres.pgoutput import ReplicaIdentity
from skws.sources.postgres.replica_identity import Partition, advice, faults, identifies, sql_name
from skws_schema.errors import SourceError, nearest
from skws_schema.infer.column_profile import EVENT, LATER, tokens
from skws_schema.infer.infer import (
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

# Tables that the search path finds by name; partitions are included in their root.
_TABLES: Final = """
    SELECT c.oid, n.nspname, c.relname, c.relkind, c.relreplident, c.relpersistence = 'p',
           ARRAY(SELECT i.inhrelid::regclass::text FROM pg_inherits i
                 WHERE i.inhparent = c.oid AND c.relkind = 'r' ORDER BY 1)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition AND pg_table_is_visible(c.oid)
      AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_'
    ORDER BY c.relname"""
# A domain counts as the type below it.
_COLUMNS: Final = """
    SELECT a.attrelid, a.attnum, a.attname, coalesce(b.typname, t.typname), coalesce(b.typtype, t.typtype),
           coalesce(nullif(t.typtypmod, -1), a.atttypmod), a.attgenerated <> ''
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_type b ON b.oid = nullif(t.typbasetype, 0)
    WHERE a.attrelid = ANY(%s::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attrelid, a.attnum"""
_KEYS: Final = """
    SELECT i.indrelid, i.indisprimary, i.indisreplident, i.indimmediate,
           (i.indkey::int2[])[0:i.indnkeyatts - 1]
    FROM pg_index i
    WHERE i.indrelid = ANY(%s::oid[]) AND (i.indisprimary OR i.indisreplident)"""
_PARTITIONS: Final = """
    SELECT root.oid, n.nspname, c.relname, c.relreplident,
           ARRAY(SELECT a.attname::text FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid
                 WHERE i.indrelid = c.oid AND a.attnum = ANY((i.indkey::int2[])[0:i.indnkeyatts - 1])
                   AND CASE c.relreplident WHEN 'd' THEN i.indisprimary AND i.indimmediate
                                             WHEN 'i' THEN i.indisreplident END),
           c.relkind = 'r' AND c.relpersistence = 'p'
    FROM unnest(%s::oid[]) root (oid), pg_partition_tree(root.oid) leaf
    JOIN pg_class c ON c.oid = leaf.relid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE leaf.isleaf
    ORDER BY n.nspname, c.relname"""
_REFERENCES: Final = """
    SELECT c.conname, c.conrelid, c.confrelid, c.conkey, c.confkey
    FROM pg_constraint c
    WHERE c.contype = 'f' AND c.conparentid = 0
      AND c.conrelid = ANY(%s::oid[]) AND c.confrelid = ANY(%s::oid[])
    ORDER BY c.conrelid::regclass::text, c.conname"""


_WITH_ROWS: Final = frozenset("rp")


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
class CatalogTable:
    """A table. ``identity_columns``: the columns whose old values are logged with updates and deletes.

    ``partitions``: the partitions with its rows, if it is partitioned. ``logged``: its rows survive a crash.
    ``children``: tables that inherit from it, whose rows ``SELECT`` includes. ``late_key``: a DEFERRABLE key,
    which two rows may have at once, and which is no ``key``.
    """

    oid: int
    namespace: str
    name: str
    kind: str
    identity: ReplicaIdentity
    columns: tuple[TableColumn, ...]
    key: tuple[str, ...]
    identity_columns: frozenset[str]
    references: tuple[ForeignKey, ...]
    partitions: tuple[Partition, ...] = ()
    logged: bool = True
    children: tuple[str, ...] = ()
    late_key: tuple[str, ...] = ()

    @property
    def numerics(self) -> frozenset[str]:
        """The columns whose values may be written with zeros at the end."""
        return frozenset(column.name for column in self.columns if column.type == NUMERIC)

    @property
    def unlogged_reason(self) -> str:
        """The reason why its changes are not logged; empty if they are."""
        if self.kind not in _WITH_ROWS:
            return "a view or a foreign table"
        return "" if self.logged else "an unlogged table"

    @property
    def full_name(self) -> str:
        return f"{self.namespace}.{self.name}"

    @property
    def sql_name(self) -> str:
        """The full name in SQL, for messages."""
        return sql_name(self.namespace, self.name)

    @property
    def quoted(self) -> Identifier:
        """The name for SQL."""
        return Identifier(self.namespace, self.name)

    @property
    def only(self) -> Composable:
        """The table for SQL, without tables that inherit from it; a root includes its partitions."""
        return SQL("ONLY {}").format(self.quoted) if self.kind == "r" else self.quoted

    @property
    def only_text(self) -> str:
        """``only`` for messages."""
        return f"ONLY {self.sql_name}" if self.children else self.sql_name


@dataclass(frozen=True, slots=True)
class _Rows:
    """The results of the catalog queries; columns by table and number."""

    tables: list[tuple[Any, ...]]
    columns: dict[int, dict[int, TableColumn]]
    keys: list[tuple[Any, ...]]
    references: list[tuple[Any, ...]]
    partitions: dict[int, list[Partition]]

    def column_names(self, oid: int, numbers: list[int]) -> tuple[str, ...]:
        return tuple(self.columns[oid][number].name for number in numbers)


def tables(conn: connection) -> dict[str, CatalogTable]:
    """The tables that the search path shows, by name. Raises psycopg2.Error."""
    rows = _read_catalog(conn)
    # A DEFERRABLE key is not part of a replica identity, and two rows may have the same one at once.
    primary: dict[bool, dict[int, tuple[str, ...]]] = {True: {}, False: {}}
    for oid, is_primary, _, is_immediate, numbers in rows.keys:
        if is_primary:
            primary[is_immediate][oid] = rows.column_names(oid, numbers)
    index_columns = {
        oid: rows.column_names(oid, numbers) for oid, _, is_identity, _, numbers in rows.keys if is_identity
    }
    references = _references(rows)
    return {
        name: CatalogTable(
            oid,
            namespace,
            name,
            kind,
            ReplicaIdentity(identity),
            tuple(rows.columns[oid].values()),
            primary[True].get(oid, ()),
            _identity_columns(
                ReplicaIdentity(identity),
                rows.columns[oid],
                primary[True].get(oid, ()),
                index_columns.get(oid, ()),
            ),
            tuple(references[oid]),
            tuple(rows.partitions[oid]),
            logged,
            tuple(children),
            primary[False].get(oid, ()),
        )
        for oid, namespace, name, kind, identity, logged, children in rows.tables
    }


def _read_catalog(conn: connection) -> _Rows:
    with conn.cursor() as statement:
        statement.execute(_TABLES)
        rows = statement.fetchall()
        oids = [row[0] for row in rows]
        statement.execute(_COLUMNS, (oids,))
        columns: dict[int, dict[int, TableColumn]] = defaultdict(dict)
        for oid, number, *column in statement.fetchall():
            columns[oid][number] = TableColumn(*column)
        statement.execute(_KEYS, (oids,))
        keys = statement.fetchall()
        statement.execute(_REFERENCES, (oids, oids))
        references = statement.fetchall()
        roots = [oid for oid, _, _, kind, *_ in rows if kind == "p"]
        return _Rows(rows, columns, keys, references, _partitions(statement, roots))


def _partitions(statement: cursor, roots: list[int]) -> dict[int, list[Partition]]:
    partitions_by_table: dict[int, list[Partition]] = defaultdict(list)
    if roots:
        statement.execute(_PARTITIONS, (roots,))
        for root, namespace, name, identity, columns, logged in statement.fetchall():
            partitions_by_table[root].append(
                Partition(namespace, name, ReplicaIdentity(identity), frozenset(columns), logged)
            )
    return partitions_by_table


def _references(rows: _Rows) -> dict[int, list[ForeignKey]]:
    names = {oid: name for oid, _, name, *_ in rows.tables}
    keys_by_table: dict[int, list[ForeignKey]] = defaultdict(list)
    for name, oid, target, numbers, target_numbers in rows.references:
        keys_by_table[oid].append(
            ForeignKey(
                name,
                rows.column_names(oid, numbers),
                names[target],
                rows.column_names(target, target_numbers),
            )
        )
    return keys_by_table


def _identity_columns(
    identity: ReplicaIdentity,
    columns: dict[int, TableColumn],
    key: tuple[str, ...],
    index_columns: tuple[str, ...],
) -> frozenset[str]:
    match identity:
        case ReplicaIdentity.FULL:
            return frozenset(column.name for column in columns.values())
        case ReplicaIdentity.DEFAULT:
            return frozenset(key)
        case ReplicaIdentity.INDEX:
            return frozenset(index_columns)
        case ReplicaIdentity.NOTHING:
            return frozenset()


@dataclass(frozen=True, slots=True)
class MatchedTables:
    """The tables of a schema by position of their relation, streams apart from static tables."""

    streams: Mapping[int, CatalogTable]
    static: Mapping[int, CatalogTable]
    warnings: tuple[str, ...]


def match_tables(
    schema: Schema, tables: Mapping[str, CatalogTable], database: str, *, resuming: bool = False
) -> MatchedTables:
    """Match relations to tables by name. Raises SourceError that lists everything that is missing.

    ``resuming``: columns that a streamed table has lost are only warnings, as the log may still have them.
    """
    faults: list[str] = []
    missing: list[str] = []
    matched: dict[int, CatalogTable] = {}
    for position, relation in enumerate(schema.relations):
        if position in schema.evolution.removed_relations or relation.source is not None:
            continue
        table = tables.get(relation.stored)
        if resuming and table is not None and not relation.table:
            missing += [
                f"{fault}: reading the log up to that change" for fault in _missing_columns(relation, table)
            ]
            faults += _misfits(relation, table)
        else:
            faults += mismatches(relation, tables)
        if table is not None:
            matched[position] = table
    if all(relation.table for relation in schema.relations):
        faults.append("all its relations are static tables, so there is nothing to follow")
    if faults and resuming:
        return match_tables(schema, tables, database)  # names the columns, too
    if faults:
        raise SourceError(f"{database} does not fit schema {schema.name}: " + "; ".join(faults))
    streams = {i: table for i, table in matched.items() if not schema.relations[i].table}
    static = {i: table for i, table in matched.items() if schema.relations[i].table}
    warnings = (warning for i, table in streams.items() for warning in _warnings(schema.relations[i], table))
    return MatchedTables(streams, static, (*missing, *warnings))


def mismatches(relation: Relation, tables: Mapping[str, CatalogTable]) -> Iterator[str]:
    """The reasons why a relation cannot be read; none if it can."""
    if relation.stored in tables:
        yield from _missing_columns(relation, tables[relation.stored])
        yield from _misfits(relation, tables[relation.stored])
    else:
        yield f"no table {relation.stored!r} in the search path{nearest(relation.stored, tables)}"


def _missing_columns(relation: Relation, table: CatalogTable) -> Iterator[str]:
    columns = {column.name for column in table.columns}
    for attribute in relation.attributes:
        if attribute.column not in columns:
            yield f"{table.full_name} has no column {attribute.column!r}{nearest(attribute.column, columns)}"


def _misfits(relation: Relation, table: CatalogTable) -> Iterator[str]:
    columns = {column.name: column for column in table.columns}
    for attribute in relation.attributes:
        column = columns.get(attribute.column)
        if column is not None and column.generated and not relation.table:
            yield (
                f"{table.full_name}.{column.name} is a generated column, which PostgreSQL does not replicate"
            )
    if not relation.table and table.unlogged_reason:
        logs = "" if table.logged else f"; ALTER TABLE {table.sql_name} SET LOGGED logs them"
        yield (
            f"{table.full_name} is {table.unlogged_reason}, whose changes cannot be followed"
            f" (`table: true` reads it once{logs})"
        )


def _warnings(relation: Relation, table: CatalogTable) -> Iterator[str]:
    # For a partitioned table, only the identities of the partitions matter to the server.
    if table.kind == "r" and table.identity is not ReplicaIdentity.FULL and not table.identity_columns:
        yield (
            f"{table.full_name} logs no key of old rows: while it is in a publication, the"
            " server refuses all its updates and deletes, from every client"
            f" (ALTER TABLE {table.sql_name} REPLICA IDENTITY FULL)"
        )
    elif not identifies(relation, table.identity, table.identity_columns):
        reason = advice(relation, table.sql_name)
        yield f"updates and deletes of {table.full_name} will be bad records: {reason}"
    key = {relation.attributes[column].column for column in relation.key_columns}
    if key and key == set(table.late_key):
        yield (
            f"{table.full_name} has a primary key that is DEFERRABLE: rows that swap their keys within a"
            f" transaction will be lost: remove the `key` of {relation.name} from the schema, and log whole"
            f" rows (ALTER TABLE {table.sql_name} REPLICA IDENTITY FULL)"
        )
    if table.children:
        yield (
            f"{table.full_name} is read without the rows of tables that inherit from it"
            f" ({', '.join(table.children)}): PostgreSQL logs their changes under their own names;"
            " to follow them, make them relations of the schema"
        )
    yield from faults(relation, table.full_name, table.partitions)


_SURE: Final = 1.0
_DOUBTFUL: Final = 0.5
_TYPES: Final = {
    **dict.fromkeys(
        ("text", "varchar", "bpchar", "citext", "name", "uuid", "inet", "cidr", "macaddr"), AttributeType.TEXT
    ),
    **dict.fromkeys(("int2", "int4", "int8", "oid"), AttributeType.INTEGER),
    **dict.fromkeys(("float4", "float8", NUMERIC), AttributeType.NUMBER),
    "bool": AttributeType.BOOLEAN,
    **dict.fromkeys(("timestamp", "timestamptz", "date"), AttributeType.TIMESTAMP),
    **dict.fromkeys(("bit", "varbit", "time", "timetz"), AttributeType.STRING),
}
_JOINED: Final = frozenset({AttributeType.INTEGER, AttributeType.TEXT})


def _first_rows(
    conn: connection, inference: Inference, tables: Mapping[str, CatalogTable]
) -> dict[str, dict[str, list[object]]]:
    """Values of the first rows by table and column, for columns that may be in a join; without views."""
    values_by_table: dict[str, dict[str, list[object]]] = {}
    for relation in inference.relations:
        names = [a.value.name for a in relation.attributes if a.value.type in _JOINED]
        table = tables[relation.name]
        if not names or table.kind not in _WITH_ROWS:
            continue
        values = _sample(conn, table, [SQL("left({}, 100)").format(as_text(table, n)) for n in names])
        values_by_table[relation.name] = dict(zip(names, values, strict=True))
    return values_by_table


def _sample(conn: connection, table: CatalogTable, columns: Sequence[Composable]) -> list[list[Any]]:
    """The values of each column in the first rows. Raises psycopg2.Error."""
    statement = SQL("SELECT {} FROM {} LIMIT {}").format(
        SQL(", ").join(columns), table.quoted, Literal(SAMPLE_OF_DATABASE)
    )
    with conn.cursor() as cursor:
        cursor.execute(statement)
        rows = cursor.fetchall()
    return [[row[index] for row in rows] for index in range(len(columns))]


def as_text(table: CatalogTable, column: str) -> Composable:
    """SQL for the text of a value."""
    text = AS_TEXT if column in table.numerics else SQL("{}::text")
    return text.format(Identifier(column))


def _exact_columns(conn: connection, tables: Mapping[str, CatalogTable]) -> Iterator[ColumnRef]:
    """The numeric columns for which a double is not enough, by the catalog and the first rows."""
    referring_columns = {column_ref for pair in _references_of(tables) for column_ref in pair}
    for table in tables.values():
        numerics = [c for c in table.columns if c.name in table.numerics and not is_integer(c.modifier)]
        identifying = [
            c for c in numerics if c.name in table.key or (table.name, c.name) in referring_columns
        ]
        yield from ((table.name, column.name) for column in identifying)
        uncertain = [column for column in numerics if column not in identifying]
        for column, values in zip(uncertain, _first_numbers(conn, table, uncertain), strict=True):
            if not are_doubles(values) or is_identifying(column.name, scale_of(column.modifier), values):
                yield table.name, column.name


def _references_of(tables: Mapping[str, CatalogTable]) -> list[tuple[ColumnRef, ColumnRef]]:
    """The columns of foreign keys, each with the column that it refers to."""
    return [
        ((table.name, near), (reference.to, far))
        for table in tables.values()
        for reference in table.references
        for near, far in zip(reference.columns, reference.to_columns, strict=True)
    ]


def _integers(tables: Mapping[str, CatalogTable]) -> set[ColumnRef]:
    """The columns of integers, and columns whose foreign keys refer to these."""
    integers = {
        (table.name, column.name)
        for table in tables.values()
        for column in table.columns
        if not _fault(column) and _type(column, exact=False) is AttributeType.INTEGER
    }
    return spread(integers, ((far, near) for near, far in _references_of(tables)))


def _first_numbers(
    conn: connection, table: CatalogTable, columns: Sequence[TableColumn]
) -> list[Sequence[Decimal | None]]:
    """The first numbers of each column; none if the table is a view, or may not be read."""
    if not columns or table.kind not in _WITH_ROWS:
        return [()] * len(columns)
    try:
        return [*_sample(conn, table, [Identifier(column.name) for column in columns])]
    except InsufficientPrivilege:
        conn.rollback()
        return [()] * len(columns)


def _inference(tables: Mapping[str, CatalogTable], name: str, exact: Collection[ColumnRef]) -> Inference:
    usable_tables = {table.name: table for table in tables.values() if _usable(table)}
    joins = list(_joins(usable_tables))
    referring_columns = {(join.value.left, column) for join in joins for column, _ in join.value.on}
    relations = tuple(_relation(table, referring_columns, exact) for table in usable_tables.values())
    left_out = tuple(
        Omission(table, NO_ATTRIBUTES if _is_named(table) else NO_RELATION)
        for table in tables
        if table not in usable_tables
    )
    return Inference(name, relations, tuple(joins), left_out=left_out)


def _is_named(table: str) -> bool:
    """True if a relation can be named after a table; with a dot, ``from:`` would be a path."""
    return as_name(table) != "" and "." not in table


def _usable(table: CatalogTable) -> bool:
    return _is_named(table.name) and any(not _fault(column) for column in table.columns)


def _readable(table: CatalogTable) -> CatalogTable:
    """The table for reading only, where generated columns are like others."""
    return replace(table, columns=tuple(replace(column, generated=False) for column in table.columns))


def _fault(column: TableColumn) -> str:
    """The reason why a column cannot be an attribute; empty if it can."""
    if column.type not in _TYPES and column.kind != "e":
        return "no attribute has its type"
    return "PostgreSQL does not replicate generated columns" if column.generated else ""


def _omission(column: TableColumn) -> Omission:
    return Omission(f"{column.name} ({column.type})", _fault(column))


def _relation(
    table: CatalogTable, referring_columns: Container[ColumnRef], exact: Container[ColumnRef]
) -> InferredRelation:
    columns = [column for column in table.columns if not _fault(column)]
    attributes = tuple(
        _attribute(column, refers=column_ref in referring_columns, exact=column_ref in exact)
        for column, column_ref in ((column, (table.name, column.name)) for column in columns)
    )
    names = {column.name for column in columns}
    key = table.key if table.key and names.issuperset(table.key) else ()
    return InferredRelation(
        table.name,
        attributes,
        Finding(key, _SURE, _key_reason(table)) if key else None,
        _time(columns),
        f"changes of {table.unlogged_reason} cannot be followed" if table.unlogged_reason else "",
        tuple(_omission(column) for column in table.columns if _fault(column)),
    )


def _attribute(column: TableColumn, *, refers: bool, exact: bool) -> Finding[Attribute]:
    kind, reason = _type(column, exact=exact), column.type if column.kind != "e" else "an enum"
    if refers and kind is AttributeType.TEXT:
        kind, reason = AttributeType.STRING, f"{reason}, {REFERS}"
    return Finding(Attribute(column.name, kind), _SURE, reason)


def _type(column: TableColumn, *, exact: bool) -> AttributeType:
    """The type of a column; that of an exact numeric is preliminary, until its joins are known."""
    if column.type == NUMERIC and (exact or is_integer(column.modifier)):
        return AttributeType.INTEGER
    return AttributeType.TEXT if column.kind == "e" else _TYPES[column.type]


def _key_reason(table: CatalogTable) -> str:
    is_logged = table.identity is ReplicaIdentity.FULL or table.identity_columns.issuperset(table.key)
    return "the primary key" if is_logged else "the primary key, but it is not logged with old rows"


def _time(columns: Iterable[TableColumn]) -> Finding[str] | None:
    """The first column with an event time, as a comment: changes have the time of their commit."""
    for column in columns:
        words = set(tokens(column.name))
        if _TYPES.get(column.type) is AttributeType.TIMESTAMP and words & EVENT and not words & LATER:
            return Finding(column.name, _DOUBTFUL, "instead of the time of the commit")
    return None


def _joins(usable: Mapping[str, CatalogTable]) -> Iterable[Finding[Join]]:
    joins: set[Join] = set()
    for table in usable.values():
        for reference in table.references:
            on = tuple(zip(reference.columns, reference.to_columns, strict=True))
            join = Join.of(table.name, reference.to, on)
            if join not in joins and _joinable(table, reference, usable):
                joins.add(join)
                yield Finding(join, _SURE, reference.name)


def _joinable(table: CatalogTable, reference: ForeignKey, usable: Mapping[str, CatalogTable]) -> bool:
    if reference.to not in usable:
        return False
    sides = ((table, reference.columns), (usable[reference.to], reference.to_columns))
    return all(
        column.name not in names or not _fault(column) for side, names in sides for column in side.columns
    )


_BATCH = 10_000


@dataclass(frozen=True)
class PostgresDatabase:
    """The tables and views in the search path."""

    address: DatabaseAddress

    @classmethod
    def of(cls, uri: str) -> PostgresDatabase:
        """The database of a URI. Raises UsageError if it cannot be parsed."""
        return cls(DatabaseAddress.of(uri))

    @property
    def name(self) -> str:
        return self.address.shown

    @property
    def identity(self) -> str:
        return self.address.identity

    def stamp(self, relations: Sequence[Relation]) -> str:
        """The number of rows, and the sum of their hashes, of each table; the server reads all rows."""
        stamps = [self._stamp(relation) for relation in relations]
        return repr((self.identity, stamps))

    def _stamp(self, relation: Relation) -> tuple[str, ...]:
        table = self._table_of(relation)
        row = SQL("ROW({})::text").format(SQL(", ").join(Identifier(a.column) for a in relation.attributes))
        statement = SQL("SELECT count(*), sum(hashtextextended({}, 0)) FROM {}").format(row, table.quoted)
        with self.address.sql() as conn, conn.cursor() as cursor:
            cursor.execute(statement)
            ((count, hashes),) = cursor.fetchall()
        return table.namespace, table.name, str(count), str(hashes)

    def inferred(self, *, followed: bool = False) -> Inference:
        with self.address.sql() as conn:
            catalog_tables = tables(conn)
            if not followed:
                catalog_tables = {name: _readable(table) for name, table in catalog_tables.items()}
            if not any(map(_usable, catalog_tables.values())):
                raise SourceError(f"{self.name}: no tables in the search path to infer a schema from")
            exact, integers = set(_exact_columns(conn, catalog_tables)), _integers(catalog_tables)
            inference = _inference(catalog_tables, conn.info.dbname, exact)
            if not inference.joins:
                inference = with_joins_by_values(inference, _first_rows(conn, inference, catalog_tables))
            heading = f"# Inferred from {self.name}. Uncertain parts are commented out."
            return replace(with_valid_names(with_texts(inference, exact - integers)), heading=heading)

    def values(self, relation: Relation) -> Iterator[tuple[Any, ...]]:
        table = self._table_of(relation)
        texts = SQL(", ").join(as_text(table, a.column) for a in relation.attributes)
        statement = SQL("SELECT {} FROM {}").format(texts, table.quoted)
        with self.address.sql() as conn, conn.cursor("skws") as cursor:
            cursor.itersize = _BATCH
            cursor.execute(statement)
            yield from cursor

    def _table_of(self, relation: Relation) -> CatalogTable:
        """The table of a relation. Raises SourceError if there is none."""
        faults = list(mismatches(relation, self._tables))
        if faults:
            raise SourceError(f"{self.name}: {'; '.join(faults)}")
        return self._tables[relation.stored]

    @cached_property
    def _tables(self) -> dict[str, CatalogTable]:
        with self.address.sql() as conn:
            return tables(conn)
