"""Finds the rows of tables that tuples reach by joins, on paths through tables alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from skws.index.table import Joined, TableIndex
from skws_mesh.columnar.columns import NULL, Flags, Ints, KeySets, distinct
from skws_schema.graph import Edge, edges_from
from skws_schema.model import Schema

Numbers: TypeAlias = dict[int, Ints]
"""Rows of tables: their distinct numbers in order, by relation."""

Frontier: TypeAlias = defaultdict[int, defaultdict[int, list[Ints]]]
"""Rows that were just reached, by the nodes that a network can have beyond them, and by relation."""

_FAR: Final = 1 << 20


class Tuples(NamedTuple):
    """Tuples with their join values by key set; ``carrying``: which of them contain keywords."""

    relation: Ints
    keys: Ints
    carrying: Flags


class _Way(NamedTuple):
    """An edge into an indexed table. ``through``: tuples at its near end can stand inside a network."""

    edge: Edge
    joined: Joined
    through: bool


class Reach:
    """The joins that lead into indexed ``tables``.

    ``want`` says which tables are looked for; ways that lead to none of them are not walked.
    """

    def __init__(self, schema: Schema, tables: Mapping[int, TableIndex]) -> None:
        self._tables = tables
        self._key_sets = KeySets(schema).source
        self._ways = [
            [_way(edge, around, tables) for edge in around if edge.target in tables]
            for around in edges_from(schema)
        ]
        self._steps: dict[int, int] = {}  # from a table to the next wanted one
        self.want(())

    def want(self, wanted: Collection[int]) -> None:
        """Search for rows of these tables from now on."""
        steps = {table: 0 if table in wanted else _FAR for table in self._tables}
        for _ in self._tables:
            for table in self._tables:
                steps[table] = min([steps[table], *(steps[way.edge.target] + 1 for way in self._ways[table])])
        self._steps = steps

    def leads_on(self, table: int, nodes: int) -> bool:
        """True if wanted rows may be among the next ``nodes`` that are joined with a row of a table."""
        return any(self._leads(way, nodes) for way in self._ways[table])

    def from_tuples(self, tuples: Tuples, most: int, chosen: Callable[[int, Ints], Flags]) -> Numbers:
        """The ``chosen`` rows that are in a network of at most so many nodes with one of the tuples.

        A tuple without keywords is inside the network, and so has another neighbour.
        """
        frontier: Frontier = defaultdict(lambda: defaultdict(list))
        for relation in distinct(tuples.relation).tolist():
            for way in self._ways[relation]:
                for carrying, nodes in ((True, most - 1), (False, most - 2)):
                    if not self._leads(way, nodes) or not (carrying or way.through):
                        continue
                    mine = (tuples.relation == relation) & (tuples.carrying == carrying)
                    values = tuples.keys[mine, self._key_sets[way.edge.id]]
                    frontier[nodes - 1][way.edge.target].append(_partners(way, values))
        return self._walked(frontier, most, chosen)

    def from_rows(self, rows: Numbers, most: int, chosen: Callable[[int, Ints], Flags]) -> Numbers:
        """The ``chosen`` rows that are in a network of rows of at most so many nodes with one of the rows."""
        frontier: Frontier = defaultdict(lambda: defaultdict(list))
        for table, numbers in rows.items():
            frontier[most - 1][table].append(numbers)
        return self._walked(frontier, most, chosen)

    def _walked(self, frontier: Frontier, most: int, chosen: Callable[[int, Ints], Flags]) -> Numbers:
        """Rows that leave room for most nodes come first: a row that is reached again leads nowhere new."""
        found: defaultdict[int, list[Ints]] = defaultdict(list)
        walked: Numbers = {}
        for nodes in range(most - 1, -1, -1):
            for table, parts in frontier[nodes].items():
                numbers = np.concatenate(parts)
                if self.leads_on(table, nodes):
                    numbers = distinct(numbers)
                    if table in walked:
                        numbers = np.setdiff1d(numbers, walked[table], assume_unique=True)
                        walked[table] = np.concatenate([walked[table], numbers])
                    else:
                        walked[table] = numbers
                    self._walk(table, numbers, nodes, frontier[nodes - 1])
                found[table].append(numbers[chosen(table, numbers)])
        return {table: distinct(np.concatenate(parts)) for table, parts in found.items()}

    def _walk(self, table: int, numbers: Ints, nodes: int, reached: dict[int, list[Ints]]) -> None:
        for way in self._ways[table]:
            if self._leads(way, nodes):
                values = self._tables[table].values(numbers, way.edge.source_columns)
                reached[way.edge.target].append(_partners(way, values))

    def _leads(self, way: _Way, nodes: int) -> bool:
        return self._steps[way.edge.target] < nodes


def _way(edge: Edge, around: Iterable[Edge], tables: Mapping[int, TableIndex]) -> _Way:
    # By an edge to at most one tuple nobody has two neighbours.
    through = not edge.at_most_one or any(other.id != edge.id for other in around)
    return _Way(edge, tables[edge.target].by(edge.target_columns), through)


def _partners(way: _Way, values: Ints) -> Ints:
    """Distinct rows, unordered."""
    values = distinct(values)
    return way.joined.partners(values[values != NULL])
