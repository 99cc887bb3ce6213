"""The tables that a schema's relations stand for, and what does not fit; every fault at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from schema.errors import SourceError, nearest
from schema.model import Relation, Schema
from skws.sources.postgres.catalog import Table
from skws.sources.postgres.pgoutput import Identity


@dataclass(frozen=True, slots=True)
class Fitted:
    """The tables of a schema by position of their relation, streams apart from static tables."""

    streams: Mapping[int, Table]
    static: Mapping[int, Table]
    warnings: tuple[str, ...]


def fit(schema: Schema, known: Mapping[str, Table], database: str) -> Fitted:
    """Match relations to tables by name. Raises SourceError naming all that is missing."""
    faults: list[str] = []
    found: dict[int, Table] = {}
    for position, relation in enumerate(schema.relations):
        if position in schema.evolution.removed_relations or relation.source is not None:
            continue
        faults += fit_static(relation, known)
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
    return Fitted(streams, static, warnings)


def fit_static(relation: Relation, known: Mapping[str, Table]) -> Iterator[str]:
    """What is missing for a relation to be read."""
    if relation.name in known:
        yield from _faults(relation, known[relation.name])
    else:
        yield f"no table {relation.name!r} in the search path{nearest(relation.name, known)}"


def _faults(relation: Relation, table: Table) -> Iterator[str]:
    columns = {column.name: column for column in table.columns}
    for attribute in relation.attributes:
        column = columns.get(attribute.name)
        if column is None:
            yield f"{table.full_name} has no column {attribute.name!r}{nearest(attribute.name, columns)}"
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
            f"the server refuses all updates and deletes of {name}, whoever makes them, while a"
            f" publication has it: it has no primary key (ALTER TABLE {name} REPLICA IDENTITY FULL)"
        )
    elif not identifies(relation, table.identity, table.identity_columns):
        reason = advice(relation, table.full_name)
        yield f"updates and deletes of {table.full_name} will be bad records: {reason}"


def identifies(relation: Relation, identity: Identity, columns: frozenset[str]) -> bool:
    """Whether a logged old row tells which tuple it was."""
    return identity is Identity.FULL or (bool(relation.key) and columns.issuperset(relation.key))


def advice(relation: Relation, table: str) -> str:
    """What to do where old rows do not tell the tuple."""
    need = "the whole row, as the schema has no key"
    if relation.key:
        need = f"the key {list(relation.key)} of the schema"
    return (
        f"old rows are not logged with {need}"
        f" (ALTER TABLE {table} REPLICA IDENTITY FULL, or make the table's primary key the `key`)"
    )
