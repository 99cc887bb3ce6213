"""Bags of runs, as persistent heaps by the start of the window they fit in (DS_w; PCEA paper, Section 5).

A node stands for a tuple with its mark, combined with every choice of one run
from each of its products; a heap of nodes for the union. The root starts
latest, so where a root has left the window everything below it has.

The paper balances heaps by a direction bit, which leaves long paths where
starts rise and fall in turn. These heaps are leftist: a right spine is never
longer than the logarithm of the size, and the node that starts latest goes on
top in one step. Path copying keeps them persistent.

``valuations`` enumerates (Theorem 5.2): every node that is visited is in the
window and has a run to give, so the delay between two valuations is linear in
the valuation. ``count`` counts each shared node once: its time is linear in the
nodes that are kept, while the count may have hundreds of digits.
"""

from __future__ import annotations

from collections.abc import Iterator
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


Valuation: TypeAlias = tuple[Mark, ...]

# Lists that share their tails: the marks chosen so far, and the choices still to make.
_Chosen: TypeAlias = "tuple[Mark, _Chosen | None]"
_Choices: TypeAlias = "tuple[Heaps, _Choices | None]"


def valuations(node: Node, low: int) -> Iterator[Valuation]:
    """The valuations of a node, without those of the heap below it, from tick ``low`` on.

    A valuation is the marked positions with their labels, in no particular
    order. Untried choices wait on a stack: a run may be as long as the window,
    so there is no recursion. Each entry of the stack still has nodes to try, so
    every entry taken leads to a valuation at once.
    """
    choices = _together(node[5], None)
    if choices is None:
        yield (node[4],)
        return
    # Nodes to try for one choice, the marks chosen before it, and the choices after it.
    waiting: list[tuple[list[Node], _Chosen, _Choices | None]] = []
    chosen: _Chosen = (node[4], None)
    while True:
        heaps, rest = choices
        waiting.append(([heap for heap in heaps if heap[0] >= low], chosen, rest))
        choices = None
        while choices is None:  # until a chosen node leaves further choices
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


def count(node: Node, low: int) -> int:
    """The number of valuations of a node from tick ``low`` on, without those of the heap below it."""
    known: dict[int, int] = {}
    total = 1
    for heaps in node[5] or ():
        total *= sum(_runs(heap, low, known) for heap in _alive(heaps, low))
    return total


def _runs(heap: Node, low: int, known: dict[int, int]) -> int:
    """The number of runs in a heap; ``known`` is by the identity of nodes, which the caller keeps alive."""
    waiting = [heap]
    while waiting:
        node = waiting[-1]
        sides = [side for side in (node[1], node[2]) if side is not None and side[0] >= low]
        products = [_alive(heaps, low) for heaps in node[5] or ()]
        missing = [n for n in sides if id(n) not in known]
        missing += [n for heaps in products for n in heaps if id(n) not in known]
        if missing:
            waiting += missing
            continue
        own = 1
        for heaps in products:
            own *= sum(known[id(n)] for n in heaps)
        known[id(node)] = own + sum(known[id(side)] for side in sides)
        waiting.pop()
    return known[id(heap)]


def _alive(heaps: Heaps, low: int) -> list[Node]:
    return [heap for heap in heaps if heap[0] >= low]
