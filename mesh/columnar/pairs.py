"""Pairs of a partial result and a tuple: which of them are partial results again."""

from __future__ import annotations

import numpy as np

from mesh.columnar.columns import Flags, Ints, mixed
from mesh.columnar.labels import Labels
from mesh.columnar.live import LiveTuples
from mesh.columnar.runs import PAIRS
from mesh.columnar.store import Partials
from mesh.columnar.table import NONE, OperatorTable
from mesh.sequence import FREE


class Pairs:
    """Joins pairs over live tuples, their labels and the operators of a mesh.

    ``in_order``: keywords are to come in an order.
    """

    def __init__(
        self, live: LiveTuples, labels: Labels, operators: OperatorTable, *, width: int, in_order: bool
    ) -> None:
        self._live = live
        self._labels = labels
        self._operators = operators
        self._width = width
        self._in_order = in_order

    def joined(self, partials: Partials, groups: Ints, places: Ints, partners: Ints) -> Partials:
        """Partials joined with a tuple each, where that is wanted, new to them, and alive with them.

        ``groups``, ``places`` and ``partners`` tell of each pair the group, and
        where the partial and the tuple stand.
        """
        tuples = self._live.tuples
        start = np.maximum(partials.start.take(places), tuples.start.take(partners))
        end = np.minimum(partials.end.take(places), tuples.end.take(partners))
        kept = np.flatnonzero(start < end)  # of many pairs one is dead: this rules out most for least
        places, partners = places.take(kept), partners.take(kept)
        query = partials.query.take(places).astype(np.int64, copy=False)
        labels = self._labels.of(query, partners)
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
        """Which partners came before and after those members that their keywords ask it of."""
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
        """Leave out what only the leading bits of hashes held for joined, and what they gave twice."""
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
