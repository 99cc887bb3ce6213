"""The expanded schema: every relation split by the keywords its tuples contain.

A tuple belongs to exactly one node of its relation, that of exactly the
keywords it contains (S-KWS paper, Sections 2 and 3.2). Candidate networks are
trees over these nodes. There are up to ``2 ** slots`` nodes a relation, so
they are made on demand and never stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple


class ExpandedNode(NamedTuple):
    """``R{K}``: the tuples of relation ``relation`` that contain exactly the keywords of the bitmap.

    Ordered by relation, then by bitmap: the paper's *nid* (Section 3.2). The
    node is free if the bitmap is 0.
    """

    relation: int
    keywords: int


def expanded_nodes(searchable: Sequence[int]) -> Iterator[ExpandedNode]:
    """All nodes, ascending.

    ``searchable[r]`` is the bitmap of the keywords that tuples of relation
    ``r`` can contain; nodes outside it are empty in every stream and left out.
    """
    for relation, bitmap in enumerate(searchable):
        for keywords in subsets(bitmap):
            yield ExpandedNode(relation, keywords)


def subsets(bitmap: int) -> Iterator[int]:
    """All bitmaps contained in ``bitmap``, ascending, from 0 to itself."""
    subset = 0
    while True:
        yield subset
        if subset == bitmap:
            return
        subset = (subset - bitmap) & bitmap
