"""Theorem 1 of the paper, on queries that preserve duplicates, and Theorem 2, on those that eliminate them.

C3 of Theorem 2 counts the references of each stream separately. With application time that is not enough: if
one of two streams must come after the other and each keeps an unbounded attribute, then pairs of values must
be kept, and there may be arbitrarily many, none of which is better than another. So a query that passes here
must also pass ``skws_bounds.maxref.keep_failures``, which checks C3 for each stream together with the values
it keeps of earlier ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from skws_bounds.maxref import Failure, attributes, equalities, inequalities, inequality_classes, references
from skws_bounds.modified import Modified
from skws_bounds.normal_form import Atom, Attr
from skws_schema.model import Op


def forms_trees(query: Modified) -> Iterator[Failure]:
    """C1: the dependency graph of every stream is a tree, its latest stream the root."""
    for node, parents in enumerate(query.graph.parents):
        if len(parents) > 1:
            names = sorted(query.name(p) for p in parents)
            streams = (*query.nodes[node], *(a for p in sorted(parents) for a in query.nodes[p]))
            derived = tuple((_time(query, node), _time(query, p)) for p in sorted(parents))
            message = f"{query.name(node)} comes before {' and '.join(names)}, whose order is unknown"
            yield Failure("C1", message, derived, streams, necessary=False)


def joins_within_reach(query: Modified) -> Iterator[Failure]:
    """C2: a join is between parent and child, between siblings, or between the roots of two trees."""
    for low, high in inequality_classes(query):
        pairs = [(a, b) for a in attributes(query, low) for b in attributes(query, high)]
        if not any(_within_reach(query, *_ends(query, pair)) for pair in pairs):
            joins = tuple(j for j in inequalities(query) if (j.low, j.high) in pairs)
            yield _out_of_reach(*pairs[0], joins=joins)
    for number, nodes in equalities(query):
        for part in _unconnected(query, nodes):
            first, second = attributes(query, number, min(nodes))[0], attributes(query, number, part)[0]
            yield _out_of_reach(first, second)


def output_is_kept(query: Modified) -> Iterator[Failure]:
    """C3: an output attribute is at most one step from its root, and bounded unless of the only root."""
    is_only_root = len(query.graph.roots) == 1
    for attr in dict.fromkeys(t for t in query.query.output if isinstance(t, Attr)):
        node = query.node_of.get(attr.stream)
        if node is None or not query.graph.is_tree(node):
            continue
        number = query.closure.class_of[attr]
        spans = query.query.spans_of(attr)
        if not query.closure.is_bounded(number) and not (is_only_root and query.graph.depth(node) == 0):
            message = f"{attr} is projected and has to be kept, but is not bounded"
            yield Failure("C3", message, (), (attr.stream,), (attr,), columns=spans)
        elif query.graph.depth(node) > 1:
            steps = f"{query.graph.depth(node)} steps before the last stream of its tree"
            message = f"{attr} is projected, but {attr.stream} comes {steps}"
            yield Failure("C3", message, (), (attr.stream,), (attr,), necessary=False, columns=spans)


def equalities_are_bounded(query: Modified) -> Iterator[Failure]:
    """C4: attributes joined by equality are bounded.

    The paper's exception, a root alone, follows: P+ makes both sides bounded if one is.
    """
    for number, nodes in equalities(query):
        if not query.closure.is_bounded(number) and all(query.graph.is_tree(n) for n in nodes):
            yield unbounded_equality("C4", query, number)


def inequalities_are_bounded(query: Modified) -> Iterator[Failure]:
    """C5: MaxRef and MinRef are empty, except for a root alone."""
    for node in range(len(query.nodes)):
        if not query.graph.is_tree(node) or (query.graph.roots == (node,)):
            continue
        node_references = references(query, node)
        for join in dict.fromkeys((*node_references.greatest, *node_references.least)):
            attr = join.high if join in node_references.greatest else join.low
            message = (
                f"{attr} is compared with {join.low if attr is join.high else join.high}, but is not bounded"
            )
            streams = (join.low.stream, join.high.stream)
            yield Failure("C5", message, ((join.low, join.high),), streams, (attr,), joins=(join,))


CONDITIONS: tuple[Callable[[Modified], Iterator[Failure]], ...] = (
    forms_trees,
    joins_within_reach,
    output_is_kept,
    equalities_are_bounded,
    inequalities_are_bounded,
)


def theorem_1(query: Modified) -> tuple[Failure, ...]:
    """Every failure of a modified query by Theorem 1."""
    return tuple(failure for condition in CONDITIONS for failure in condition(query))


def unbounded_equality(condition: str, query: Modified, number: int) -> Failure:
    """The failure of a class of equal attributes that is not bounded."""
    attrs = attributes(query, number)
    derived = tuple((attrs[0], other) for other in attrs[1:])
    message = f"{' = '.join(map(str, attrs))} is joined by equality, but is not bounded"
    return Failure(condition, message, derived, tuple(dict.fromkeys(a.stream for a in attrs)), tuple(attrs))


def _time(query: Modified, node: int) -> Attr:
    return query.query.stream(query.nodes[node][0]).clock


def _ends(query: Modified, pair: tuple[Attr, Attr]) -> tuple[int, int]:
    return query.node_of[pair[0].stream], query.node_of[pair[1].stream]


def _within_reach(query: Modified, first: int, second: int) -> bool:
    if first == second or not (query.graph.is_tree(first) and query.graph.is_tree(second)):
        return True  # a component that is no tree fails C1
    if query.graph.component[first] != query.graph.component[second]:
        return query.graph.depth(first) == query.graph.depth(second) == 0
    parents = query.graph.parents
    return parents[first] == parents[second] or first in parents[second] or second in parents[first]


def _unconnected(query: Modified, nodes: frozenset[int]) -> list[int]:
    """The first node of a class that no steps within reach connect to its least one."""
    connected = {min(nodes)}
    for _ in nodes:
        connected |= {n for n in nodes for r in connected if _within_reach(query, n, r)}
    return sorted(nodes - connected)[:1]


def _out_of_reach(first: Attr, second: Attr, **fields: object) -> Failure:
    message = f"{first} and {second} are joined, but neither of their streams follows the other directly"
    streams = (first.stream, second.stream)
    return Failure("C2", message, ((first, second),), streams, (first, second), necessary=False, **fields)  # type: ignore[arg-type]


def output_is_bounded(query: Modified) -> Iterator[Failure]:
    """C1: every output attribute is bounded. Necessary: emitted results have to be remembered."""
    for attr in dict.fromkeys(t for t in query.query.output if isinstance(t, Attr)):
        if attr.stream in query.node_of and not query.closure.is_bounded(query.closure.class_of[attr]):
            message = f"{attr} is projected without duplicates, but is not bounded"
            spans = query.query.spans_of(attr)
            yield Failure("C1", message, (), (attr.stream,), (attr,), columns=spans)


def joined_attributes_are_bounded(query: Modified) -> Iterator[Failure]:
    """C2: attributes joined by equality are bounded."""
    for number, _ in equalities(query):
        if not query.closure.is_bounded(number):
            yield unbounded_equality("C2", query, number)


def one_reference(query: Modified) -> Iterator[Failure]:
    """C3: at most one least or greatest value of each stream has to be kept."""
    for node in range(len(query.nodes)):
        node_references = references(query, node)
        greatest = {query.closure.class_of[j.high] for j in node_references.greatest}
        least = {query.closure.class_of[j.low] for j in node_references.least}
        if len(greatest) + len(least) > 1:
            joins = tuple(dict.fromkeys((*node_references.greatest, *node_references.least)))
            attrs = tuple(
                dict.fromkeys(a for j in joins for a in (j.low, j.high) if a.stream in query.nodes[node])
            )
            derived = tuple((j.low, j.high) for j in joins)
            ends = [f"the greatest {query.closure.members[n][0]}" for n in sorted(greatest)]
            ends += [f"the least {query.closure.members[n][0]}" for n in sorted(least)]
            message = f"{query.name(node)} would have to keep {' and '.join(ends)}"
            yield Failure("C3", message, derived, query.nodes[node], attrs, joins=joins)


def theorem_2(query: Modified) -> tuple[Failure, ...]:
    """Every failure of a modified query by Theorem 2, as printed in the paper."""
    conditions = (output_is_bounded, joined_attributes_are_bounded, one_reference)
    return tuple(failure for condition in conditions for failure in condition(query))


def time_cases(query: Modified) -> tuple[tuple[Atom, ...], ...]:
    """The orders of two streams that both follow a third; none for a forest."""
    for parents in query.graph.parents:
        if len(parents) > 1:
            first, second = (query.query.stream(query.nodes[p][0]).clock for p in sorted(parents)[:2])
            return tuple((Atom(first, op, second, case=True),) for op in (Op.LESS, Op.EQUAL, Op.GREATER))
    return ()
