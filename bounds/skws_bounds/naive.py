"""Queries evaluated by their definition, over all tuples ever received.

Used until finite streams have ended, while only finitely many tuples have come,
and as the oracle of the synopses in tests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from skws_bounds.normal_form import Atom, Attr, Constant, Query, Stream
from skws_schema.comparison import COMPARED
from skws_schema.model import Row, Schema

Bags = Mapping[str, Sequence[tuple[int, Row]]]
"""The (time, row) of the tuples of each stream, by alias."""


def results(query: Query, schema: Schema, bags: Bags) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    _Join(query, schema, [bags[s.alias] for s in query.streams], found).run()
    return found


def added(query: Query, schema: Schema, past: Bags, new: Bags) -> Counter[tuple[Any, ...]]:
    """The results that ``new`` tuples add to those of ``past`` ones."""
    found: Counter[tuple[Any, ...]] = Counter()
    for at, stream in enumerate(query.streams):
        if new[stream.alias]:
            before = [past[s.alias] for s in query.streams[:at]]
            after = [[*past[s.alias], *new[s.alias]] for s in query.streams[at + 1 :]]
            _Join(query, schema, [*before, new[stream.alias], *after], found).run()
    return found


class _Join:
    def __init__(
        self,
        query: Query,
        schema: Schema,
        bags: list[Sequence[tuple[int, Row]]],
        found: Counter[tuple[Any, ...]],
    ) -> None:
        self._query = query
        self._bags = bags
        self._found = found
        self._at = {s.alias: (i, _columns(s, schema)) for i, s in enumerate(query.streams)}
        # An atom is checked as soon as both sides are bound.
        self._atoms: list[list[Atom]] = [[] for _ in query.streams]
        for atom in query.atoms:
            if not atom.assumed:
                last = max(self._at[t.stream][0] for t in (atom.left, atom.right) if isinstance(t, Attr))
                self._atoms[last].append(atom)
        self._chosen: list[tuple[int, Row]] = []

    def run(self) -> None:
        depth = len(self._chosen)
        if depth == len(self._bags):
            self._found[tuple(self._value(t) for t in self._query.output)] += 1
            return
        for item in self._bags[depth]:
            self._chosen.append(item)
            if all(self._holds(atom) for atom in self._atoms[depth]):
                self.run()
            self._chosen.pop()

    def _holds(self, atom: Atom) -> bool:
        left, right = self._value(atom.left), self._value(atom.right)
        return left is not None and right is not None and bool(COMPARED[atom.op](left, right))

    def _value(self, term: object) -> Any:
        if isinstance(term, Constant):
            return term.value
        if not isinstance(term, Attr):
            raise TypeError(f"{term} has no value in a tuple")
        number, columns = self._at[term.stream]
        time, row = self._chosen[number]
        column = columns[term.name]
        return time if column < 0 else row[column]


def _columns(stream: Stream, schema: Schema) -> dict[str, int]:
    columns = dict(schema.relation(stream.relation).columns)
    return columns if stream.time is None else {**columns, stream.time.name: -1}
