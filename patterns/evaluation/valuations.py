"""From nodes to valuations, one after the other (PCEA paper, Theorem 5.2).

Every heap node that is visited is in the window and so has a run to give: the
delay between two valuations is linear in the valuation, however many there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from patterns.evaluation.heap import Heaps, Mark, Node

Valuation: TypeAlias = tuple[Mark, ...]


def valuations(node: Node, low: int) -> Iterator[Valuation]:
    """The valuations that a node stands for, apart from the heap below it, from tick ``low`` on.

    A valuation is the marked positions with their labels, the last tuple first.
    """
    start = (node[4],)
    return _combined(start, node[5], 0, low) if node[5] else iter((start,))


def by_label(valuation: Valuation) -> dict[str, frozenset[int]]:
    """The positions that each label marks."""
    marked: dict[str, frozenset[int]] = {}
    for position, labels in valuation:
        for label in labels:
            marked[label] = marked.get(label, frozenset()) | {position}
    return marked


def count(node: Node, low: int) -> int:
    """How many valuations there are: without forming them, in the time of reading each heap once."""
    total = 1
    for heaps in node[5] or ():
        found = 0
        waiting = [heap for heap in heaps if heap[0] >= low]
        while waiting:
            member = waiting.pop()
            found += count(member, low) if member[5] else 1
            waiting += [side for side in (member[1], member[2]) if side is not None and side[0] >= low]
        total *= found
    return total


def _combined(so_far: Valuation, products: Sequence[Heaps], place: int, low: int) -> Iterator[Valuation]:
    """What there is so far, with a run from each product from a place on.

    The heap is walked here and once more in the next product for every run of
    this one: what is found is given at once, so nothing is gathered first.
    """
    last = place + 1 == len(products)
    waiting = [heap for heap in products[place] if heap[0] >= low]
    while waiting:
        _, left, right, _, mark, below = waiting.pop()
        if left is not None and left[0] >= low:
            waiting.append(left)
        if right is not None and right[0] >= low:
            waiting.append(right)
        if below:
            for run in _combined((*so_far, mark), below, 0, low):
                if last:
                    yield run
                else:
                    yield from _combined(run, products, place + 1, low)
        elif last:
            yield (*so_far, mark)
        else:
            yield from _combined((*so_far, mark), products, place + 1, low)
