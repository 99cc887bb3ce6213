"""How many live tuples share the joined values of others."""

from __future__ import annotations

import numpy as np

from skws_mesh.columnar.columns import NOTHING, Ints
from skws_mesh.columnar.live import LiveTuples


def fans(live: LiveTuples, edge: Ints, member: Ints, instant: Ints) -> Ints:
    """For each edge walked from a live tuple: how many tuples it leads to that are alive at an instant.

    Tuples are found by the index that joins use, once for each distinct value.
    """
    counts = np.zeros(len(edge), dtype=np.int64)
    known, hashes = live.wanted(edge, member)
    asked = np.flatnonzero(known)
    if live.reserve is not None:
        values = live.tuples.keys[member[asked], live.key_sets.source[edge[asked]]]
        kept_there, there = live.reserve.counted(edge[asked], values)
        counts[asked[kept_there]] = there[kept_there]
        asked, hashes = asked[~kept_there], hashes[~kept_there]
    _, first, which = np.unique(hashes, return_index=True, return_inverse=True)
    at = instant[asked]
    if len(at) and (at == at[0]).all():  # as in a search
        counts[asked] = _alive(live, edge[asked[first]], member[asked[first]], at[0])[which]
        return counts
    starts, ends = _lifespans(live, edge[asked[first]], member[asked[first]])
    order = np.argsort(which, kind="stable")
    borders = np.searchsorted(which[order], np.arange(len(first) + 1))
    for value, (begin, end) in enumerate(zip(starts, ends, strict=True)):
        mine = asked[order[borders[value] : borders[value + 1]]]
        at = instant[mine]
        counts[mine] = np.searchsorted(begin, at, side="right") - np.searchsorted(end, at, side="right")
    return counts


def _alive(live: LiveTuples, edge: Ints, member: Ints, instant: int) -> Ints:
    """How many tuples that are alive at an instant each edge leads to from its member."""
    position, slot = reached(live, edge, member)
    alive = (live.tuples.start.take(slot) <= instant) & (live.tuples.end.take(slot) > instant)
    return np.bincount(position.compress(alive), minlength=len(edge))


def _lifespans(live: LiveTuples, edge: Ints, member: Ints) -> tuple[list[Ints], list[Ints]]:
    """The starts, and the ends, of the tuples that each edge leads to from its member, sorted."""
    if not len(edge):
        return [], []
    position, slot = reached(live, edge, member)
    tuples = live.tuples
    # A tuple that ends before it starts was never alive.
    lived = tuples.end[slot] > tuples.start[slot]
    position, slot = position[lived], slot[lived]
    return _by_group(position, tuples.start[slot], len(edge)), _by_group(
        position, tuples.end[slot], len(edge)
    )


def reached(live: LiveTuples, edge: Ints, member: Ints) -> tuple[Ints, Ints]:
    """The tuples that edges lead to from members with a value there: for each, the edge's number and a slot.

    They may have ended.
    """
    _, hashes = live.wanted(edge, member)
    position, slot = live.probe(hashes)
    true = live.joined(edge[position], member[position], slot)
    return position[true], slot[true]


def _by_group(group: Ints, values: Ints, groups: int) -> list[Ints]:
    if not len(group):
        return [NOTHING] * groups
    order = np.lexsort((values, group))
    borders = np.searchsorted(group[order], np.arange(1, groups))
    return np.split(values[order], borders)
