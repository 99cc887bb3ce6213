"""The join graph: relations as nodes, every join as two directed edges.

A tree of joined tuples is walked edge by edge, so an edge has the columns that must be equal, and whether
keys allow at most one tuple at its target.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from skws_schema.model import Join, Schema


@dataclass(frozen=True, slots=True)
class Edge:
    """One direction of a join. Edge ``2 * j`` walks join ``j`` from left to right, ``2 * j + 1`` back.

    ``at_most_one``: the join covers a key of the target, so a source tuple joins at most one live target
    tuple through this edge.
    """

    id: int
    join: int
    source: int
    target: int
    source_columns: tuple[int, ...]
    target_columns: tuple[int, ...]
    at_most_one: bool

    @property
    def forward(self) -> bool:
        """True if the source is on the join's left side."""
        return self.id % 2 == 0


@lru_cache(maxsize=64)
def edges(schema: Schema) -> tuple[Edge, ...]:
    """All directed edges of the join graph, removed ones included; an edge's ``id`` is its position."""
    return tuple(
        _edge(schema, number, join, forward)
        for number, join in enumerate(schema.joins)
        for forward in (True, False)
    )


def present_edges(schema: Schema) -> tuple[Edge, ...]:
    """The edges of joins that have not been removed."""
    return tuple(e for e in edges(schema) if e.join not in schema.evolution.removed_joins)


@lru_cache(maxsize=64)
def edges_from(schema: Schema) -> tuple[tuple[Edge, ...], ...]:
    """For each relation, the edges that leave it. A self-join leaves its relation twice."""
    by_source: list[list[Edge]] = [[] for _ in schema.relations]
    for edge in present_edges(schema):
        by_source[edge.source].append(edge)
    return tuple(map(tuple, by_source))


def _edge(schema: Schema, number: int, join: Join, forward: bool) -> Edge:
    source, target = (join.left, join.right) if forward else (join.right, join.left)
    near, far = (0, 1) if forward else (1, 0)
    target_relation = schema.relation(target)
    target_names = {pair[far] for pair in join.on}
    return Edge(
        id=2 * number + (0 if forward else 1),
        join=number,
        source=schema.index[source],
        target=schema.index[target],
        source_columns=tuple(schema.relation(source).columns[pair[near]] for pair in join.on),
        target_columns=tuple(target_relation.columns[pair[far]] for pair in join.on),
        at_most_one=bool(target_relation.key) and set(target_relation.key) <= target_names,
    )
