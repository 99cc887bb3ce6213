"""Results of one size: candidate networks grown node by node, each with the rows that it holds so far.

A network is grown on only while rows are left in it (S-KWS paper, Section
3.2, on snapshots): of a schema's many networks few are ever looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TypeAlias

from mesh.generate import CNGen
from mesh.order import NodeOrder
from mesh.tree import Tree
from schema.graph import Edge, edges
from schema.model import Value
from skws.database.carriers import Carriers
from skws.database.store import Store

Numbers: TypeAlias = tuple[int, ...]
_REMEMBERED = 200_000  # values probed
_TOGETHER = 256  # rows


Fans: TypeAlias = Callable[[Tree, Numbers], Iterator[tuple[str, int]]]
Hopeful: TypeAlias = Callable[[Tree, Sequence[Numbers], Fans], Sequence[Numbers]]
"""Of the rows of a network but for its last node, those that may lead to a result that is wanted."""


class NetworkResults:
    """All results of a query in a store; ``hopeful`` leaves out what is not wanted before the last join."""

    def __init__(self, carriers: Carriers, store: Store, hopeful: Hopeful) -> None:
        self._carriers = carriers
        self._hopeful = hopeful
        self._edges = edges(carriers.plan.schema)
        self._bitmaps = [carriers.bitmaps(r) for r in range(len(carriers.plan.schema.relations))]
        self._by_value: dict[tuple[int, int, tuple[int, ...]], dict[tuple[Value, ...], list[int]]] = {}
        self._partners = lru_cache(_REMEMBERED)(store.partners)
        self._fan = lru_cache(_REMEMBERED)(store.fan)

    def of_size(self, size: int) -> Iterator[tuple[Tree, Numbers]]:
        """Networks of so many nodes, each with the rows of a result, in the order of the tree."""
        generator = self._generator(size)
        for relation, bitmap in generator.roots:
            if bitmap in self._bitmaps[relation]:
                root = Tree.single(relation, bitmap)
                rows: list[Numbers] = [(number,) for number in self._carriers.carrying(relation, bitmap)]
                yield from self._grown(generator, root, rows, size)

    def fans(self, tree: Tree, numbers: Numbers) -> Iterator[tuple[str, int]]:
        """Each join by name, with how many rows share its value at most; the last row may be missing."""
        for node in range(1, len(tree.edges)):
            edge = self._edges[tree.edges[node]]
            value = self._value(edge, numbers[tree.parents[node]])
            there = self._fan(edge.target, edge.target_columns, value)
            here = self._fan(edge.source, edge.source_columns, value)
            yield self._carriers.plan.schema.joins[edge.id // 2].name, max(here, there)

    def _generator(self, size: int) -> CNGen:
        plan = self._carriers.plan
        slots = len(plan.query.slots)
        searchable = []
        for bitmaps in self._bitmaps:
            bits = 0
            for bitmap in bitmaps:
                bits |= bitmap
            searchable.append(bits)
        counts = [self._carriers.count(slot) for slot in range(slots)]
        shares = tuple(count / max(sum(counts), 1) for count in counts)
        return CNGen(plan.schema, slots, size, searchable, NodeOrder.default(slots, shares))

    def _grown(
        self, generator: CNGen, root: Tree, rows: list[Numbers], size: int
    ) -> Iterator[tuple[Tree, Numbers]]:
        if generator.is_total(root):
            if size == 1:
                yield from ((root, found) for found in rows)
            return
        stack = [(root, rows)]
        while stack:
            tree, held = stack.pop()
            for new, complete in generator.extensions(tree):
                if complete and len(new.relations) < size:
                    continue
                if not complete:
                    found = self._extended(new, held)
                    stack += [(new, found)] if found else []
                    continue
                # Some at a time: what they lead to makes the others less hopeful.
                for first in range(0, len(held), _TOGETHER):
                    some = self._hopeful(new, held[first : first + _TOGETHER], self.fans)
                    yield from ((new, numbers) for numbers in self._extended(new, some))

    def _extended(self, tree: Tree, held: Sequence[Numbers]) -> list[Numbers]:
        """The rows of a tree whose last node is new, given those of the tree without it."""
        relation, bitmap, parent = tree.relations[-1], tree.keywords[-1], tree.parents[-1]
        if bitmap not in self._bitmaps[relation]:
            return []
        edge = self._edges[tree.edges[-1]]
        alike = [node for node, other in enumerate(tree.relations[:-1]) if other == relation]
        return [
            (*numbers, partner)
            for numbers in held
            for partner in self._joined(edge, bitmap, self._value(edge, numbers[parent]))
            if all(numbers[node] != partner for node in alike)
        ]

    def _joined(self, edge: Edge, bitmap: int, value: tuple[Value, ...]) -> Sequence[int]:
        """The rows with exactly some keywords that a value leads to."""
        if None in value:
            return ()
        if bitmap != self._carriers.usual(edge.target):
            return self._indexed(edge, bitmap).get(value, ())
        labels = self._carriers.labels[edge.target]
        return [n for n in self._partners(edge.target, edge.target_columns, value) if n not in labels]

    def _indexed(self, edge: Edge, bitmap: int) -> dict[tuple[Value, ...], list[int]]:
        """Rows with exactly some keywords by join value: few, so no index on disk is asked."""
        key = edge.target, bitmap, edge.target_columns
        found = self._by_value.get(key)
        if found is None:
            found = self._by_value[key] = {}
            for number in self._carriers.carrying(edge.target, bitmap):
                row = self._carriers.row(edge.target, number)
                found.setdefault(tuple(row[c] for c in edge.target_columns), []).append(number)
        return found

    def _value(self, edge: Edge, number: int) -> tuple[Value, ...]:
        row = self._carriers.row(edge.source, number)
        return tuple(row[column] for column in edge.source_columns)
