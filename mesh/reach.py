"""How far a relation is from the next one that can carry a missing keyword."""

from __future__ import annotations

from collections.abc import Sequence

from schema.graph import Edge

UNREACHABLE = 1 << 20


class Reach:
    """Distances over a join graph, in nodes, to carriers of keywords; remembered per question.

    ``edges`` are those that leave each relation.
    """

    def __init__(self, edges: Sequence[Sequence[Edge]], searchable: Sequence[int]) -> None:
        self._edges = edges
        self._searchable = searchable
        self._known: dict[tuple[int, int], int] = {}

    def distance(self, relation: int, keywords: int) -> int:
        """Fewest nodes to add below a node of ``relation`` until one can carry any of ``keywords``."""
        key = (relation, keywords)
        if key not in self._known:
            self._known[key] = self._search(relation, keywords)
        return self._known[key]

    def _search(self, relation: int, keywords: int) -> int:
        seen: set[int] = set()
        frontier = {relation}
        for distance in range(1, len(self._edges) + 2):
            frontier = {e.target for r in frontier for e in self._edges[r]} - seen
            if any(self._searchable[r] & keywords for r in frontier):
                return distance
            seen |= frontier
        return UNREACHABLE
