"""Modified queries (the paper, Definition 7): equal timestamps merged, upper-bounded streams finite.

A *node* is an infinite stream, or several whose timestamps are equal, merged
into one; it is named by its aliases. The dependency graph has an edge from
each node to every node that P+ tells to be earlier.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from bounds.closure import Closure
from bounds.query import Atom, Attr, Constant, Domain, Kind, Query, Stream, Term
from bounds.split import extremes


@dataclass(frozen=True, eq=False)
class Modified:
    """A conjunctive query with its closure, its nodes (infinite) and its finite and static streams."""

    query: Query
    closure: Closure
    nodes: tuple[tuple[str, ...], ...]
    finite: tuple[Stream, ...]
    static: tuple[Stream, ...]

    @cached_property
    def node_of(self) -> dict[str, int]:
        """The node of each infinite stream, by alias."""
        return {alias: number for number, node in enumerate(self.nodes) for alias in node}

    @cached_property
    def nodes_of_class(self) -> tuple[frozenset[int], ...]:
        """The nodes that have an attribute in each class."""
        return tuple(
            frozenset(
                self.node_of[t.stream] for t in members if isinstance(t, Attr) and t.stream in self.node_of
            )
            for members in self.closure.members
        )

    @cached_property
    def timed(self) -> frozenset[int]:
        """The classes of application times."""
        times = {t: n for t, n in self.closure.class_of.items() if t.domain is Domain.TIME}
        return frozenset(times.values())

    @cached_property
    def output(self) -> frozenset[int]:
        """The classes that are projected out."""
        return frozenset(self.closure.class_of[t] for t in self.query.output if isinstance(t, Attr))

    @cached_property
    def later(self) -> tuple[frozenset[int], ...]:
        """For each node those that P+ tells to be later: the dependency graph."""
        times = [self.closure.class_of[self._time(node[0])] for node in self.nodes]
        above = self.closure.above
        return tuple(frozenset(j for j, t in enumerate(times) if above[own] >> t & 1) for own in times)

    @cached_property
    def parents(self) -> tuple[frozenset[int], ...]:
        """For each node the later nodes with no other between; a tree if at most one everywhere."""
        return tuple(
            frozenset(p for p in later if not any(p in self.later[q] for q in later)) for later in self.later
        )

    @cached_property
    def component(self) -> tuple[int, ...]:
        """The least node of the connected component of each node in the dependency graph."""
        least = list(range(len(self.nodes)))
        for _ in self.nodes:
            for node, later in enumerate(self.later):
                for other in (node, *later):
                    least[node] = least[other] = min(least[node], least[other])
        return tuple(least)

    def is_tree(self, node: int) -> bool:
        """Whether the component of ``node`` is a tree (Theorem 1, C1)."""
        own = self.component[node]
        return all(len(p) <= 1 for n, p in enumerate(self.parents) if self.component[n] == own)

    @cached_property
    def roots(self) -> tuple[int, ...]:
        """The nodes that nothing has to come after."""
        return tuple(n for n, parents in enumerate(self.parents) if not parents)

    def depth(self, node: int) -> int:
        """The distance of a node of a tree to its root."""
        (parent,) = self.parents[node] or (None,)
        return 0 if parent is None else 1 + self.depth(parent)

    def children(self, node: int) -> tuple[int, ...]:
        return tuple(n for n, parents in enumerate(self.parents) if node in parents)

    def subtree(self, node: int) -> frozenset[int]:
        """A node and all below it in its tree."""
        return frozenset({node}).union(*(self.subtree(child) for child in self.children(node)))

    def name(self, node: int) -> str:
        return "+".join(self.nodes[node])

    def _time(self, alias: str) -> Attr:
        return self.query.stream(alias).clock


def modified(query: Query, extra: Iterable[Atom] = ()) -> Modified | None:
    """A conjunctive query, with ``extra`` atoms, preprocessed by steps 2 and 3; None if contradictory."""
    query = query.adding(*extra)
    also = [t for t in query.output if isinstance(t, Attr)]
    also += [s.time for s in query.streams if s.time is not None]
    static = [s for s in query.streams if s.kind is Kind.STATIC]
    first = Closure(query.atoms, also)
    if not first.consistent:
        return None
    finite = _finite(query, first)
    anchors = [s.alias for s in (*static, *finite)]
    known = [t for t in first.class_of if isinstance(t, Attr) and t.stream in anchors and _ordered(t)]
    closure = Closure((*query.atoms, *extremes(known)), also, anchors) if anchors else first
    if not closure.consistent:
        return None
    return Modified(query, closure, _nodes(query, closure, anchors), tuple(finite), tuple(static))


def _ordered(attr: Attr) -> bool:
    return attr.domain not in (Domain.TEXT, Domain.TIME)


def _finite(query: Query, closure: Closure) -> list[Stream]:
    """Streams that are declared finite, or whose time is upper-bounded: by a constant or by a finite one."""
    finite = [s for s in query.streams if s.kind is Kind.FINITE]
    infinite = [s for s in query.streams if s.kind is Kind.INFINITE]
    ends: list[Term] = [t for t in closure.class_of if isinstance(t, Constant) and t.domain is Domain.TIME]
    ends += [s.clock for s in finite]
    for stream in infinite:
        own = closure.class_of[stream.clock]
        if any(closure.class_of[end] == own or closure.less(stream.clock, end) for end in ends):
            finite.append(stream)
    return finite


def _nodes(query: Query, closure: Closure, anchors: list[str]) -> tuple[tuple[str, ...], ...]:
    groups: dict[int, list[str]] = {}
    for stream in query.streams:
        if stream.alias not in anchors and stream.time is not None:
            groups.setdefault(closure.class_of[stream.time], []).append(stream.alias)
    return tuple(tuple(group) for group in groups.values())
