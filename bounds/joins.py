"""Which comparisons between nodes have to be looked at, and MaxRef and MinRef (Definitions 8 and 9).

An inequality counts as redundant as well where one side equals something with
finitely many values, or where one node holds both sides: it then follows from
what each stream is filtered by and from the other joins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from bounds.closure import bits
from bounds.modified import Modified
from bounds.query import Attr


@dataclass(frozen=True, slots=True)
class Inequality:
    """A non-redundant inequality join ``low < high`` in P+, between attributes of two nodes."""

    low: Attr
    high: Attr


@lru_cache(maxsize=16)
def comparisons(query: Modified) -> tuple[tuple[int, int], ...]:
    """Each pair of classes (low, high) whose order has to be checked when tuples are joined.

    Left out: what follows from another (Definition 8), what compares with a
    constant or an extreme, and the order of application times between nodes.
    """
    return tuple(_comparisons(query))


def _comparisons(query: Modified) -> Iterator[tuple[int, int]]:
    closure = query.closure
    held = sum(1 << n for n, m in enumerate(closure.members) if any(isinstance(t, Attr) for t in m))
    for low in bits(held):
        for high in bits(closure.above[low] & held):
            both_timed = low in query.timed and high in query.timed
            if both_timed and query.nodes_of_class[low] and query.nodes_of_class[high]:
                continue
            if not closure.between(low, high):
                yield low, high


@lru_cache(maxsize=16)
def inequality_classes(query: Modified) -> tuple[tuple[int, int], ...]:
    """The comparisons between attributes of infinite streams that no node can check by itself."""
    return tuple(
        (low, high)
        for low, high in comparisons(query)
        if query.nodes_of_class[low]
        and query.nodes_of_class[high]
        and not query.nodes_of_class[low] & query.nodes_of_class[high]
        and not (query.closure.anchored(low) or query.closure.anchored(high))
    )


@lru_cache(maxsize=16)
def inequalities(query: Modified) -> tuple[Inequality, ...]:
    """The non-redundant inequality joins between nodes, attribute by attribute."""
    return tuple(
        Inequality(one, other)
        for low, high in inequality_classes(query)
        for one in attributes(query, low)
        for other in attributes(query, high)
    )


def equalities(query: Modified) -> Iterator[tuple[int, frozenset[int]]]:
    """Each class that joins two nodes or more, with its nodes; application times apart.

    What equals a constant is left out: each node checks that by itself.
    """
    for number, nodes in enumerate(query.nodes_of_class):
        attributes_only = all(isinstance(t, Attr) for t in query.closure.members[number])
        if len(nodes) > 1 and number not in query.timed and attributes_only:
            yield number, nodes


def attributes(query: Modified, number: int, node: int | None = None) -> list[Attr]:
    """The attributes of a class that belong to infinite streams, or to those of one node."""
    members = [t for t in query.closure.members[number] if isinstance(t, Attr) and t.stream in query.node_of]
    return [t for t in members if node is None or query.node_of[t.stream] == node]


@dataclass(frozen=True, slots=True)
class References:
    """MaxRef and MinRef of a node: its unbounded attributes, by the joins that need them."""

    greatest: tuple[Inequality, ...]
    least: tuple[Inequality, ...]


def references(query: Modified, node: int) -> References:
    """MaxRef (``greatest``) and MinRef (``least``) of a node (Definition 9), as the joins that make them."""
    joins = inequalities(query)

    def own(attr: Attr) -> bool:
        bounded = query.closure.bounded(query.closure.class_of[attr])
        return query.node_of[attr.stream] == node and not bounded

    return References(tuple(j for j in joins if own(j.high)), tuple(j for j in joins if own(j.low)))
