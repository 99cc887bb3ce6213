"""Schema changes under a running query (S-KWS paper, Section 4.4).

Tuples, operators and partial results refer to relations and joins by position, so positions are stable:
removed relations leave holes, new ones are appended, and one that returns unchanged gets its old position.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from skws_schema.model import Evolution, Join, Relation, Schema


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One change. Positions in ``before`` mean the same in ``after``, holes included."""

    before: Schema
    after: Schema

    @classmethod
    def between(cls, before: Schema, target: Schema) -> SchemaChange:
        """Match relations and joins by name; one whose description has changed is new.

        A relation that is only read from another table or column keeps its tuples.
        """
        kept_names = {r.name for r in target.relations if before.index.get(r.name) is not None}
        kept_names = {
            name for name in kept_names if _has_same_tuples(before.relation(name), target.relation(name))
        }
        relations = _renamed_relations(before, target, kept_names)
        joins = _renamed_joins(before, target, kept_names, relations)
        relations = tuple(target.relation(r.name) if r.name in kept_names else r for r in relations)
        return cls(before, _merged_schema(before, target, relations, joins))

    @property
    def removed_relations(self) -> frozenset[int]:
        """Positions of the removed relations, whose tuples are dropped."""
        return self.removed[0]

    @property
    def removed(self) -> tuple[frozenset[int], frozenset[int]]:
        """Positions of the removed relations and joins."""
        before, after = _present_positions(self.before), _present_positions(self.after)
        return before[0] - after[0], before[1] - after[1]

    @property
    def added(self) -> tuple[frozenset[int], frozenset[int]]:
        """Positions of the new relations and joins, including those that were removed before."""
        before, after = _present_positions(self.before), _present_positions(self.after)
        return after[0] - before[0], after[1] - before[1]


def _has_same_tuples(before: Relation, after: Relation) -> bool:
    """True if both relations have the same tuples, wherever their values are read from."""
    return _without_origins(before) == _without_origins(after)


def _without_origins(relation: Relation) -> Relation:
    attributes = tuple(replace(attribute, origin=None) for attribute in relation.attributes)
    # Rows from another array are different rows.
    return replace(
        relation, attributes=attributes, origin=relation.origin if relation.path else None, source=None
    )


def _present_positions(schema: Schema) -> tuple[frozenset[int], frozenset[int]]:
    evolution = schema.evolution
    return (
        frozenset(range(len(schema.relations))) - evolution.removed_relations,
        frozenset(range(len(schema.joins))) - evolution.removed_joins,
    )


def _renamed_relations(before: Schema, target: Schema, kept_names: set[str]) -> tuple[Relation, ...]:
    """The old relations; one whose name now means another relation is renamed."""
    used_names = {*target.index, *before.index}
    names = [
        _add_free_name(r.name, used_names) if r.name in target.index and r.name not in kept_names else r.name
        for r in before.relations
    ]
    return tuple(replace(r, name=name) for r, name in zip(before.relations, names, strict=True))


def _renamed_joins(
    before: Schema, target: Schema, kept_names: set[str], relations: tuple[Relation, ...]
) -> tuple[Join, ...]:
    """The old joins, with the new names of their relations."""
    new_name = {old.name: new.name for old, new in zip(before.relations, relations, strict=True)}
    target_joins = {j.name: j for j in target.joins}
    used_names = {*target_joins, *(j.name for j in before.joins)}
    new_joins = []
    for join in before.joins:
        is_unchanged = target_joins.get(join.name) == join and {join.left, join.right} <= kept_names
        name = (
            _add_free_name(join.name, used_names)
            if join.name in target_joins and not is_unchanged
            else join.name
        )
        new_joins.append(Join(name, new_name[join.left], new_name[join.right], join.on))
    return tuple(new_joins)


def _merged_schema(
    before: Schema, target: Schema, relations: tuple[Relation, ...], joins: tuple[Join, ...]
) -> Schema:
    names = {r.name for r in relations}
    relations += tuple(r for r in target.relations if r.name not in names)
    names = {j.name for j in joins}
    joins += tuple(j for j in target.joins if j.name not in names)
    size = (len(before.relations), len(before.joins))
    has_grown = size != (len(relations), len(joins))
    evolution = Evolution(
        _missing((r.name for r in relations), target.index),
        _missing((j.name for j in joins), {j.name for j in target.joins}),
        (*before.evolution.grown, size) if has_grown else before.evolution.grown,
    )
    return replace(target, relations=relations, joins=joins, evolution=evolution)


def _missing(names: Iterable[str], target_names: Iterable[str]) -> frozenset[int]:
    present = set(target_names)
    return frozenset(position for position, name in enumerate(names) if name not in present)


def _add_free_name(name: str, used_names: set[str]) -> str:
    """A name like ``name`` that is not in ``used_names``; it is added there."""
    number = 1
    while f"{name} (removed {number})" in used_names:
        number += 1
    used_names.add(f"{name} (removed {number})")
    return f"{name} (removed {number})"


def nameable(schema: Schema) -> Schema:
    """The schema for parsers: holes are replaced by empty tables that no text can name."""
    holes = schema.evolution.removed_relations
    if not holes:
        return schema
    used_names = set(schema.index)
    relations = tuple(
        Relation(_add_free_name(relation.name, used_names), (), table=True) if position in holes else relation
        for position, relation in enumerate(schema.relations)
    )
    joins = tuple(j for i, j in enumerate(schema.joins) if i not in schema.evolution.removed_joins)
    return replace(schema, relations=relations, joins=joins)
