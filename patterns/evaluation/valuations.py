"""From nodes to valuations, one after the other (PCEA paper, Theorem 5.2).

Every heap node that is visited is in the window and so has a run to give: the
delay between two valuations is linear in the valuation, however many there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from patterns.evaluation.heap import Heaps, Mark, Node

Valuation: TypeAlias = tuple[Mark, ...]

# Lists that share their tails: what has been chosen, and what is still to be chosen from.
_Chosen: TypeAlias = "tuple[Mark, _Chosen | None]"
_Choices: TypeAlias = "tuple[Heaps, _Choices | None]"


def valuations(node: Node, low: int) -> Iterator[Valuation]:
    """The valuations that a node stands for, apart from the heap below it, from tick ``low`` on.

    A valuation is the marked positions with their labels, in no particular
    order. What is not yet tried waits on a stack: a run may be as long as the
    window, so there is no recursion. Each entry of the stack still has nodes to
    try, so whatever is taken from it leads to a valuation at once.
    """
    choices = _together(node[5], None)
    if choices is None:
        yield (node[4],)
        return
    # Nodes to try for one choice, what is chosen before it, and the choices after it.
    waiting: list[tuple[list[Node], _Chosen, _Choices | None]] = []
    chosen: _Chosen = (node[4], None)
    while True:
        heaps, rest = choices
        waiting.append(([heap for heap in heaps if heap[0] >= low], chosen, rest))
        choices = None
        while choices is None:  # until a node is chosen after which others are to be
            if not waiting:
                return
            members, chosen, rest = waiting.pop()
            start = None if rest else _listed(chosen)
            while members:
                _, left, right, _, mark, products = members.pop()
                if left is not None and left[0] >= low:
                    members.append(left)
                if right is not None and right[0] >= low:
                    members.append(right)
                if start is None or products:
                    if members:
                        waiting.append((members, chosen, rest))
                    chosen = (mark, chosen)
                    choices = _together(products, rest)
                    break
                yield (mark, *start)


def by_label(valuation: Valuation) -> dict[str, frozenset[int]]:
    """The positions that each label marks."""
    marked: dict[str, frozenset[int]] = {}
    for position, labels in valuation:
        for label in labels:
            marked[label] = marked.get(label, frozenset()) | {position}
    return marked


def _together(products: list[Heaps] | None, rest: _Choices | None) -> _Choices | None:
    for heaps in products or ():
        rest = (heaps, rest)
    return rest


def _listed(chosen: _Chosen) -> Valuation:
    marks = []
    cell: _Chosen | None = chosen
    while cell is not None:
        mark, cell = cell
        marks.append(mark)
    return tuple(marks)
