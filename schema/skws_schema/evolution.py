"""A schema changed under a running query: what stays keeps its position (S-KWS paper, Section 4.4).

Tuples, operators and partial results refer to relations and joins by
position: removed ones stay as holes, new ones are appended, and one that
returns unchanged takes its old position again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from skws_schema.model import Evolution, Join, Relation, Schema


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One change. ``after`` has the positions of ``before``, holes included."""

    before: Schema
    after: Schema

    @classmethod
    def between(cls, before: Schema, given: Schema) -> SchemaChange:
        """Match by name. A relation or join with another description is another one.

        One that is only read from another table or column keeps its tuples.
        """
        kept = {r.name for r in given.relations if before.index.get(r.name) is not None}
        kept = {name for name in kept if _alike(before.relation(name), given.relation(name))}
        relations = _renamed_relations(before, given, kept)
        joins = _renamed_joins(before, given, kept, relations)
        relations = tuple(given.relation(r.name) if r.name in kept else r for r in relations)
        return cls(before, _after(before, given, relations, joins))

    @property
    def removed_relations(self) -> frozenset[int]:
        """Positions of the relations that are gone, with their tuples."""
        return self.removed[0]

    @property
    def removed(self) -> tuple[frozenset[int], frozenset[int]]:
        """Positions of the removed relations and joins."""
        before, after = _present(self.before), _present(self.after)
        return before[0] - after[0], before[1] - after[1]

    @property
    def added(self) -> tuple[frozenset[int], frozenset[int]]:
        """Positions of the new relations and joins, including those that return."""
        before, after = _present(self.before), _present(self.after)
        return after[0] - before[0], after[1] - before[1]


def _alike(before: Relation, given: Relation) -> bool:
    """Whether they have the same tuples, wherever their values are read from."""
    return _without_origins(before) == _without_origins(given)


def _without_origins(relation: Relation) -> Relation:
    attributes = tuple(replace(attribute, origin=None) for attribute in relation.attributes)
    # Rows in arrays of other rows are other rows if they are in another array.
    return replace(
        relation, attributes=attributes, origin=relation.origin if relation.path else None, source=None
    )


def _present(schema: Schema) -> tuple[frozenset[int], frozenset[int]]:
    evolution = schema.evolution
    return (
        frozenset(range(len(schema.relations))) - evolution.removed_relations,
        frozenset(range(len(schema.joins))) - evolution.removed_joins,
    )


def _renamed_relations(before: Schema, given: Schema, kept: set[str]) -> tuple[Relation, ...]:
    """The old relations; a new one takes its name from an old one of another description."""
    taken = {*given.index, *before.index}
    names = [
        _free(r.name, taken) if r.name in given.index and r.name not in kept else r.name
        for r in before.relations
    ]
    return tuple(replace(r, name=name) for r, name in zip(before.relations, names, strict=True))


def _renamed_joins(
    before: Schema, given: Schema, kept: set[str], relations: tuple[Relation, ...]
) -> tuple[Join, ...]:
    """The old joins, between relations by their new names."""
    new_name = {old.name: new.name for old, new in zip(before.relations, relations, strict=True)}
    wanted = {j.name: j for j in given.joins}
    taken = {*wanted, *(j.name for j in before.joins)}
    renamed = []
    for join in before.joins:
        stays = wanted.get(join.name) == join and {join.left, join.right} <= kept
        name = _free(join.name, taken) if join.name in wanted and not stays else join.name
        renamed.append(Join(name, new_name[join.left], new_name[join.right], join.on))
    return tuple(renamed)


def _after(before: Schema, given: Schema, relations: tuple[Relation, ...], joins: tuple[Join, ...]) -> Schema:
    names = {r.name for r in relations}
    relations += tuple(r for r in given.relations if r.name not in names)
    names = {j.name for j in joins}
    joins += tuple(j for j in given.joins if j.name not in names)
    size = (len(before.relations), len(before.joins))
    grows = size != (len(relations), len(joins))
    evolution = Evolution(
        _missing((r.name for r in relations), given.index),
        _missing((j.name for j in joins), {j.name for j in given.joins}),
        (*before.evolution.grown, size) if grows else before.evolution.grown,
    )
    return replace(given, relations=relations, joins=joins, evolution=evolution)


def _missing(names: Iterable[str], wanted: Iterable[str]) -> frozenset[int]:
    present = set(wanted)
    return frozenset(position for position, name in enumerate(names) if name not in present)


def _free(name: str, taken: set[str]) -> str:
    """An unused name like ``name``; added to ``taken``."""
    number = 1
    while f"{name} (removed {number})" in taken:
        number += 1
    taken.add(f"{name} (removed {number})")
    return f"{name} (removed {number})"


def nameable(schema: Schema) -> Schema:
    """The schema for parsers: in place of holes are empty tables that no text can name."""
    gone = schema.evolution.removed_relations
    if not gone:
        return schema
    taken = set(schema.index)
    relations = tuple(
        Relation(_free(relation.name, taken), (), table=True) if position in gone else relation
        for position, relation in enumerate(schema.relations)
    )
    joins = tuple(j for i, j in enumerate(schema.joins) if i not in schema.evolution.removed_joins)
    return replace(schema, relations=relations, joins=joins)
