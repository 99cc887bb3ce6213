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
    window, so there is no recursion.
    """
    if not node[5]:
        yield (node[4],)
        return
    chosen: _Chosen = (node[4], None)
    choices = _together(node[5], None)
    # Nodes to try with what is chosen before the choices left; or no node, where the choices are next.
    waiting: list[tuple[Node | None, _Chosen, _Choices | None]] = [(None, chosen, choices)]
    while waiting:
        tried, chosen, choices = waiting.pop()
        if tried is not None:
            _, left, right, _, mark, products = tried
            if left is not None and left[0] >= low:
                waiting.append((left, chosen, choices))
            if right is not None and right[0] >= low:
                waiting.append((right, chosen, choices))
            chosen = (mark, chosen)
            if products:
                choices = _together(products, choices)
        assert choices is not None  # noqa: S101 - nodes are tried only where choices are left
        heaps, rest = choices
        if rest is not None:
            waiting.extend([(heap, chosen, rest) for heap in heaps if heap[0] >= low])
            continue
        # The last choice: most of the time is spent here.
        start = _listed(chosen)
        members = [heap for heap in heaps if heap[0] >= low]
        while members:
            _, left, right, _, mark, products = members.pop()
            if left is not None and left[0] >= low:
                members.append(left)
            if right is not None and right[0] >= low:
                members.append(right)
            if products:
                waiting.append((None, (mark, chosen), _together(products, None)))
            else:
                yield (mark, *start)


def by_label(valuation: Valuation) -> dict[str, frozenset[int]]:
    """The positions that each label marks."""
    marked: dict[str, frozenset[int]] = {}
    for position, labels in valuation:
        for label in labels:
            marked[label] = marked.get(label, frozenset()) | {position}
    return marked


def _together(products: list[Heaps], rest: _Choices | None) -> _Choices | None:
    for heaps in products:
        rest = (heaps, rest)
    return rest


def _listed(chosen: _Chosen) -> Valuation:
    marks = []
    cell: _Chosen | None = chosen
    while cell is not None:
        mark, cell = cell
        marks.append(mark)
    return tuple(marks)
