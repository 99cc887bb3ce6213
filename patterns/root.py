"""The root of a pattern or query: what all tuples of a result agree on, by which a stream can be sharded.

A hierarchical query with a variable in every atom, and a pattern whose every
tuple has an attribute of one class, give each result within one value of it.
So tuples can be sent by that value, each to one place, and no result is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

from patterns.automata.predicates import Columns, key
from patterns.language.expression import Expression, letters
from patterns.language.resolve import Resolved
from patterns.queries.query import ConjunctiveQuery
from schema.model import Row, Value


@dataclass(frozen=True, slots=True)
class RootKey:
    """``columns``: for each relation that is read the columns whose values a result agrees on.

    ``name``: the variables or attributes, for people.
    """

    name: str
    columns: tuple[tuple[int, Columns], ...]

    def shard(self, relation: int, row: Row, shards: int) -> int | None:
        """Which of so many shards a tuple belongs to, in every process alike; None: it is in no result."""
        for known, columns in self.columns:
            if known == relation:
                values = key(columns, row)
                return 0 if values is None else crc32(repr([*map(_plain, values)]).encode()) % shards
        return None


def root_of_query(query: ConjunctiveQuery) -> RootKey | None:
    """The root of a query: its variables that stand in every atom; None if there is none.

    Atoms of one relation must have them at the same columns: a tuple would belong to several shards.
    """
    everywhere = [v for v in query.variables if len(query.atoms_of(v)) == len(query.atoms)]
    found = [{(a.relation, a.column(v)) for a in query.atoms} for v in everywhere]
    return _root(list(zip(everywhere, found, strict=True)))


def root_of_pattern(expression: Expression, resolved: Resolved) -> RootKey | None:
    """The root of a pattern: the classes that every letter carries; None if there is none."""
    readings = {letter: resolved.readings[letter] for letter in letters(expression)}
    everywhere = frozenset.intersection(*(reading.classes for reading in readings.values()))
    found = [{(x.relation, r.columns[c]) for x, r in readings.items()} for c in sorted(everywhere)]
    return _root([(resolved.class_texts[c], at) for c, at in zip(sorted(everywhere), found, strict=True)])


def _root(candidates: list[tuple[str, set[tuple[int, int]]]]) -> RootKey | None:
    """Of classes of columns, those with one column in each relation."""
    chosen = [(name, at) for name, at in candidates if len({relation for relation, _ in at}) == len(at)]
    if not chosen:
        return None
    by_relation: dict[int, Columns] = {}
    for _, at in chosen:
        for relation, column in sorted(at):
            by_relation[relation] = (*by_relation.get(relation, ()), column)
    return RootKey("; ".join(name for name, _ in chosen), tuple(sorted(by_relation.items())))


def _plain(value: Value) -> Value:
    """Equal values of different types as one."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
