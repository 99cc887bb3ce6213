"""Bags of runs, as persistent heaps by the start of the window they fit in (DS_w; PCEA paper, Section 5).

A node stands for a tuple with its mark, combined with every choice of one run
from each of its products; a heap of nodes for the union. The root starts
latest, so where a root has left the window all below it has.

The paper balances heaps by a direction bit, which leaves long paths where
starts rise and fall in turn. These are leftist: a right spine is never longer
than the logarithm of the size, and what starts latest goes on top in one step.
Path copying makes them persistent all the same.
"""

from __future__ import annotations

from typing import TypeAlias

# (start, left, right, rank, mark, products). ``start``: max-start of the paper, the latest tick at which
# a run of this node can have begun. ``rank``: nodes on the right spine. ``products``: for each source the
# heaps to choose a run from; a list, so that it can be emptied when all of its runs have expired.
Mark: TypeAlias = tuple[int, frozenset[str]]
Heaps: TypeAlias = "tuple[Node, ...]"
Node: TypeAlias = "tuple[int, Node | None, Node | None, int, Mark, list[Heaps] | None]"


def insert(heap: Node, node: Node, low: int) -> Node:
    """The union of a heap and a single node that starts before its root; expired parts are left out.

    ``low``: the first tick in the window. Time logarithmic in the heap.
    """
    start, *_, mark, products = node
    path = []
    rest: Node | None = heap
    while rest is not None and rest[0] > start:
        path.append(rest)
        rest = rest[2]
    grown = (start, rest, None, 1, mark, products) if rest is not None and rest[0] >= low else node
    for above in reversed(path):
        grown = _joined(above, grown, low)
    return grown


def _joined(above: Node, below: Node, low: int) -> Node:
    """A copy of ``above`` with another right side, or left if that is now the shorter one."""
    start, left, _, _, mark, products = above
    if left is None or left[0] < low:
        return (start, below, None, 1, mark, products)
    if left[3] >= below[3]:
        return (start, left, below, below[3] + 1, mark, products)
    return (start, below, left, left[3] + 1, mark, products)
