"""The order in which CNGen visits nodes of the expanded schema (S-KWS paper, Sections 3.2 and 3.3).

Any total order gives the same candidate networks. The paper advises the
rarest keyword for the roots and nodes with many keywords first, since both
keep the left inputs of a left-deep operator small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeOrder:
    """Ranks of the nodes; the highest is visited first.

    ``root_keyword`` is the position of the keyword that every root contains.
    """

    slots: int
    root_keyword: int
    keyword_ranks: tuple[int, ...]

    @classmethod
    def default(cls, slots: int, frequencies: Sequence[float] | None = None) -> NodeOrder:
        """Many keywords first; roots by the rarest keyword when ``frequencies`` (one a keyword) are known."""
        rarest = min(range(slots), key=lambda s: frequencies[s]) if frequencies else 0
        by_count = sorted(range(1 << slots), key=lambda k: (k.bit_count(), -k))
        ranks = [0] * (1 << slots)
        for rank, keywords in enumerate(by_count):
            ranks[keywords] = rank
        return cls(slots, rarest, tuple(ranks))

    def root_rank(self, relation: int, keywords: int) -> int:
        """Rank of a node as a root; higher ranks are processed, and removed, earlier."""
        return (self.keyword_ranks[keywords] << 20) - relation

    def label(self, edge: int, keywords: int) -> int:
        """Rank of a child among its siblings: first by keywords, then by the edge that leads to it."""
        return (self.keyword_ranks[keywords] << 20) + edge
