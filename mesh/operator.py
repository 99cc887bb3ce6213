"""Operators of the mesh: joins that extend a partial tree by one more tuple (S-KWS paper, Section 3.3).

The operator of tree t joins the output of the operator of t without its last
node with the source of that node. Operators with a common prefix share it,
and its buffer. An operator makes its successors when it first produces
output, and keeps them: almost none of a large mesh is ever touched.
"""

from __future__ import annotations

from mesh.generate import CNGen
from mesh.tree import Tree


class Wait:
    """What an operator's output waits for: a tuple joined to its member ``node`` through ``edge``.

    ``targets`` gives the operator that a match belongs to, by the match's keywords.
    """

    __slots__ = ("edge", "node", "targets")

    def __init__(self, node: int, edge: int) -> None:
        self.node = node
        self.edge = edge
        self.targets: dict[int, Operator] = {}


class Operator:
    """One node of the mesh. ``complete``: its output are results of the candidate network ``tree``."""

    __slots__ = ("_waits", "complete", "tree")

    def __init__(self, tree: Tree, complete: bool) -> None:
        self.tree = tree
        self.complete = complete
        self._waits: tuple[Wait, ...] | None = None

    @property
    def expanded(self) -> bool:
        """True once the operator has made its successors."""
        return self._waits is not None

    def waits(self, generator: CNGen) -> tuple[Wait, ...]:
        """What the output of this operator waits for; makes the successors at the first call."""
        if self._waits is None:
            self._waits = self._expand(generator)
        return self._waits

    def _expand(self, generator: CNGen) -> tuple[Wait, ...]:
        if self.complete:
            return ()
        waits: dict[tuple[int, int], Wait] = {}
        for tree, complete in generator.extensions(self.tree):
            node, edge = tree.parents[-1], tree.edges[-1]
            wait = waits.setdefault((node, edge), Wait(node, edge))
            wait.targets[tree.keywords[-1]] = Operator(tree, complete)
        return tuple(waits.values())

    def trim(self, generator: CNGen) -> bool:
        """Build all above this operator, drop what leads to no network; False if nothing is left."""
        if self.complete:
            return True
        kept = []
        for wait in self.waits(generator):
            wait.targets = {k: op for k, op in wait.targets.items() if op.trim(generator)}
            if wait.targets:
                kept.append(wait)
        self._waits = tuple(kept)
        return bool(kept)

    def count(self) -> int:
        """Number of operators made so far in this subtree, this one included."""
        return 1 + sum(op.count() for wait in self._waits or () for op in wait.targets.values())
