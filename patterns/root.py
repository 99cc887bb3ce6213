"""The root of a pattern or query: what all tuples of a result agree on, by which a stream can be sharded.

A hierarchical query with a variable in every atom, and a pattern whose every
tuple has an attribute of one class, give each result within one value of it.
So tuples can be sent by that value, each to one place, and no result is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

from patterns.automata.predicates import Columns, key
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


def root_key(candidates: list[tuple[str, set[tuple[int, int]]]]) -> RootKey | None:
    """The root made of classes of (relation, column), each with its name; None if there is none.

    Classes with two columns in one relation are left out: a tuple would belong to two shards.
    """
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
