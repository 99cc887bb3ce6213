"""Pairs of a partial result and a tuple: which of them are partial results again."""

from __future__ import annotations

import numpy as np

from skws_mesh.columnar.bitmaps import LiveBitmaps
from skws_mesh.columnar.columns import Flags, Ints, mixed
from skws_mesh.columnar.hash_index import PAIRS
from skws_mesh.columnar.live import LiveTuples
from skws_mesh.columnar.operators import NONE, OperatorTable
from skws_mesh.columnar.store import Partials
from skws_mesh.sequence import FREE


class Pairs:
    """Joins pairs over live tuples, their keyword bitmaps and the operators of a mesh.

    ``in_order``: keywords are to come in an order.
    """

    def __init__(
        self, live: LiveTuples, bitmaps: LiveBitmaps, operators: OperatorTable, *, width: int, in_order: bool
    ) -> None:
        self._live = live
        self._bitmaps = bitmaps
        self._operators = operators
        self._width = width
        self._in_order = in_order

    def joined(self, partials: Partials, groups: Ints, places: Ints, partners: Ints) -> Partials:
        """Each partial joined with its tuple, where an operator takes it and all are alive together.

        ``groups``, ``places`` and ``partners`` hold for each pair the group, and
        the places of the partial and the tuple.
        """
        tuples = self._live.tuples
        start = np.maximum(partials.start.take(places), tuples.start.take(partners))
        end = np.minimum(partials.end.take(places), tuples.end.take(partners))
        kept = np.flatnonzero(start < end)  # in many pairs one side is dead: the cheapest test rules out most
        places, partners = places.take(kept), partners.take(kept)
        query = partials.query.take(places).astype(np.int64, copy=False)
        labels = self._bitmaps.of(query, partners)
        operators = self._operators.next(groups.take(kept).astype(np.int64, copy=False), labels)
        members = partials.members.take(places, axis=0)
        wanted = operators != NONE
        for node in range(self._width - 1):
            wanted &= members[:, node] != partners
        chosen = np.flatnonzero(wanted)
        if self._in_order:
            chosen = chosen[self._in_sequence(operators[chosen], members[chosen], partners[chosen])]
        operators, kept = operators.take(chosen), kept.take(chosen)
        members = members.take(chosen, axis=0).astype(np.int64, copy=False)
        members[np.arange(len(chosen)), self._operators.size(operators) - 1] = partners.take(chosen)
        return Partials(query.take(chosen), operators, members, start.take(kept), end.take(kept))

    def _in_sequence(self, operators: Ints, members: Ints, partners: Ints) -> Flags:
        """Which partners are in order with the members, by their keywords."""
        tuples, ranks = self._live.tuples, self._operators.ranks(operators)
        rank = ranks[np.arange(len(ranks)), self._operators.size(operators) - 1][:, None]
        start, other = tuples.start[partners][:, None], tuples.start[members]
        later = (start > other) | (
            (start == other) & (tuples.place[partners][:, None] > tuples.place[members])
        )
        unordered = (rank == FREE) | (ranks == FREE) | (ranks == rank)
        agree: Flags = (unordered | (later == (rank > ranks))).all(axis=1)
        return agree

    def truly_joined(self, results: Partials) -> Partials:
        """Drop results joined by the leading bits of hashes alone, and duplicates that come of it."""
        true = np.concatenate([np.empty(0, dtype=bool), *map(self._agree, results.parts(PAIRS))])
        return _distinct(results if true.all() else results.taken(true))

    def _agree(self, results: Partials) -> Flags:
        """Which results agree on all of their joins."""
        true = np.ones(len(results), dtype=bool)
        for node in range(1, self._width):
            parents, edges = self._operators.joins(results.operator, node)
            there = np.flatnonzero(edges != NONE)
            source = results.members[there, parents[there]]
            true[there] &= self._live.joined(edges[there], source, results.members[there, node])
        return true


def _distinct(results: Partials) -> Partials:
    """Each result once: where two join values of a tuple begin alike, an index gives the tuple twice."""
    codes = mixed(results.operator.view(np.uint64), results.query)
    for slots in results.members.T:
        codes = mixed(codes, np.ascontiguousarray(slots))
    codes.sort()
    if not (codes[1:] == codes[:-1]).any():
        return results
    rows = np.column_stack([results.query, results.operator, results.members])
    _, first = np.unique(rows, axis=0, return_index=True)
    return results.taken(np.sort(first))
