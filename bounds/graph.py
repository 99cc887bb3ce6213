"""The dependency graph of a query: which of its nodes have to come before which (before Definition 8)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, eq=False)
class Graph:
    """``later``: for each node those that P+ tells to be later."""

    later: tuple[frozenset[int], ...]

    @cached_property
    def parents(self) -> tuple[frozenset[int], ...]:
        """For each node the later nodes with no other between; a tree if at most one everywhere."""
        return tuple(
            frozenset(p for p in later if not any(p in self.later[q] for q in later)) for later in self.later
        )

    @cached_property
    def component(self) -> tuple[int, ...]:
        """The least node of the connected component of each node."""
        least = list(range(len(self.later)))
        for _ in self.later:
            for node, later in enumerate(self.later):
                for other in (node, *later):
                    least[node] = least[other] = min(least[node], least[other])
        return tuple(least)

    @cached_property
    def _trees(self) -> frozenset[int]:
        torn = {self.component[node] for node, parents in enumerate(self.parents) if len(parents) > 1}
        return frozenset(self.component) - torn

    def is_tree(self, node: int) -> bool:
        """Whether the component of ``node`` is a tree (Theorem 1, C1)."""
        return self.component[node] in self._trees

    @cached_property
    def roots(self) -> tuple[int, ...]:
        """The nodes that nothing has to come after."""
        return tuple(n for n, parents in enumerate(self.parents) if not parents)

    def depth(self, node: int) -> int:
        """The distance of a node of a tree to its root."""
        (parent,) = self.parents[node] or (None,)
        return 0 if parent is None else 1 + self.depth(parent)

    def children(self, node: int) -> tuple[int, ...]:
        return tuple(n for n, parents in enumerate(self.parents) if node in parents)

    @cached_property
    def subtrees(self) -> tuple[frozenset[int], ...]:
        """Each node of a forest with all below it."""
        nodes = range(len(self.later))
        return tuple(frozenset(n for n in nodes if n == top or top in self.later[n]) for top in nodes)
