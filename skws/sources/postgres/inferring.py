"""A schema from a database's catalog: tables, types, keys and references, with what was left out and why.

Types and keys are certain; whether a character column is searched for words
or compared as a whole is told from a sample of its values, as for files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from psycopg2.extensions import connection
from psycopg2.sql import SQL, Identifier, Literal

from schema.candidate_keys import Finding
from schema.column_profile import profile
from schema.document import is_name
from schema.errors import SourceError
from schema.infer import NO_ATTRIBUTE, NO_ATTRIBUTES, NO_RELATION, Inference, InferredRelation, LeftOut
from schema.model import Attribute, AttributeType, Join
from schema.words import EVENT, LATER, tokens
from skws.sources.postgres.address import Address
from skws.sources.postgres.catalog import ForeignKey, Table, TableColumn, tables
from skws.sources.postgres.pgoutput import Identity

SAMPLE_ROWS: Final = 1000
_SURE: Final = 1.0
_DOUBTFUL: Final = 0.5
_CHARACTERS: Final = frozenset({"text", "varchar", "bpchar", "citext", "name"})
_TYPES: Final = {
    **dict.fromkeys(("int2", "int4", "int8", "oid"), AttributeType.INTEGER),
    **dict.fromkeys(("float4", "float8", "numeric"), AttributeType.NUMBER),
    "bool": AttributeType.BOOLEAN,
    **dict.fromkeys(("timestamp", "timestamptz", "date"), AttributeType.TIMESTAMP),
    **dict.fromkeys(
        ("uuid", "inet", "cidr", "macaddr", "bit", "varbit", "time", "timetz"), AttributeType.STRING
    ),
}
_HEADING: Final = "# Inferred from {}. What is doubtful is commented out.\n"


def infer_schema(address: Address, name: str | None, window: str) -> str:
    """The YAML of a schema for the tables that the address' search path shows. Raises SourceError."""
    _, _, rest = inferred(address, name, window).to_yaml().partition("\n")
    return _HEADING.format(address.shown) + rest


def inferred(address: Address, name: str | None, window: str, *, followed: bool = True) -> Inference:
    """What the catalog and samples tell of those tables, whose changes are to be ``followed`` or not.

    Raises SourceError.
    """
    with address.sql() as connected:
        known = tables(connected) if followed else {n: _readable(t) for n, t in tables(connected).items()}
        if not any(map(_usable, known.values())):
            raise SourceError(f"{address.shown}: no tables in the search path to infer a schema from")
        return _inference(connected, known, name or connected.info.dbname, window)


def _inference(connected: connection, known: Mapping[str, Table], name: str, window: str) -> Inference:
    usable = {table.name: table for table in known.values() if _usable(table)}
    joins = list(_joins(usable))
    referring = {(join.value.left, column) for join in joins for column, _ in join.value.on}
    relations = tuple(_relation(connected, table, referring) for table in usable.values())
    left_out = tuple(
        LeftOut(table, NO_ATTRIBUTES if is_name(table) else NO_RELATION)
        for table in known
        if table not in usable
    )
    return Inference(name, relations, tuple(joins), window, left_out)


def _usable(table: Table) -> bool:
    return is_name(table.name) and any(not _fault(column) for column in table.columns)


def _readable(table: Table) -> Table:
    """As it is for who only reads it: generated columns are as good as others."""
    return replace(table, columns=tuple(replace(column, generated=False) for column in table.columns))


def _fault(column: TableColumn) -> str:
    """Why a column cannot be an attribute; empty if it can."""
    if not is_name(column.name):
        return NO_ATTRIBUTE
    if column.type not in _CHARACTERS and column.type not in _TYPES and column.kind != "e":
        return "no attribute has its type"
    return "PostgreSQL does not replicate generated columns" if column.generated else ""


def _left_out(column: TableColumn) -> LeftOut:
    return LeftOut(f"{column.name} ({column.type})", _fault(column))


