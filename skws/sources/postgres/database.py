"""A PostgreSQL server as a database: rows read in one snapshot each, and a schema inferred from its catalog.

Types, keys and joins are those of the catalog. Where it has no foreign keys, names and values show joins.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from psycopg2.extensions import connection
from psycopg2.sql import SQL, Identifier, Literal

from skws.formats.rows import typed_rows
from skws.sources.postgres.address import Address
from skws.sources.postgres.catalog import ForeignKey, Table, TableColumn, mismatches, tables
from skws.sources.postgres.pgoutput import Identity
from skws_schema.errors import SourceError
from skws_schema.infer.candidate_keys import Finding
from skws_schema.infer.column_profile import EVENT, LATER, tokens
from skws_schema.infer.infer import (
    NO_ATTRIBUTES,
    NO_RELATION,
    REFERS,
    SAMPLE_OF_DATABASE,
    Inference,
    InferredRelation,
    LeftOut,
    joined_by_values,
    renamed,
)
from skws_schema.model import Attribute, AttributeType, Join, Relation, Row
from skws_schema.yaml.document import is_name

_SURE: Final = 1.0
_DOUBTFUL: Final = 0.5
_TYPES: Final = {
    **dict.fromkeys(
        ("text", "varchar", "bpchar", "citext", "name", "uuid", "inet", "cidr", "macaddr"), AttributeType.TEXT
    ),
    **dict.fromkeys(("int2", "int4", "int8", "oid"), AttributeType.INTEGER),
    **dict.fromkeys(("float4", "float8", "numeric"), AttributeType.NUMBER),
    "bool": AttributeType.BOOLEAN,
    **dict.fromkeys(("timestamp", "timestamptz", "date"), AttributeType.TIMESTAMP),
    **dict.fromkeys(("bit", "varbit", "time", "timetz"), AttributeType.STRING),
}
_JOINED: Final = frozenset({AttributeType.INTEGER, AttributeType.TEXT})


def _first_rows(
    connected: connection, found: Inference, known: Mapping[str, Table]
) -> dict[str, dict[str, list[object]]]:
    """Values of the first rows by table and column, where a column may be in a join; views repeat others."""
    first: dict[str, dict[str, list[object]]] = {}
    for relation in found.relations:
        names = [a.value.name for a in relation.attributes if a.value.type in _JOINED]
        table = known[relation.name]
        if not names or not table.replicated:
            continue
        columns = SQL(", ").join(SQL("left({}::text, 100)").format(Identifier(name)) for name in names)
        statement = SQL("SELECT {} FROM {} LIMIT {}").format(
            columns, table.quoted, Literal(SAMPLE_OF_DATABASE)
        )
        with connected.cursor() as cursor:
            cursor.execute(statement)
            rows = cursor.fetchall()
        first[relation.name] = {name: [row[place] for row in rows] for place, name in enumerate(names)}
    return first


def _inference(known: Mapping[str, Table], name: str) -> Inference:
    usable = {table.name: table for table in known.values() if _usable(table)}
    joins = list(_joins(usable))
    referring = {(join.value.left, column) for join in joins for column, _ in join.value.on}
    relations = tuple(_relation(table, referring) for table in usable.values())
    left_out = tuple(
        LeftOut(table, NO_ATTRIBUTES if is_name(table) else NO_RELATION)
        for table in known
        if table not in usable
    )
    return Inference(name, relations, tuple(joins), left_out=left_out)


def _usable(table: Table) -> bool:
    return is_name(table.name) and any(not _fault(column) for column in table.columns)


def _readable(table: Table) -> Table:
    """The table for reading alone, where generated columns are like others."""
    return replace(table, columns=tuple(replace(column, generated=False) for column in table.columns))


def _fault(column: TableColumn) -> str:
    """Why a column cannot be an attribute; empty if it can."""
    if column.type not in _TYPES and column.kind != "e":
        return "no attribute has its type"
    return "PostgreSQL does not replicate generated columns" if column.generated else ""


def _left_out(column: TableColumn) -> LeftOut:
    return LeftOut(f"{column.name} ({column.type})", _fault(column))


def _relation(table: Table, referring: Container[tuple[str, str]]) -> InferredRelation:
    taken = [column for column in table.columns if not _fault(column)]
    attributes = tuple(_attribute(column, (table.name, column.name) in referring) for column in taken)
    names = {column.name for column in taken}
    key = table.key if table.key and names.issuperset(table.key) else ()
    return InferredRelation(
        table.name,
        attributes,
        Finding(key, _SURE, _key_reason(table)) if key else None,
        _time(taken),
        "" if table.replicated else "changes of a view or a foreign table cannot be followed",
        tuple(_left_out(column) for column in table.columns if _fault(column)),
    )


def _attribute(column: TableColumn, refers: bool) -> Finding[Attribute]:
    kind, reason = _type(column), column.type if column.kind != "e" else "an enum"
    if refers and kind is AttributeType.TEXT:
        kind, reason = AttributeType.STRING, f"{reason}, {REFERS}"
    return Finding(Attribute(column.name, kind), _SURE, reason)


def _type(column: TableColumn) -> AttributeType:
    # A numeric's modifier is 4 more than the bits of precision and scale; without one it may have any.
    if column.type == "numeric" and column.modifier >= 4 and (column.modifier - 4) & 0x7FF == 0:
        return AttributeType.INTEGER
    return AttributeType.TEXT if column.kind == "e" else _TYPES[column.type]


def _key_reason(table: Table) -> str:
    followed = table.identity is Identity.FULL or table.identity_columns.issuperset(table.key)
    return "the primary key" if followed else "the primary key, but old rows are not logged with it"


def _time(columns: Iterable[TableColumn]) -> Finding[str] | None:
    """The first column with an event time, for a comment: changes have the time of their commit."""
    for column in columns:
        words = set(tokens(column.name))
        if _TYPES.get(column.type) is AttributeType.TIMESTAMP and words & EVENT and not words & LATER:
            return Finding(column.name, _DOUBTFUL, "instead of the time of the commit")
    return None


def _joins(usable: Mapping[str, Table]) -> Iterable[Finding[Join]]:
    seen: set[Join] = set()
    for table in usable.values():
        for reference in table.references:
            on = tuple(zip(reference.columns, reference.to_columns, strict=True))
            join = Join.of(table.name, reference.to, on)
            if join not in seen and _joinable(table, reference, usable):
                seen.add(join)
                yield Finding(join, _SURE, reference.name)


def _joinable(table: Table, reference: ForeignKey, usable: Mapping[str, Table]) -> bool:
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

    address: Address

    @classmethod
    def of(cls, uri: str) -> PostgresDatabase:
        """Raises UsageError if it cannot be understood."""
        return cls(Address.of(uri))

    @property
    def name(self) -> str:
        return self.address.shown

    def stamp(self, relations: Sequence[Relation]) -> str:
        """The number of rows, and the sum of their hashes, of each table; the server reads all rows."""
        found = [self._stamp(relation) for relation in relations]
        return repr((self.name, found))

    def _stamp(self, relation: Relation) -> tuple[str, ...]:
        table = self._table_of(relation)
        row = SQL("ROW({})::text").format(SQL(", ").join(Identifier(a.column) for a in relation.attributes))
        statement = SQL("SELECT count(*), sum(hashtextextended({}, 0)) FROM {}").format(row, table.quoted)
        with self.address.sql() as connected, connected.cursor() as cursor:
            cursor.execute(statement)
            ((count, hashes),) = cursor.fetchall()
        return table.namespace, table.name, str(count), str(hashes)

    def inferred(self, *, followed: bool = False) -> Inference:
        with self.address.sql() as connected:
            known = tables(connected)
            if not followed:
                known = {name: _readable(table) for name, table in known.items()}
            if not any(map(_usable, known.values())):
                raise SourceError(f"{self.name}: no tables in the search path to infer a schema from")
            found = _inference(known, connected.info.dbname)
            if not found.joins:
                found = joined_by_values(found, _first_rows(connected, found, known))
            heading = f"# Inferred from {self.name}. What is uncertain is commented out."
            return replace(renamed(found), heading=heading)

    def rows(self, relation: Relation) -> Iterator[Row]:
        table = self._table_of(relation)
        texts = SQL(", ").join(SQL("{}::text").format(Identifier(a.column)) for a in relation.attributes)
        statement = SQL("SELECT {} FROM {}").format(texts, table.quoted)
        with self.address.sql() as connected, connected.cursor("skws") as cursor:
            cursor.itersize = _BATCH
            cursor.execute(statement)
            yield from typed_rows(self.name, relation, iter(cursor))

    def _table_of(self, relation: Relation) -> Table:
        """Raises SourceError if there is no table for a relation."""
        faults = list(mismatches(relation, self._tables))
        if faults:
            raise SourceError(f"{self.name}: {'; '.join(faults)}")
        return self._tables[relation.name]

    @cached_property
    def _tables(self) -> dict[str, Table]:
        with self.address.sql() as connected:
            return tables(connected)
