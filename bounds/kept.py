"""What each node has to keep of its tuples for later ones: the classes of a synopsis.

The paper keeps what one step in a tree needs; here a node also carries on what
its children gave it, so that a query may be run although its joins reach
further (C2, C3).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bounds.failure import Failure
from bounds.joins import Inequality, attributes, comparisons, inequality_classes
from bounds.modified import Modified
from bounds.query import Attr


@dataclass(frozen=True, slots=True)
class Kept:
    """Classes that a node keeps.

    ``exact``: by their values. ``ranked``: only as to how they stand to the
    values of static relations and finite streams, which are finitely many.
    ``unbounded``: those of ``exact`` with no bound. ``least`` and
    ``greatest``: the unbounded ones that are only compared in one direction.
    """

    exact: tuple[int, ...]
    ranked: tuple[int, ...]
    unbounded: tuple[int, ...]
    least: tuple[int, ...]
    greatest: tuple[int, ...]

    @property
    def classes(self) -> tuple[int, ...]:
        return (*self.exact, *self.ranked)


def kept(query: Modified, node: int) -> Kept:
    """What a node of a forest keeps, or shows to the output if it is the only root."""
    inside = query.graph.subtrees[node]
    own = [n for n, nodes in enumerate(query.nodes_of_class) if nodes & inside]
    outward = list(_outward(query, inside))
    valued = {n for n in own if n in query.output or _joins_out(query, n, inside)}
    valued |= {number for number, _, _ in outward}
    known = {n for n in own if n not in valued and _meets_known(query, n)}
    exact = tuple(n for n in own if n in valued)
    unbounded = tuple(n for n in exact if n in query.unbounded)
    directions = {n: {up for number, _, up in outward if number == n} for n in unbounded}
    free = [n for n in unbounded if n not in query.output and not _joins_out(query, n, inside)]
    return Kept(
        exact,
        tuple(n for n in own if n in known),
        unbounded,
        tuple(n for n in free if directions[n] == {True}),
        tuple(n for n in free if directions[n] == {False}),
    )


def keepable(query: Modified, node: int, *, distinct: bool) -> bool:
    """Whether the synopsis of a node is bounded.

    Of an unbounded class only the least or the greatest value may be kept,
    when duplicates do not count, and only of one: of two, a tuple may be the
    least in one and not in the other, and all of them would have to be kept.
    """
    if query.graph.roots == (node,):
        return not distinct or not any(not query.closure.bounded(n) for n in query.output)
    inside = query.graph.subtrees[node]
    if not any(query.nodes_of_class[n] & inside for n in query.unbounded):
        return True
    needed = kept(query, node)
    extremes = len(needed.least) + len(needed.greatest)
    return not needed.unbounded or (distinct and len(needed.unbounded) == 1 == extremes)


def unkeepable(query: Modified, *, distinct: bool) -> tuple[Failure, ...]:
    """Why the synopses of a forest are not bounded: one failure for each node to blame."""
    return tuple(
        _failure(query, n) for n in range(len(query.nodes)) if not keepable(query, n, distinct=distinct)
    )


def _failure(query: Modified, node: int) -> Failure:
    numbers = kept(query, node).unbounded or tuple(sorted(query.output))
    attrs = [a for n in numbers for a in attributes(query, n)]
    pairs = [pair for pair in inequality_classes(query) if set(pair) & set(numbers)]
    joins = tuple(
        Inequality(one, other)
        for low, high in pairs
        for one in attributes(query, low)
        for other in attributes(query, high)
    )
    derived = tuple((j.low, j.high) for j in joins)
    message = (
        f"{', '.join(map(str, attrs))} would have to be kept together for what comes after {query.name(node)}"
    )
    streams = tuple(dict.fromkeys(a.stream for a in attrs))
    return Failure("C3", message, derived, streams, tuple(attrs), joins=joins)


def _outward(query: Modified, inside: frozenset[int]) -> Iterator[tuple[int, int, bool]]:
    """Each (own class, other class, whether own is the lesser) compared with what only comes later."""
    for low, high in inequality_classes(query):
        within = bool(query.nodes_of_class[low] & inside), bool(query.nodes_of_class[high] & inside)
        if within == (True, False):
            yield low, high, True
        elif within == (False, True):
            yield high, low, False


def _joins_out(query: Modified, number: int, inside: frozenset[int]) -> bool:
    return number not in query.timed and bool(query.nodes_of_class[number] - inside)


def _meets_known(query: Modified, number: int) -> bool:
    """True if a class is compared with an attribute of a static relation or a finite stream."""
    if _has_known(query, number):
        return True
    return any(_has_known(query, b if a == number else a) for a, b in comparisons(query) if number in (a, b))


def _has_known(query: Modified, number: int) -> bool:
    members = query.closure.members[number]
    return any(isinstance(t, Attr) and t.stream in query.closure.anchors for t in members)
