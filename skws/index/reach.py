"""The rows of indexed tables that live tuples need: those they reach by joins, and those with keywords.

The paths of joins only lead through tables. If few rows have keywords of a query, all of them are live
tuples while the query runs. If there are many, only the rows that a network of live tuples can reach are
live. The others can only be in results without tuples of the stream, which one search at the start of the
query finds (``seeds``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from skws.data.arrow_blocks import ArrowBlock
from skws.index.table import ALL, PART, JoinIndex, TableIndex
from skws.keywords.match import EXCLUDED, Matcher
from skws_mesh.columnar.columns import NULL, Flags, Ints, distinct
from skws_mesh.columnar.live import KeySets
from skws_schema.graph import Edge, edges_from
from skws_schema.model import Row, Schema

Numbers: TypeAlias = dict[int, Ints]
"""Rows of tables: their distinct numbers in order, by relation."""

Frontier: TypeAlias = defaultdict[int, defaultdict[int, list[Ints]]]
"""Newly reached rows, by the number of further nodes that a network can have, and by relation."""

_FAR: Final = 1 << 20


class Tuples(NamedTuple):
    """Tuples with their join values by key set; ``has_keywords``: flags tuples that contain keywords."""

    relation: Ints
    keys: Ints
    has_keywords: Flags


class _Link(NamedTuple):
    """An edge into an indexed table. ``is_inner``: tuples at its near end can be inner nodes of a network."""

    edge: Edge
    joined: JoinIndex
    is_inner: bool


class Reach:
    """The joins that lead into indexed ``tables``.

    ``set_targets`` sets the tables to search for; edges that lead to none of them are not followed.
    """

    def __init__(self, schema: Schema, tables: Mapping[int, TableIndex]) -> None:
        self._tables = tables
        self._key_sets = KeySets(schema).source
        self._links = [
            [_link(edge, near_edges, tables) for edge in near_edges if edge.target in tables]
            for near_edges in edges_from(schema)
        ]
        self._steps: dict[int, int] = {}  # from a table to the next wanted one
        self.set_targets(())

    def set_targets(self, targets: Collection[int]) -> None:
        """Set the tables whose rows are searched for."""
        steps = {table: 0 if table in targets else _FAR for table in self._tables}
        for _ in self._tables:
            for table in self._tables:
                steps[table] = min(
                    [steps[table], *(steps[link.edge.target] + 1 for link in self._links[table])]
                )
        self._steps = steps

    def leads_to_targets(self, table: int, nodes: int) -> bool:
        """True if wanted rows may be among the next ``nodes`` that are joined with a row of a table."""
        return any(self._leads_to_target(link, nodes) for link in self._links[table])

    def from_tuples(self, tuples: Tuples, max_nodes: int, wanted: Callable[[int, Ints], Flags]) -> Numbers:
        """The ``wanted`` rows that are in a network of at most ``max_nodes`` nodes with one of the tuples.

        A tuple without keywords is inside the network, and so has another neighbour.
        """
        frontier: Frontier = defaultdict(lambda: defaultdict(list))
        for relation in distinct(tuples.relation).tolist():
            for link in self._links[relation]:
                for has_keywords, nodes in ((True, max_nodes - 1), (False, max_nodes - 2)):
                    if not self._leads_to_target(link, nodes) or not (has_keywords or link.is_inner):
                        continue
                    flags = (tuples.relation == relation) & (tuples.has_keywords == has_keywords)
                    values = tuples.keys[flags, self._key_sets[link.edge.id]]
                    frontier[nodes - 1][link.edge.target].append(_partners(link, values))
        return self._reachable(frontier, max_nodes, wanted)

    def from_rows(self, rows: Numbers, max_nodes: int, wanted: Callable[[int, Ints], Flags]) -> Numbers:
        """The ``wanted`` rows that are in a network of at most ``max_nodes`` rows with one of the rows."""
        frontier: Frontier = defaultdict(lambda: defaultdict(list))
        for table, numbers in rows.items():
            frontier[max_nodes - 1][table].append(numbers)
        return self._reachable(frontier, max_nodes, wanted)

    def _reachable(self, frontier: Frontier, max_nodes: int, wanted: Callable[[int, Ints], Flags]) -> Numbers:
        """The ``wanted`` rows that are reached from the frontier.

        Rows after which the most nodes fit come first: a row that is reached again leads to no new row.
        """
        results: defaultdict[int, list[Ints]] = defaultdict(list)
        visited: Numbers = {}
        for nodes in range(max_nodes - 1, -1, -1):
            for table, arrays in frontier[nodes].items():
                numbers = np.concatenate(arrays)
                if self.leads_to_targets(table, nodes):
                    numbers = distinct(numbers)
                    if table in visited:
                        numbers = np.setdiff1d(numbers, visited[table], assume_unique=True)
                        visited[table] = np.concatenate([visited[table], numbers])
                    else:
                        visited[table] = numbers
                    self._follow_links(table, numbers, nodes, frontier[nodes - 1])
                results[table].append(numbers[wanted(table, numbers)])
        return {table: distinct(np.concatenate(arrays)) for table, arrays in results.items()}

    def _follow_links(self, table: int, numbers: Ints, nodes: int, next_rows: dict[int, list[Ints]]) -> None:
        for link in self._links[table]:
            if self._leads_to_target(link, nodes):
                values = self._tables[table].values(numbers, link.edge.source_columns)
                next_rows[link.edge.target].append(_partners(link, values))

    def _leads_to_target(self, link: _Link, nodes: int) -> bool:
        return self._steps[link.edge.target] < nodes


def _link(edge: Edge, near_edges: Iterable[Edge], tables: Mapping[int, TableIndex]) -> _Link:
    # An edge to at most one tuple gives no tuple two neighbours.
    is_inner = not edge.at_most_one or any(other.id != edge.id for other in near_edges)
    return _Link(edge, tables[edge.target].join_index(edge.target_columns), is_inner)


def _partners(link: _Link, values: Ints) -> Ints:
    """Distinct rows, unordered."""
    values = distinct(values)
    return link.joined.partners(values[values != NULL])


class StandingKeywordRows:
    """The rows of ``tables`` with keywords of standing queries, by the queries' numbers.

    ``at_once``: a query with at most this many rows inserts all of them at its start.
    """

    def __init__(self, tables: Mapping[int, TableIndex], reach: Reach, at_once: int) -> None:
        self._tables = tables
        self._at_once = at_once
        self._reach = reach
        self._sizes: dict[int, int] = {}
        self._lazy: dict[int, Matcher] = {}
        # By row: the number of queries that insert it when it is reached. Other tables take no memory.
        self._lazy_counts: dict[int, npt.NDArray[np.uint32]] = {}

    @property
    def lazy(self) -> frozenset[int]:
        """The queries whose rows are inserted when they are reached."""
        return frozenset(self._lazy)

    @property
    def largest(self) -> int:
        """The nodes of the largest network of a query."""
        return max(self._sizes.values(), default=1)

    def lazy_flags(self, table: int, numbers: Ints) -> Flags:
        """Flags the rows that are inserted when they are reached."""
        counts = self._lazy_counts.get(table)
        flags: Flags = np.zeros(len(numbers), dtype=bool) if counts is None else counts[numbers] > 0
        return flags

    def add(self, query: int, matcher: Matcher, size: int) -> Numbers:
        """Add a query with networks of at most ``size`` nodes; returns the rows to insert now."""
        self._sizes[query] = size
        if sum(table.bound(matcher) for table in self._tables.values()) <= self._at_once:
            return {r: np.flatnonzero(table.keyword_flags(matcher)) for r, table in self._tables.items()}
        self._lazy[query] = matcher
        for relation, table in self._tables.items():
            if table.bound(matcher):
                counts = self._lazy_counts.setdefault(relation, np.zeros(table.size, dtype=np.uint32))
                counts += table.keyword_flags(matcher)
        self._reach.set_targets(self._lazy_counts)
        return {}

    def remove(self, query: int) -> Numbers:
        """Remove a query; returns the rows that are no longer inserted when they are reached."""
        del self._sizes[query]
        matcher = self._lazy.pop(query, None)
        removed: Numbers = {}
        if matcher is None:
            return removed
        for relation, counts in list(self._lazy_counts.items()):
            flags = self._tables[relation].keyword_flags(matcher)
            np.subtract(counts, flags, out=counts)
            removed[relation] = np.flatnonzero(flags & (counts == 0))
            if not counts.any():
                del self._lazy_counts[relation]
        self._reach.set_targets(self._lazy_counts)
        return removed

    def seeds(self, matcher: Matcher, size: int) -> Numbers:
        """The rows with the rarest keyword: each result of rows alone contains one of them."""
        slots = [1 << slot for slot in range(len(matcher.query.slots))]
        counts = [sum(table.bound(matcher, slot) for table in self._tables.values()) for slot in slots]
        if not all(counts):
            return {}
        rarest = slots[counts.index(min(counts))]
        row_numbers = {}
        for relation, table in self._tables.items():
            flags = table.keyword_flags(matcher, rarest)
            # A row without neighbours needs all keywords.
            if not self._reach.leads_to_targets(relation, size - 1):
                for slot in slots:
                    if slot != rarest:
                        flags &= table.keyword_flags(matcher, slot)
            row_numbers[relation] = np.flatnonzero(flags)
        return row_numbers

    def present_keywords(self, matcher: Matcher) -> int:
        """The keywords of a query that rows contain; stops early once all are found."""
        keywords = 0
        for slot in range(len(matcher.query.slots)):
            for _, _, bitmaps in self._bitmaps(matcher, 1 << slot):
                if keywords >> slot & 1:
                    break
                keywords |= int(np.bitwise_or.reduce(bitmaps[bitmaps != EXCLUDED], initial=0))
        return keywords

    def excluded_count(self, matcher: Matcher) -> int:
        """The number of rows that a query excludes."""
        bits = ALL if matcher.torn else matcher.excluding
        return sum(int((bitmaps == EXCLUDED).sum()) for _, _, bitmaps in self._bitmaps(matcher, bits))

    def with_keywords(self, matcher: Matcher) -> Iterator[tuple[int, list[Row]]]:
        """All rows that contain keywords of a query, in parts, each with its relation."""
        keywords = matcher.excluding - 1
        for relation, block, bitmaps in self._bitmaps(matcher, keywords):
            yield relation, block.rows(np.flatnonzero(bitmaps > 0))

    def _bitmaps(self, matcher: Matcher, bits: int) -> Iterator[tuple[int, ArrowBlock, Ints]]:
        """The rows that may have some keywords of a query, a part at a time, with the bitmaps of all."""
        for relation, table in self._tables.items():
            numbers = np.flatnonzero(table.keyword_flags(matcher, bits))
            for first in range(0, len(numbers), PART):
                block = table.rows(numbers[first : first + PART])
                yield relation, block, matcher.bitmaps_of([block])[0].astype(np.int64)
