"""By live tuple: the tuples that it joins.

Walks pass each pair of joined tuples many times. A pair is looked for by join
value once, when the later of the two comes. Where tuples join so many others
that pairs would take too much memory, walks look them up each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from skws_mesh.columnar.columns import NOTHING, Ints, ranges, written
from skws_mesh.columnar.live import LeavingEdges, LiveTuples
from skws_mesh.columnar.store import Table
from skws_schema.graph import edges_from
from skws_schema.memory import check
from skws_schema.model import Schema

_MOST: Final = 32  # pairs for each tuple, of 16 bytes or a few times as many
_LEAST: Final = 1024
AT_ONCE: Final = 1024
"""Tuples whose neighbours are looked up together, as each may have very many."""
_SLOT: Final = (1 << 32) - 1


class Neighbours:
    """Lists of neighbours, each with space to grow.

    ``most``: pairs for each tuple, on average, beyond which none are kept. ``least``: tuples for which there
    is always space.
    """

    def __init__(self, live: LiveTuples, schema: Schema, most: int = _MOST, least: int = _LEAST) -> None:
        self._live = live
        self._leaving = LeavingEdges(edges_from(schema))
        self._most, self._least = most, least
        self._crowded = False
        self._lists = Table((NOTHING,) * 3)  # by slot: where its list begins, its length, and its space
        self._codes: Ints = NOTHING  # edges and slots
        self._used = 0
        self.pairs = 0
        """Pairs that are kept, those of dead tuples included."""

    def extend(self, live: int) -> Iterator[tuple[Ints, Ints]]:
        """Add the tuples up to slot ``live``; gives their pairs with earlier ones: two columns, in parts."""
        for begin in range(self._lists.size, live, AT_ONCE):
            new = np.arange(begin, min(live, begin + AT_ONCE), dtype=np.int64)
            none = np.zeros(len(new), dtype=np.int64)
            self._lists.append((none, none, none))
            position, edge, slots = self._looked_up(new)
            own = new.take(position)
            tuples = self._live.tuples
            start = np.maximum(tuples.start.take(own), tuples.start.take(slots))
            end = np.minimum(tuples.end.take(own), tuples.end.take(slots))
            kept = np.flatnonzero((slots < own) & (start < end))
            own, edge, slots = own.take(kept), edge.take(kept), slots.take(kept)
            if not self._crowded:
                self._add(
                    np.concatenate([own, slots]),
                    np.concatenate([edge, edge ^ 1]),
                    np.concatenate([slots, own]),
                )
            yield own, slots

    def of(self, slots: Ints) -> tuple[Ints, Ints, Ints]:
        """What tuples join, as (position in ``slots``, edge, slot), in order of positions.

        At least those at lower slots, or before the last that was added, which were alive together.
        """
        if self._crowded:
            position, edge, others = self._looked_up(slots)
            order = _order(position)
            return position.take(order), edge.take(order), others.take(order)
        first, counts, _ = self._lists.columns()
        lengths = counts.take(slots)
        codes = self._codes.take(ranges(first.take(slots), lengths))
        position = np.repeat(np.arange(len(slots), dtype=np.int64), lengths)
        return position, codes >> 32, codes & _SLOT

    def remap(self, slots: Ints) -> None:
        """Give tuples their new slots, which keep their order; tuples with negative ones go."""
        first, counts, _ = self._lists.columns()
        kept = np.flatnonzero(slots[: self._lists.size] >= 0)
        lengths = counts.take(kept)
        codes = self._codes.take(ranges(first.take(kept), lengths))
        others = slots.take(codes & _SLOT)
        there = others >= 0
        if not there.all():
            staying = np.concatenate([NOTHING, [0], np.cumsum(there)])
            ends = np.cumsum(lengths)
            lengths = staying.take(ends) - staying.take(ends - lengths)
            codes, others = codes[there], others[there]
        codes &= ~_SLOT
        codes |= others
        self._codes, self._used, self.pairs = codes, len(codes), len(codes)
        self._lists = Table((NOTHING,) * 3)
        self._lists.append((np.cumsum(lengths) - lengths, lengths, lengths))

    def _looked_up(self, slots: Ints) -> tuple[Ints, Ints, Ints]:
        """As ``of``, by join value and in any order: all live tuples."""
        row, edge = self._leaving.of(self._live.tuples.relation.take(slots))
        known, hashes = self._live.wanted(edge, slots.take(row))
        if not known.all():
            row, edge = row[known], edge[known]
        position, others = self._live.probe(hashes)
        check()
        row, edge = row.take(position), edge.take(position)
        agree = self._live.joined(edge, slots.take(row), others)
        if agree.all():  # as nearly always
            return row, edge, others
        return row[agree], edge[agree], others[agree]

    def _add(self, slots: Ints, edges: Ints, others: Ints) -> None:
        """Add what tuples join."""
        self.pairs += len(slots)
        if self.pairs > self._most * max(self._least, self._lists.size):
            self._crowded, self._codes, self.pairs = True, NOTHING, 0
            self._lists.columns()[1][:] = 0
            return
        order = _order(slots)
        slots, codes = slots.take(order), (edges << 32 | others).take(order)
        begins = np.flatnonzero(np.diff(slots, prepend=-1))
        lists, more = slots.take(begins), np.diff(begins, append=len(slots))
        first, counts, space = self._lists.columns()
        held = counts.take(lists)
        needed = held + more
        small = np.flatnonzero(needed > space.take(lists))
        self._move(lists.take(small), 2 * needed.take(small))
        self._codes[ranges(first.take(lists) + held, more)] = codes
        counts[lists] = needed

    def _move(self, lists: Ints, spaces: Ints) -> None:
        """Move lists to where they have more space."""
        first, counts, space = self._lists.columns()
        lengths = counts.take(lists)
        begins = self._used + np.cumsum(spaces) - spaces
        codes = self._codes.take(ranges(first.take(lists), lengths))
        free = np.zeros(int(spaces.sum()), dtype=np.int64)
        self._codes = written(self._codes, self._used, free)
        self._used += len(free)
        self._codes[ranges(begins, lengths)] = codes
        first[lists], space[lists] = begins, spaces


def _order(numbers: Ints) -> Ints:
    """Their stable order. Sorting numbers takes a fraction of the time of ``argsort``."""
    return np.sort(numbers << 32 | np.arange(len(numbers), dtype=np.int64)) & _SLOT
