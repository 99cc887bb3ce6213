"""How many valuations a node stands for, without forming them.

Runs share what they have in common, so each heap node is counted once: the
time is linear in what is kept, while the count may have hundreds of digits.
"""

from __future__ import annotations

from patterns.evaluation.heap import Heaps, Node


def count(node: Node, low: int) -> int:
    """The number of valuations from tick ``low`` on, apart from the heap below the node."""
    known: dict[int, int] = {}
    total = 1
    for heaps in node[5] or ():
        total *= sum(_runs(heap, low, known) for heap in _alive(heaps, low))
    return total


def _runs(heap: Node, low: int, known: dict[int, int]) -> int:
    """How many runs are in a heap; ``known`` by the identity of nodes, which the caller keeps alive."""
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
