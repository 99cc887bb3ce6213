"""The forest: one left-deep operator tree for each candidate network (S-KWS paper, Section 3.3).

Trees share the sources, that is the live tuples, but no join and no buffer of
one. It is the paper's baseline.
"""

from __future__ import annotations

from mesh.generate import CNGen
from mesh.paper.full import FullMesh
from mesh.paper.purge import PurgePolicy
from mesh.tree import Tree
from windows.window import Window


class Forest(FullMesh):
    """Every candidate network on its own."""

    def __init__(self, generator: CNGen, window: Window, policy: PurgePolicy) -> None:
        self._planted: set[Tree] = set()
        self._next = 0
        super().__init__(generator, window, policy)

    def _grow(self) -> None:
        wanted = set(self.generator.networks())
        for tree in wanted - self._planted:
            self._weave(tree, self._next)
            self._next += 1
        self._planted = wanted
