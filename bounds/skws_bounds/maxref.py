"""MaxRef and MinRef, the values that each node must keep for later tuples, and failures (Definitions 8, 9).

An inequality is redundant, too, if one side equals something with a finite number of values, or if one node
has both sides: it then follows from the filters of each stream and from the other joins.

In the paper a node keeps the values that one step in a tree needs. Here it also keeps the values of its
children, so that a query can run although its joins reach further (C2, C3).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from skws_bounds.closure import Closure, bits
from skws_bounds.modified import Modified
from skws_bounds.normal_form import Atom, Attr, Term, TextSpan


@dataclass(frozen=True, slots=True)
class Inequality:
    """A non-redundant inequality join ``low < high`` in P+, between attributes of two nodes."""

    low: Attr
    high: Attr


@lru_cache(maxsize=16)
def comparisons(query: Modified) -> tuple[tuple[int, int], ...]:
    """Each pair of classes (low, high) whose order must be checked when tuples are joined.

    Left out: comparisons that follow from others (Definition 8), those with a constant or an extreme, those
    that follow from promises alone, and the order of application times between nodes.
    """
    return tuple(_comparisons(query))


def _comparisons(query: Modified) -> Iterator[tuple[int, int]]:
    closure = query.closure
    # An attribute that only promises compare may be NULL.
    attribute_classes = sum(
        1 << n for n, m in enumerate(closure.members) if any(t in query.filtered_attributes for t in m)
    )
    for low in bits(attribute_classes):
        for high in bits(closure.above[low] & attribute_classes):
            are_times = low in query.time_classes and high in query.time_classes
            if are_times and query.nodes_of_class[low] and query.nodes_of_class[high]:
                continue
            if not closure.has_between(low, high):
                yield low, high


@lru_cache(maxsize=16)
def inequality_classes(query: Modified) -> tuple[tuple[int, int], ...]:
    """The comparisons between attributes of infinite streams that no single node can check."""
    return tuple(
        (low, high)
        for low, high in comparisons(query)
        if query.nodes_of_class[low]
        and query.nodes_of_class[high]
        and not query.nodes_of_class[low] & query.nodes_of_class[high]
        and not (query.closure.is_anchored(low) or query.closure.is_anchored(high))
    )


@lru_cache(maxsize=16)
def inequalities(query: Modified) -> tuple[Inequality, ...]:
    """The non-redundant inequality joins between nodes, attribute by attribute."""
    return tuple(
        Inequality(low_attr, high_attr)
        for low, high in inequality_classes(query)
        for low_attr in attributes(query, low)
        for high_attr in attributes(query, high)
    )


def equalities(query: Modified) -> Iterator[tuple[int, frozenset[int]]]:
    """Each class that joins two nodes or more, with its nodes, except application times.

    Classes with a constant are left out, as each node checks them.
    """
    for number, nodes in enumerate(query.nodes_of_class):
        attributes_only = all(isinstance(t, Attr) for t in query.closure.members[number])
        if len(nodes) > 1 and number not in query.time_classes and attributes_only:
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

    def is_own(attr: Attr) -> bool:
        bounded = query.closure.is_bounded(query.closure.class_of[attr])
        return query.node_of[attr.stream] == node and not bounded

    return References(tuple(j for j in joins if is_own(j.high)), tuple(j for j in joins if is_own(j.low)))


@dataclass(frozen=True, slots=True)
class Failure:
    """One condition of a theorem that fails in one query of the union.

    ``derived``: the comparisons in P+ at fault. ``atoms``: the atoms of the query that imply them.
    ``necessary``: no synopsis of any shape could do without the condition; the others concern the shape of
    the paper's synopses. ``joins``: inequality joins that might be redundant in all further cases.
    ``columns``: the positions at which the attributes are projected.
    """

    condition: str
    message: str
    derived: tuple[tuple[Term, Term], ...] = ()
    streams: tuple[str, ...] = ()
    attributes: tuple[Attr, ...] = ()
    necessary: bool = True
    joins: tuple[Inequality, ...] = ()
    columns: tuple[TextSpan, ...] = ()
    atoms: tuple[Atom, ...] = ()

    def explain(self, closure: Closure) -> Failure:
        """The failure with the ``atoms`` that imply ``derived``; finding them takes a while."""
        atoms = dict.fromkeys(a for left, right in self.derived for a in closure.derivation(left, right))
        return replace(self, atoms=tuple(atoms))


@dataclass(frozen=True, slots=True)
class KeptClasses:
    """Classes that a node keeps.

    ``exact``: by value. ``ranked``: by rank among the values of static relations and finite streams, whose
    number is finite. ``unbounded``: those of ``exact`` without bounds. ``least`` and ``greatest``: the
    unbounded ones that are compared in only one direction.
    """

    exact: tuple[int, ...]
    ranked: tuple[int, ...]
    unbounded: tuple[int, ...]
    least: tuple[int, ...]
    greatest: tuple[int, ...]

    @property
    def classes(self) -> tuple[int, ...]:
        return (*self.exact, *self.ranked)


def classes_to_keep(query: Modified, node: int) -> KeptClasses:
    """The classes that a node of a forest keeps, or emits if it is the only root."""
    subtree = query.graph.subtrees[node]
    classes = [n for n, nodes in enumerate(query.nodes_of_class) if nodes & subtree]
    later_comparisons = list(_outer_comparisons(query, subtree))
    exact_classes = {n for n in classes if n in query.output or _joins_out(query, n, subtree)}
    exact_classes |= {number for number, _, _ in later_comparisons}
    ranked_classes = {n for n in classes if n not in exact_classes and _is_compared_with_anchor(query, n)}
    exact = tuple(n for n in classes if n in exact_classes)
    unbounded = tuple(n for n in exact if n in query.unbounded)
    directions = {
        n: {is_lesser for number, _, is_lesser in later_comparisons if number == n} for n in unbounded
    }
    free = [n for n in unbounded if n not in query.output and not _joins_out(query, n, subtree)]
    return KeptClasses(
        exact,
        tuple(n for n in classes if n in ranked_classes),
        unbounded,
        tuple(n for n in free if directions[n] == {True}),
        tuple(n for n in free if directions[n] == {False}),
    )


def is_keepable(query: Modified, node: int, *, distinct: bool) -> bool:
    """True if the synopsis of a node is bounded.

    The least or the greatest value of one unbounded class may be kept if duplicates do not count. For two
    classes this is not enough: a tuple may have the least value of one and not of the other, so all would be
    kept.
    """
    if query.graph.roots == (node,):
        return not distinct or not any(not query.closure.is_bounded(n) for n in query.output)
    subtree = query.graph.subtrees[node]
    if not any(query.nodes_of_class[n] & subtree for n in query.unbounded):
        return True
    kept_classes = classes_to_keep(query, node)
    extremes = len(kept_classes.least) + len(kept_classes.greatest)
    return not kept_classes.unbounded or (distinct and len(kept_classes.unbounded) == 1 == extremes)


def keep_failures(query: Modified, *, distinct: bool) -> tuple[Failure, ...]:
    """The reasons why the synopses of a forest are not bounded: a failure for each node at fault."""
    return tuple(
        _failure(query, n) for n in range(len(query.nodes)) if not is_keepable(query, n, distinct=distinct)
    )


def _failure(query: Modified, node: int) -> Failure:
    numbers = classes_to_keep(query, node).unbounded or tuple(sorted(query.output))
    attrs = [a for n in numbers for a in attributes(query, n)]
    pairs = [pair for pair in inequality_classes(query) if set(pair) & set(numbers)]
    joins = tuple(
        Inequality(low_attr, high_attr)
        for low, high in pairs
        for low_attr in attributes(query, low)
        for high_attr in attributes(query, high)
    )
    derived = tuple((j.low, j.high) for j in joins)
    message = (
        f"{', '.join(map(str, attrs))} would have to be kept together for tuples after {query.name(node)}"
    )
    streams = tuple(dict.fromkeys(a.stream for a in attrs))
    return Failure("C3", message, derived, streams, tuple(attrs), joins=joins)


def _outer_comparisons(query: Modified, subtree: frozenset[int]) -> Iterator[tuple[int, int, bool]]:
    """Each (own class, other class, whether own is the lesser) compared with later tuples only."""
    for low, high in inequality_classes(query):
        sides = bool(query.nodes_of_class[low] & subtree), bool(query.nodes_of_class[high] & subtree)
        if sides == (True, False):
            yield low, high, True
        elif sides == (False, True):
            yield high, low, False


def _joins_out(query: Modified, number: int, subtree: frozenset[int]) -> bool:
    return number not in query.time_classes and bool(query.nodes_of_class[number] - subtree)


def _is_compared_with_anchor(query: Modified, number: int) -> bool:
    """True if a class is compared with an attribute of a static relation or a finite stream."""
    if _has_anchor(query, number):
        return True
    return any(_has_anchor(query, b if a == number else a) for a, b in comparisons(query) if number in (a, b))


def _has_anchor(query: Modified, number: int) -> bool:
    members = query.closure.members[number]
    return any(isinstance(t, Attr) and t.stream in query.closure.anchors for t in members)
