"""The expanded schema: every relation split by the keywords its tuples contain.

A tuple belongs to exactly one node of its relation, that of exactly the
keywords it contains (S-KWS paper, Sections 2 and 3.2). Candidate networks are
trees over these nodes. There are up to ``2 ** slots`` nodes a relation, so
nodes and edges are made on demand and never stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from schema.graph import Edge, edges_from
from schema.model import Schema


@dataclass(frozen=True, slots=True, order=True)
class ExpandedNode:
    """``R{K}``: the tuples of relation ``relation`` that contain exactly the keywords of the bitmap.

    Ordered by relation, then by bitmap: the paper's *nid* (Section 3.2).
    """

    relation: int
    keywords: int

    @property
    def free(self) -> bool:
        """True if the node's tuples contain no keyword."""
        return self.keywords == 0


@dataclass(frozen=True)
class ExpandedSchema:
    """The graph of nodes ``R{K}``, for queries of ``slots`` keywords.

    ``searchable[r]`` is the bitmap of the keywords that tuples of relation
    ``r`` can contain; nodes outside it are empty in every stream and left out.

    Raises ValueError if ``searchable`` does not fit the schema or the slots.
    """

    schema: Schema
    slots: int
    searchable: Sequence[int]

    def __post_init__(self) -> None:
        if len(self.searchable) != len(self.schema.relations):
            raise ValueError(
                f"{len(self.searchable)} bitmaps of keywords for {len(self.schema.relations)} relations"
            )
        for bitmap in self.searchable:
            if not 0 <= bitmap < 1 << self.slots:
                raise ValueError(f"bitmap {bitmap:b} is not one of {self.slots} keywords")
        object.__setattr__(self, "searchable", tuple(self.searchable))

    @classmethod
    def whole(cls, schema: Schema, slots: int) -> ExpandedSchema:
        """Every relation can contain every keyword, as in the paper."""
        return cls(schema, slots, ((1 << slots) - 1,) * len(schema.relations))

    @cached_property
    def nodes(self) -> tuple[ExpandedNode, ...]:
        """All nodes, ascending."""
        return tuple(node for relation in range(len(self.searchable)) for node in self.nodes_of(relation))

    def nodes_of(self, relation: int) -> Iterator[ExpandedNode]:
        """The nodes of one relation, ascending; the free one is first."""
        for keywords in subsets(self.searchable[relation]):
            yield ExpandedNode(relation, keywords)

    def __len__(self) -> int:
        return sum(1 << bitmap.bit_count() for bitmap in self.searchable)

    def __contains__(self, node: object) -> bool:
        return (
            isinstance(node, ExpandedNode)
            and 0 <= node.relation < len(self.searchable)
            and not node.keywords & ~self.searchable[node.relation]
        )

    def node(self, relation: int, keywords: int) -> ExpandedNode:
        """The node of a tuple of ``relation`` that contains exactly ``keywords``.

        Raises ValueError if the relation cannot contain them.
        """
        found = ExpandedNode(relation, keywords)
        if found not in self:
            raise ValueError(f"relation {relation} cannot contain keywords {keywords:b}")
        return found

    def neighbours(self, node: ExpandedNode) -> Iterator[tuple[Edge, ExpandedNode]]:
        """Each edge of the join graph that leaves the node's relation, with each node it leads to.

        Parallel joins and both directions of a self-join lead to the same nodes by different edges.
        """
        for edge in edges_from(self.schema)[node.relation]:
            for target in self.nodes_of(edge.target):
                yield edge, target


def subsets(bitmap: int) -> Iterator[int]:
    """All bitmaps contained in ``bitmap``, ascending, from 0 to itself."""
    subset = 0
    while True:
        yield subset
        if subset == bitmap:
            return
        subset = (subset - bitmap) & bitmap
