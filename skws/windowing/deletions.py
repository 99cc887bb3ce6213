"""Which tuples deletions and replacements end, where ticks are positions in the stream.

A key has one tuple at a time: the next with it, or a deletion, ends it. Of
equal rows without a key a deletion ends the oldest that a window may still
hold.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from schema.model import Row, Schema
from windows.lifespans import GroupKey, identity


@dataclass(slots=True)
class Ended:
    """What records ended: positions with the ticks of the ends; and new tuples that replaced another."""

    ends: dict[int, int] = field(default_factory=dict)
    successors: set[int] = field(default_factory=set)
    unmatched: int = 0


class Deletions:
    """Follows tuples of keyed relations, and of others from their first deletion on."""

    def __init__(self, schema: Schema) -> None:
        self.relations = {i for i, r in enumerate(schema.relations) if r.key and not r.table}
        self._schema = schema
        self._known: dict[GroupKey, list[int]] = {}  # positions of live tuples, in order

    def __len__(self) -> int:
        return len(self._known)

    def follow(self, relation: int, live: Iterable[tuple[int, Row]]) -> None:
        """Follow a relation from now on; ``live`` are its live tuples by position, in order."""
        self.relations.add(relation)
        for position, row in live:
            self._known.setdefault(identity(self._schema, relation, row), []).append(position)

    def step(self, records: Iterable[tuple[int, int, Row, bool]], held_until: Callable[[int], int]) -> Ended:
        """Records of followed relations: (tick, relation, row, delete), in order.

        The tick of an insertion is its position; that of a deletion is the
        position of the next insertion. ``held_until`` gives the last tick at
        which a window may hold the tuple at a position.
        """
        ended = Ended()
        for tick, relation, row, delete in records:
            key = identity(self._schema, relation, row)
            live = self._known.setdefault(key, [])
            live[:] = [p for p in live if held_until(p) >= tick]
            _, _, keyed = key
            ended.unmatched += delete and not live
            if live and (keyed or delete):
                ended.ends[live.pop(0)] = tick
                if not delete:
                    ended.successors.add(tick)
            if not delete:
                live.append(tick)
        return ended

    def keep(self, positions: Collection[int]) -> None:
        """Forget all tuples but those at some positions."""
        kept = {key: [p for p in live if p in positions] for key, live in self._known.items()}
        self._known = {key: live for key, live in kept.items() if live}
