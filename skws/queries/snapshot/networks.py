"""Results of one size: candidate networks grown node by node, each with its rows so far.

A network grows only while it has rows (S-KWS paper, Section 3.2, on
snapshots), so few of a schema's many networks are made. If only the best
results are wanted, rows with heavier keywords grow first, and rows that cannot
lead to one of the best are dropped, as long as the bounds pay.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from heapq import heappop, heappush
from itertools import count
from math import inf
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

from skws.data.blocks import RowBlock
from skws.index.table import TableIndex
from skws.index.values import join_values
from skws.queries.snapshot.keyword_rows import Bounds, KeywordRows, Weights
from skws.ranking.rankings import Fans, passed
from skws_mesh.cngen import CNGen
from skws_mesh.columnar.columns import Ints
from skws_mesh.tree import NodeOrder, Tree
from skws_schema.budgets import memory_checked
from skws_schema.graph import Edge, edges
from skws_schema.model import Schema, Value

JoinValue: TypeAlias = tuple[Value, ...]
_REMEMBERED: Final = 200_000  # values and partners
_Columns: TypeAlias = tuple[int, tuple[int, ...]]


class Probes:
    """Looks up many join values of an edge at once, and caches the answers."""

    def __init__(self, schema: Schema, tables: Sequence[TableIndex]) -> None:
        self._edges = edges(schema)
        self._tables = tables
        self._partners: dict[_Columns, dict[JoinValue, list[int]]] = {}
        self._fans: dict[_Columns, dict[JoinValue, int]] = {}
        self._held = 0

    def partners(self, edge: Edge, values: Collection[JoinValue]) -> dict[JoinValue, list[int]]:
        """The partners of values, and perhaps of others."""
        relation, columns = edge.target, edge.target_columns
        self._forget()
        by_value = self._partners.setdefault((relation, columns), {})
        new = [value for value in values if value not in by_value]
        by_value.update((value, []) for value in new)
        places, numbers = self._tables[relation].by(columns).pairs(_hashed(new, columns))
        for place, number in zip(places.tolist(), numbers.tolist(), strict=True):
            by_value[new[place]].append(number)
        self._held += len(new) + len(places)
        return by_value

    def fans(self, edge: Edge, values: Collection[JoinValue]) -> dict[JoinValue, Fans]:
        """The number of rows with each value that the edge leads to, and of those that it leads from."""
        out, back = (
            {} if one.at_most_one else self._counts(one.target, one.target_columns, values)
            for one in (edge, self._edges[edge.id ^ 1])
        )
        return {value: (out.get(value, 1), back.get(value, 1)) for value in values}

    def _counts(
        self, relation: int, columns: tuple[int, ...], values: Collection[JoinValue]
    ) -> dict[JoinValue, int]:
        self._forget()
        by_value = self._fans.setdefault((relation, columns), {})
        new = [value for value in values if value not in by_value]
        counts = self._tables[relation].by(columns).counts(_hashed(new, columns))
        by_value.update(zip(new, counts.tolist(), strict=True))
        self._held += len(new)
        return by_value

    def _forget(self) -> None:
        if self._held > _REMEMBERED:
            self._partners.clear()
            self._fans.clear()
            self._held = 0


def _hashed(values: Sequence[JoinValue], columns: tuple[int, ...]) -> Ints:
    """The index finds values by their hashes, so few rows that it finds may have others."""
    return join_values(RowBlock(0, values), range(len(columns)))


Numbers: TypeAlias = tuple[int, ...]
_TOGETHER: Final = 256  # rows
_BOUND: Final = itemgetter(0)


class JoinedRows(NamedTuple):
    """Joined rows, one for each node of a tree.

    ``bound``: that of the scores of results with them. ``fans``: of each join,
    as far as known. ``weights``: each keyword's greatest weight, empty until needed.
    """

    bound: float
    numbers: Numbers
    fans: tuple[Fans, ...] = ()
    weights: Weights = ()


@dataclass(slots=True)
class _Grown:
    """A tree without all keywords, and its rows, those with the least bound first."""

    tree: Tree
    rows: list[JoinedRows]


class TooManyRowsError(Exception):
    """More rows were joined than it takes to load all."""


class NetworkResults:
    """The results of a query in tables, without those that ``bounds`` prunes.

    ``most``: rows that may be joined.
    """

    def __init__(
        self,
        keyword_rows: KeywordRows,
        tables: Sequence[TableIndex],
        bounds: Bounds,
        most: float,
    ) -> None:
        self._left = most
        self._keyword_rows = keyword_rows
        self._bounds = bounds
        self._schema = keyword_rows.plan.schema
        self._edges = edges(self._schema)
        self._bitmaps = [keyword_rows.bitmaps(r) for r in range(len(self._schema.relations))]
        self._by_value: dict[tuple[int, int, tuple[int, ...]], dict[JoinValue, list[int]]] = {}
        self._probes = Probes(self._schema, tables)

    def of_size(self, size: int) -> Iterator[tuple[Tree, JoinedRows]]:
        """Results of ``size`` tuples: networks, each with the rows of its nodes. Raises TooManyRowsError."""
        generator = self._generator(size)
        extensions = cache(generator.extensions)
        waiting: list[tuple[float, int, _Grown]] = []
        order = count()

        def wait(tree: Tree, rows: list[JoinedRows]) -> None:
            rows.sort(key=_BOUND)
            # The newest of equal bounds first: fewer wait.
            heappush(waiting, (-rows[-1].bound, -next(order), _Grown(tree, rows)))

        for relation, bitmap in generator.roots:
            if bitmap in self._bitmaps[relation]:
                root = Tree.single(relation, bitmap)
                rows = self._roots(root, size)
                if not generator.is_total(root):
                    if rows:
                        wait(root, rows)
                elif size == 1:
                    yield from ((root, held) for held in rows)
        while waiting and -waiting[0][0] >= self._bounds.least:
            grown = heappop(waiting)[2]
            some, rest = grown.rows[-_TOGETHER:], grown.rows[:-_TOGETHER]
            if rest:
                wait(grown.tree, rest)
            for new, complete in extensions(grown.tree):
                if complete and len(new.relations) < size:
                    continue
                found = self._extended(new, some, size)
                self._left -= len(some) + len(found)
                if self._left < 0:
                    raise TooManyRowsError
                if complete:
                    yield from ((new, held) for held in self._scored(new, found, size))
                elif found:
                    wait(new, found)

    def fans(self, tree: Tree, held: JoinedRows) -> Iterator[tuple[str, int]]:
        """The joins by which a result passes through rows, by name, and how many rows each leads to."""
        all_counted = len(held.fans) == len(held.numbers) - 1
        fans = (
            held.fans if all_counted else [self._fan(tree, held, node) for node in range(1, len(tree.edges))]
        )
        for node, fan in passed(tree.parents, fans):
            yield self._schema.joins[tree.edges[node] // 2].name, fan

    def joined(self, tree: Tree, held: JoinedRows) -> bool:
        """Whether the values of joins are equal; the index compares hashes only."""
        for node in range(1, len(tree.edges)):
            edge = self._edges[tree.edges[node]]
            row = self._keyword_rows.row(edge.target, held.numbers[node])
            if self._value(edge, held.numbers[tree.parents[node]]) != tuple(
                row[c] for c in edge.target_columns
            ):
                return False
        return True

    def _fan(self, tree: Tree, held: JoinedRows, node: int) -> Fans:
        edge = self._edges[tree.edges[node]]
        value = self._value(edge, held.numbers[tree.parents[node]])
        return self._probes.fans(edge, [value])[value]

    def _generator(self, size: int) -> CNGen:
        plan = self._keyword_rows.plan
        slots = len(plan.query.slots)
        searchable = []
        for bitmaps in self._bitmaps:
            bits = 0
            for bitmap in bitmaps:
                bits |= bitmap
            searchable.append(bits)
        counts = [self._keyword_rows.count(slot) for slot in range(slots)]
        shares = tuple(count / max(sum(counts), 1) for count in counts)
        order = NodeOrder.default(slots, shares)
        query = plan.query
        left_out = query.without, query.without_joins
        return CNGen(plan.schema, slots, size, searchable, order, None, *left_out)

    def _roots(self, root: Tree, size: int) -> list[JoinedRows]:
        relation, bitmap = root.relations[0], root.keywords[0]
        single_rows = (JoinedRows(inf, (n,)) for n in self._keyword_rows.carrying(relation, bitmap))
        return self._weighed(root, single_rows, size)

    def _extended(self, tree: Tree, rows: Sequence[JoinedRows], size: int) -> list[JoinedRows]:
        """The rows of a tree, given those of the tree without its last node."""
        relation, bitmap, parent = tree.relations[-1], tree.keywords[-1], tree.parents[-1]
        if bitmap not in self._bitmaps[relation]:
            return []
        edge = self._edges[tree.edges[-1]]
        self._keyword_rows.load(edge.source, {held.numbers[parent] for held in rows})
        valued = [(held, self._value(edge, held.numbers[parent])) for held in rows]
        valued = [(held, value) for held, value in valued if None not in value]
        if self._bounds.pay:
            best = self._bounds.best_of(relation, bitmap) if bitmap else None
            hopeful = list(self._hopeful(tree, edge, valued, best, size))
            self._bounds.tried(len(valued), len(valued) - len(hopeful))
            valued = hopeful
        led = self._led(edge, bitmap, dict.fromkeys(value for _, value in valued))
        alike = [node for node, other in enumerate(tree.relations[:-1]) if other == relation]
        found = (
            JoinedRows(held.bound, (*held.numbers, partner), held.fans, held.weights)
            for held, value in valued
            for partner in led.get(value, ())
            if all(held.numbers[node] != partner for node in alike)
        )
        return self._weighed(tree, memory_checked(found), size) if bitmap else list(memory_checked(found))

    def _hopeful(
        self,
        tree: Tree,
        edge: Edge,
        valued: Sequence[tuple[JoinedRows, JoinValue]],
        best: Weights | None,
        size: int,
    ) -> Iterator[tuple[JoinedRows, JoinValue]]:
        """The rows that may lead to a wanted result, with values and fans of a new join.

        ``best``: the keywords' greatest weights in the new node, None if it contains no keyword.
        """
        bounds, of_rows = self._bounds, self._bounds.of_rows(tree, size)
        least, counted = bounds.least, bounds.uses_joins
        weighty = [(self._with_weights(tree, held), value) for held, value in valued]
        # Rows that are hopeless with any fan need no count.
        valued = [
            (held, value)
            for held, value in weighty
            if of_rows(_most(held.weights, best) if best else held.weights, held.fans) >= least
        ]
        shared = self._probes.fans(edge, {value for _, value in valued}) if counted else {}
        for held, value in valued:
            fans = (*held.fans, shared[value]) if counted else ()
            bound = of_rows(_most(held.weights, best) if best else held.weights, fans)
            if bound >= least:
                yield JoinedRows(bound, held.numbers, fans, held.weights), value

    def _with_weights(self, tree: Tree, held: JoinedRows) -> JoinedRows:
        """The rows with the weights of their keywords."""
        if held.weights:
            return held
        nodes = zip(tree.relations, tree.keywords, held.numbers, strict=False)  # the tree has a new node
        weights = [self._keyword_rows.weights(relation, n) for relation, keywords, n in nodes if keywords]
        return held._replace(weights=tuple(map(max, zip(*weights, strict=True))))

    def _weighed(self, tree: Tree, rows: Iterator[JoinedRows], size: int) -> list[JoinedRows]:
        """Rows with weights, the last of which contains keywords; without pruned ones."""
        if not self._bounds.known:
            return list(rows)
        found, of_rows, least = [], self._bounds.of_rows(tree, size), self._bounds.least
        for held in rows:
            weights = self._keyword_rows.weights(tree.relations[-1], held.numbers[-1])
            if held.weights:
                weights = _most(held.weights, weights)
            elif len(held.numbers) > 1:
                weights = self._with_weights(tree, held).weights
            bound = of_rows(weights, held.fans)
            if bound >= least:
                found.append(JoinedRows(bound, held.numbers, held.fans, weights))
        return found

    def _scored(self, tree: Tree, rows: list[JoinedRows], size: int) -> list[JoinedRows]:
        """Rows of results, best first: bounds are scores, up to rounding."""
        if not self._bounds.known or not rows:
            return rows
        fans: list[tuple[Fans, ...]] = []
        if self._bounds.uses_joins:
            fans = list(zip(*(self._fans_at(tree, rows, node) for node in range(1, size)), strict=True))
        of_rows = self._bounds.of_rows(tree, size)
        scored = []
        for number, each in enumerate(rows):
            held = self._with_weights(tree, each)
            shared = fans[number] if fans else ()
            scored.append(JoinedRows(of_rows(held.weights, shared), held.numbers, shared, held.weights))
        return sorted(scored, key=_BOUND, reverse=True)

    def _fans_at(self, tree: Tree, rows: list[JoinedRows], node: int) -> list[Fans]:
        """For each result the fans of the join to a node."""
        edge, parent = self._edges[tree.edges[node]], tree.parents[node]
        values = [self._value(edge, held.numbers[parent]) for held in rows]
        shared = self._probes.fans(edge, set(values))
        return [shared[value] for value in values]

    def _led(self, edge: Edge, bitmap: int, values: dict[JoinValue, None]) -> dict[JoinValue, list[int]]:
        """The partners of values, with exactly the keywords of a bitmap."""
        if bitmap != self._keyword_rows.usual(edge.target):
            return self._indexed(edge, bitmap)
        partners = self._probes.partners(edge, values)
        return {value: self._keyword_rows.unlabelled(edge.target, partners[value]) for value in values}

    def _indexed(self, edge: Edge, bitmap: int) -> dict[JoinValue, list[int]]:
        """Rows with exactly the keywords of a bitmap, by join value; few, so the index is not used."""
        key = edge.target, bitmap, edge.target_columns
        rows_by_value = self._by_value.get(key)
        if rows_by_value is None:
            rows_by_value = self._by_value[key] = {}
            for number in self._keyword_rows.carrying(edge.target, bitmap):
                row = self._keyword_rows.row(edge.target, number)
                rows_by_value.setdefault(tuple(row[c] for c in edge.target_columns), []).append(number)
        return rows_by_value

    def _value(self, edge: Edge, number: int) -> JoinValue:
        row = self._keyword_rows.row(edge.source, number)
        return tuple(row[column] for column in edge.source_columns)


def _most(one: Weights, other: Weights) -> Weights:
    return tuple(map(max, one, other))
