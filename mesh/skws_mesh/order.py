"""The order in which CNGen visits nodes of the expanded schema (S-KWS paper, Sections 3.2 and 3.3).

Any total order gives the same candidate networks. The paper advises the
rarest keyword for the roots and nodes with many keywords first, since both
keep the left inputs of a left-deep operator small. Nodes that come with a
change of the schema rank below all older ones (Section 4.4), which leaves the
trees of old operators as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

# Far above a rank by keywords, and far below the step from depth to depth of a tree's code.
_GENERATION = 1 << 36
_MOST_GENERATIONS = 8  # those that come later share the last: any order of new nodes among each other will do
_NEVER_SEEN = 1e-9


@dataclass(frozen=True, slots=True)
class NodeOrder:
    """Ranks of the nodes; the highest is visited first.

    ``root_keyword`` is the position of the keyword that every root contains.
    ``grown`` holds the numbers of (relations, joins) before each change of the schema.
    """

    slots: int
    root_keyword: int
    keyword_ranks: tuple[int, ...]
    grown: tuple[tuple[int, int], ...] = ()

    @classmethod
    def default(
        cls,
        slots: int,
        frequencies: Sequence[float] | None = None,
        grown: tuple[tuple[int, int], ...] = (),
    ) -> NodeOrder:
        """Many keywords first, then rare ones when ``frequencies`` (one a keyword) are known.

        Roots contain the rarest keyword, or else the first.
        """
        rarest = min(range(slots), key=lambda s: frequencies[s]) if frequencies else 0
        rarity = [-log(max(f, _NEVER_SEEN)) for f in frequencies] if frequencies else [0.0] * slots
        weight = [sum(rarity[s] for s in range(slots) if k >> s & 1) for k in range(1 << slots)]
        by_rank = sorted(range(1 << slots), key=lambda k: (k.bit_count(), weight[k], -k))
        ranks = [0] * (1 << slots)
        for rank, keywords in enumerate(by_rank):
            ranks[keywords] = rank
        return cls(slots, rarest, tuple(ranks), grown)

    def root_rank(self, relation: int, keywords: int) -> int:
        """Rank of a node as a root; higher ranks are processed, and removed, earlier."""
        rank = (self.keyword_ranks[keywords] << 20) - relation
        return rank - self._generation(relation, 0) * _GENERATION if self.grown else rank

    def label(self, edge: int, keywords: int) -> int:
        """Rank of a child among its siblings: first by keywords, then by the edge that leads to it."""
        rank = (self.keyword_ranks[keywords] << 20) + edge
        return rank - self._generation(edge // 2, 1) * _GENERATION if self.grown else rank

    def _generation(self, position: int, which: int) -> int:
        """The number of changes before a relation (``which`` 0) or join (1) was there."""
        return sum(position >= sizes[which] for sizes in self.grown[:_MOST_GENERATIONS])
