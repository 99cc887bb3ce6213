"""Upper bounds of the ranks of a search's results, so that most results need not be scored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from skws.ranking.rankings import Floats, Product, log_of_fans
from skws.ranking.text_statistics import fans
from skws.results.result import Rank
from skws_mesh.columnar.columns import NOTHING, Flags, Ints, cells, kinds_of
from skws_mesh.columnar.live import LiveTuples
from skws_mesh.columnar.store import Partials
from skws_mesh.tree import Tree
from skws_purging.lifespans import ALWAYS
from skws_windows.window import MICROSECOND

_SURE: Final = 1 + 1e-9  # bounds and scores are computed in a different order


class UpperBounds:
    """Upper bounds of the results of a search among live tuples, in the order of ranks.

    ``weights``: the weight of each keyword in each live tuple, one column per tuple, then a column of zeros;
    ``heaviest``: the greatest weight of each keyword. ``times``: by slot. Joins are counted at the tick
    ``latest``.
    """

    def __init__(
        self,
        ranking: Product,
        half_life: float | None,
        weights: Floats,
        heaviest: Floats,
        live: LiveTuples,
        times: Ints,
        latest: int,
    ) -> None:
        self.weights = weights
        self._heaviest = heaviest
        self._ranking = ranking
        self._live = live
        self._times = times
        self._latest = latest
        self._streaming = live.tuples.start != ALWAYS
        fades = half_life is not None
        self.tier = -1 if fades and not self._streaming.any() else 0
        """The tier of the ranks; in a stream, results of static tuples alone are in the tier below."""
        self._half_life = None if self.tier else half_life

    def is_alive(self, slots: Ints) -> Flags:
        """A flag for each tuple that counts when joins are counted."""
        tuples = self._live.tuples
        is_alive: Flags = (tuples.start.take(slots) <= self._latest) & (tuples.end.take(slots) > self._latest)
        return is_alive

    def of_size(self, size: int) -> Rank:
        """The bound of results with ``size`` tuples or more."""
        return self.tier, float(self.of_weights(self._heaviest.sum(keepdims=True), np.array([size]))[0])

    def of_weights(self, weights: Floats, sizes: Ints, specific: Floats | None = None) -> Floats:
        """The bounds of results from their keyword weights, sizes, and part ``specificity``."""
        newest = 0.0
        if self._half_life is not None:
            newest = int(self._times.max(initial=0)) / MICROSECOND / self._half_life
        return self._orders(weights, sizes, specific) + newest

    def of(
        self, results: Partials, tree: Callable[[tuple[int, int, list[int]]], Tree] | None = None
    ) -> Floats:
        """The bound of each result.

        ``tree``: the tree of a row; if given, joins are counted, which takes longer.
        """
        weights = np.zeros(len(results))
        for keyword in self.weights:
            greatest = keyword.take(results.members[:, 0])
            for members in results.members.T[1:]:  # faster than a maximum along short rows
                np.maximum(greatest, keyword.take(members), out=greatest)
            weights += greatest
        specific = None
        if tree is not None and self._ranking.uses_joins:
            specific = self._specific(results, tree)
        orders = self._orders(weights, results.sizes, specific)
        if self._half_life is None:
            return orders
        newest, _ = self._newest(results.members)
        return np.where(newest == ALWAYS, np.inf, orders + newest / MICROSECOND / self._half_life)

    def orders_of(self, members: Ints, weights: Floats, specific: Floats) -> Floats:
        """The orders of results, except for rounding; minus infinity in the tier below.

        ``members``: slots, a row for each result, all of one size.
        """
        sizes = np.full(len(members), members.shape[1])
        orders = self._orders(weights, sizes, specific)
        if self._half_life is None:
            return orders
        newest, is_streaming = self._newest(members)
        ages = (newest[:, None] - self._times[members]) / MICROSECOND
        freshness = np.where(is_streaming, 0.5 ** (np.maximum(ages, 0) / self._half_life), 0.0).sum(axis=1)
        with np.errstate(divide="ignore"):
            log_freshness = np.log2(freshness / np.maximum(1, is_streaming.sum(axis=1)))
        faded = log_freshness if self._ranking.fades else 0.0
        return np.where(newest == ALWAYS, -np.inf, orders + faded + newest / MICROSECOND / self._half_life)

    def _newest(self, members: Ints) -> tuple[Ints, Flags]:
        """The time of each result's newest stream tuple, or ALWAYS; and a flag for each stream tuple."""
        is_streaming = (members >= 0) & self._streaming[members]
        return np.where(is_streaming, self._times[members], ALWAYS).max(axis=1, initial=ALWAYS), is_streaming

    def _orders(self, weights: Floats, sizes: Ints, specific: Floats | None) -> Floats:
        with np.errstate(divide="ignore"):
            orders: Floats = np.log2(self._ranking.most(weights, sizes, specific) * _SURE)
        return orders

    def _specific(self, results: Partials, tree: Callable[[tuple[int, int, list[int]]], Tree]) -> Floats:
        """The part ``specificity`` of each result."""
        edge_count = len(self._live.key_sets.source)
        first_rows, kinds = kinds_of(results.operator)
        trees = list(map(tree, results.take(first_rows).rows()))
        width = results.members.shape[1]
        edges, parents = (
            np.array([column + (-1,) * (width - len(column)) for column in columns], dtype=np.int64)
            for columns in ([each.edges for each in trees], [each.parents for each in trees])
        )
        rows_by_node: list[Ints] = []
        pairs: list[Ints] = []
        for node in range(1, width):
            edge = edges[:, node].take(kinds)
            rows = np.flatnonzero(edge >= 0)
            edge = edge.take(rows)
            parent_members = cells(results.members, rows, parents[:, node].take(kinds.take(rows)))
            members = results.members[:, node].take(rows)
            rows_by_node.append(rows)
            pairs += [parent_members * edge_count + edge, members * edge_count + (edge ^ 1)]
        # A tuple and an edge occur in many results: each pair is counted once.
        all_pairs = np.concatenate([NOTHING, *pairs])
        first, pair_numbers = kinds_of(all_pairs)
        member, edge_ids = np.divmod(all_pairs.take(first), edge_count)
        counts = fans(self._live, edge_ids, member, np.full(len(first), self._latest))
        logs = log_of_fans(counts)
        total, offset = np.zeros(len(results)), 0
        busiest = np.zeros((len(results), width))  # by node, the part of its largest fan
        for node, rows in enumerate(rows_by_node, 1):
            near_pairs, far_pairs = (
                pair_numbers[offset : offset + len(rows)],
                pair_numbers[offset + len(rows) : offset + 2 * len(rows)],
            )
            for end_nodes, end_pairs in (
                (parents[:, node].take(kinds.take(rows)), near_pairs),
                (node, far_pairs),
            ):
                weights = logs.take(end_pairs)
                total[rows] += weights
                busiest[rows, end_nodes] = np.minimum(busiest[rows, end_nodes], weights)
            offset += 2 * len(rows)
        parts: Floats = np.exp(total - busiest.sum(axis=1))
        return parts
