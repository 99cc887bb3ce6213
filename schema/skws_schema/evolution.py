"""Schema changes under a running query (S-KWS paper, Section 4.4).

Tuples, operators and partial results refer to relations and joins by position, so positions are stable:
removed relations leave holes, and new ones are appended, unless they fill a hole of the same description.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import eq
from typing import TypeVar

from skws_schema.model import Evolution, Join, Relation, Schema


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One change. Positions in ``before`` mean the same in ``after``, holes included."""

    before: Schema
    after: Schema

    @classmethod
    def between(cls, before: Schema, target: Schema) -> SchemaChange:
        """Match relations and joins by name; one whose description has changed is new.

        A relation that is only read from another table or column keeps its tuples. A new relation or join
        fills the hole of a removed one with its description: otherwise schemas that alternate would grow.
        """
        evolution = before.evolution
        names = _new_names(before.relations, evolution.removed_relations, target.relations, _has_same_tuples)
        new_name = dict(zip(before.index, names, strict=True))
        joins = [replace(j, left=new_name[j.left], right=new_name[j.right]) for j in before.joins]
        join_names = _new_names(joins, evolution.removed_joins, target.joins, eq)
        relations = tuple(
            target.relation(name) if name in target.index else replace(relation, name=name)
            for relation, name in zip(before.relations, names, strict=True)
        )
        joins = [replace(join, name=name) for join, name in zip(joins, join_names, strict=True)]
        return cls(before, _merged_schema(before, target, relations, tuple(joins)))

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


_Part = TypeVar("_Part", Relation, Join)


def _new_names(
    former: Sequence[_Part],
    holes: Collection[int],
    target: Sequence[_Part],
    is_same: Callable[[_Part, _Part], bool],
) -> list[str]:
    """The names of ``former`` relations or joins in the ``target`` schema.

    A hole that a new one fills gets its name. One that is not in the target keeps its own name, unless that
    now means another one.
    """
    target_parts: dict[str, _Part] = {part.name: part for part in target}
    unchanged_names = {
        part.name for part in former if part.name in target_parts and is_same(part, target_parts[part.name])
    }
    free_holes = [position for position in sorted(holes) if former[position].name not in unchanged_names]
    names = {}
    for part in target:
        if part.name not in unchanged_names:
            for position in free_holes:
                if is_same(replace(former[position], name=part.name), part):
                    names[position] = part.name
                    free_holes.remove(position)
                    break
    used_names = {*target_parts, *(part.name for part in former)}
    for position, part in enumerate(former):
        if position not in names:
            is_used = part.name in target_parts and part.name not in unchanged_names
            names[position] = _add_free_name(part.name, used_names) if is_used else part.name
    return [names[position] for position in range(len(former))]


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
