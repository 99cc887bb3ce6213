"""The root of a pattern or query: the value that all tuples of a result share, by which to shard a stream.

In a hierarchical query with a variable in every atom, and in a pattern whose
tuples all have an attribute of one class, the tuples of a result have one value
there. So each tuple can be sent to one shard by that value, and no result is
lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

from skws_patterns.automata.predicates import Columns, key
from skws_schema.model import Row, Value


@dataclass(frozen=True, slots=True)
class RootKey:
    """``columns``: for each relation that is read, the columns whose values the tuples of a result share.

    ``name``: the variables or attributes, for messages.
    """

    name: str
    columns: tuple[tuple[int, Columns], ...]

    def shard(self, relation: int, row: Row, shards: int) -> int | None:
        """The shard of a tuple, the same in every process; None if the tuple is in no result."""
        for known, columns in self.columns:
            if known == relation:
                values = key(columns, row)
                return 0 if values is None else crc32(repr([*map(_plain, values)]).encode()) % shards
        return None


def root_key(candidates: list[tuple[str, set[tuple[int, int]]]]) -> RootKey | None:
    """The root from named classes of (relation, column); None if there is none.

    Classes with two columns in one relation are left out, because a tuple would belong to two shards.
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
    """The value with whole floats as integers, since equal values must have one text."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
