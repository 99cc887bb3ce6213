"""An automaton laid out for evaluation: what a tuple of each relation does, resolved beforehand.

H of the paper is cut into tables, one for each state and left key function,
so that transitions which compare a state's tuples alike share their entries.
A table is two generations of entries. When the older one has wholly left the
window it is let go, and the younger takes its place: entries of runs that
have expired are reclaimed at no cost per tuple.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeAlias

from patterns.automata.pcea import PCEA, State, Transition
from patterns.automata.predicates import Columns, Unary
from patterns.evaluation.heap import Node
from schema.model import Row, Value

# One value, a tuple of several, () where nothing is compared; None where a NULL makes it undefined.
Key: TypeAlias = Value | tuple[Value, ...]
Table: TypeAlias = list[dict[Key, Node]]
# A table, and the number of the key under which a tuple is looked up or entered.
Place: TypeAlias = tuple[Table, int]
# (sources, labels, places that the target's runs are entered at, whether it is final)
Step: TypeAlias = tuple[tuple[Place, ...], frozenset[str], tuple[Place, ...], bool]
Holds: TypeAlias = Callable[[Row], bool]


@dataclass(frozen=True, slots=True)
class RelationProgram:
    """What a tuple of one relation does: its keys, then the steps of each predicate it satisfies."""

    keys: tuple[Callable[[Row], Key], ...]
    steps: tuple[tuple[Holds | None, tuple[Step, ...]], ...]


class Program:
    """The programs of a PCEA by relation, and the tables they share."""

    def __init__(self, pcea: PCEA, relations: int) -> None:
        sources = {(s.state, s.equality.left): None for t in pcea.transitions for s in t.sources}
        self._tables: dict[tuple[State, Any], Table] = {slot: [{}, {}] for slot in sources}
        self.tables = tuple(self._tables.values())
        self.relations = tuple(self._of_relation(pcea, number) for number in range(relations))

    def _of_relation(self, pcea: PCEA, relation: int) -> RelationProgram | None:
        mine = [t for t in pcea.transitions if t.unary.relation == relation]
        keys: dict[Columns, int] = {}
        by_unary: dict[Unary, list[Step]] = {}
        for transition in mine:
            step = self._step(transition, keys, transition.target in pcea.final)
            by_unary.setdefault(transition.unary, []).append(step)
        if not mine:
            return None
        steps = tuple((holds_function(unary), tuple(found)) for unary, found in by_unary.items())
        return RelationProgram(tuple(map(key_function, keys)), steps)

    def _step(self, transition: Transition, keys: dict[Columns, int], final: bool) -> Step:
        def numbered(columns: Columns) -> int:
            return keys.setdefault(columns, len(keys))

        sources = [
            (self._tables[s.state, s.equality.left], numbered(s.equality.right)) for s in transition.sources
        ]
        entered = []
        for (state, left), table in self._tables.items():
            columns = dict(left).get(transition.unary.relation) if state == transition.target else None
            if columns is not None:
                entered.append((table, numbered(columns)))
        return tuple(sources), transition.labels, tuple(entered), final


def key_function(columns: Columns) -> Callable[[Row], Key]:
    """What takes the values of some columns; None if one of them is NULL."""
    if not columns:
        return lambda _: ()
    take: Callable[[Row], Any] = itemgetter(*columns)
    if len(columns) == 1:
        return take

    def together(row: Row) -> Key:
        values: tuple[Value, ...] = take(row)
        return None if None in values else values

    return together


def holds_function(unary: Unary) -> Holds | None:
    """The tests of a predicate as one function; None if there are none."""
    tests = [test.holds for test in unary.tests]
    if not tests:
        return None
    if len(tests) == 1:
        return tests[0]
    return lambda row: all(test(row) for test in tests)


__all__ = ["Key", "Place", "Program", "RelationProgram", "Step", "Table", "holds_function", "key_function"]