def _relation(connected: connection, table: Table, referring: set[tuple[str, str]]) -> InferredRelation:
    taken = [column for column in table.columns if not _fault(column)]
    samples = _samples(connected, table, [c.name for c in taken if c.type in _CHARACTERS])
    attributes = tuple(_attribute(table, column, samples, referring) for column in taken)
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


def _attribute(
    table: Table,
    column: TableColumn,
    samples: Mapping[str, list[str | None]],
    referring: set[tuple[str, str]],
) -> Finding[Attribute]:
    if column.type not in _CHARACTERS:
        kind = _type(column)
        return Finding(Attribute(column.name, kind), _SURE, column.type if column.kind != "e" else "an enum")
    if (table.name, column.name) in referring:
        return Finding(
            Attribute(column.name, AttributeType.STRING), _SURE, f"{column.type}, refers to another"
        )
    guess = profile(column.name, samples[column.name])
    if column.name in table.key and not guess.names_things:
        return Finding(Attribute(column.name, AttributeType.STRING), 0.8, f"{column.type}, part of the key")
    if not guess.distinct:
        return Finding(
            Attribute(column.name, AttributeType.TEXT), 0.6, f"{column.type}, no values to judge by"
        )
    text = guess.type is AttributeType.TEXT
    kind = AttributeType.TEXT if text else AttributeType.STRING
    return Finding(Attribute(column.name, kind), round(guess.confidence, 2), f"{column.type}, {guess.reason}")


def _type(column: TableColumn) -> AttributeType:
    # A numeric's modifier is 4 more than the bits of precision and scale; without one it may have any.
    if column.type == "numeric" and column.modifier >= 4 and (column.modifier - 4) & 0x7FF == 0:
        return AttributeType.INTEGER
    return AttributeType.STRING if column.kind == "e" else _TYPES[column.type]


def _samples(connected: connection, table: Table, columns: Iterable[str]) -> dict[str, list[str | None]]:
    chosen = list(columns)
    if not chosen:
        return {}
    statement = SQL("SELECT {} FROM {} LIMIT {}").format(
        SQL(", ").join(SQL("{}::text").format(Identifier(name)) for name in chosen),
        Identifier(table.namespace, table.name),
        Literal(SAMPLE_ROWS),
    )
    with connected.cursor() as cursor:
        cursor.execute(statement)
        rows = cursor.fetchall()
    return {name: [row[place] for row in rows] for place, name in enumerate(chosen)}


def _key_reason(table: Table) -> str:
    followed = table.identity is Identity.FULL or table.identity_columns.issuperset(table.key)
    return "the primary key" if followed else "the primary key, but old rows are not logged with it"


def _time(columns: Iterable[TableColumn]) -> Finding[str] | None:
    """Changes have the time of their commit; a column that tells another one is offered, in a comment."""
    for column in columns:
        words = set(tokens(column.name))
        if _TYPES.get(column.type) is AttributeType.TIMESTAMP and words & EVENT and not words & LATER:
            return Finding(column.name, _DOUBTFUL, "instead of the time of the commit")
    return None


def _joins(usable: Mapping[str, Table]) -> Iterable[Finding[Join]]:
    seen: set[tuple[str, str, tuple[tuple[str, str], ...]]] = set()
    for table in usable.values():
        for reference in table.references:
            on = tuple(zip(reference.columns, reference.to_columns, strict=True))
            if (table.name, reference.to, on) not in seen and _joinable(table, reference, usable):
                seen.add((table.name, reference.to, on))
                conditions = " and ".join(f"{table.name}.{a} = {reference.to}.{b}" for a, b in on)
                yield Finding(Join(conditions, table.name, reference.to, on), _SURE, reference.name)


def _joinable(table: Table, reference: ForeignKey, usable: Mapping[str, Table]) -> bool:
    if reference.to not in usable:
        return False
    sides = ((table, reference.columns), (usable[reference.to], reference.to_columns))
    return all(
        column.name not in names or not _fault(column) for side, names in sides for column in side.columns
    )
