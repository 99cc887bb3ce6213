"""Modified queries (the paper, Definition 7): equal timestamps merged, upper-bounded streams finite.

A *node* is an infinite stream, or several whose timestamps are equal, merged
into one; it is named by its aliases.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from bounds.closure import Closure
from bounds.graph import Graph
from bounds.query import Atom, Attr, Constant, Domain, Kind, Query, Stream, Term
from bounds.split import extremes


@dataclass(frozen=True, eq=False)
class Modified:
    """A conjunctive query with its closure, its nodes (infinite) and its finite and static streams."""

    query: Query
    closure: Closure
    nodes: tuple[tuple[str, ...], ...]
    graph: Graph
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
    def unbounded(self) -> frozenset[int]:
        """The classes with attributes of nodes whose values are not finitely many."""
        return frozenset(
            n for n, nodes in enumerate(self.nodes_of_class) if nodes and not self.closure.bounded(n)
        )

    @cached_property
    def output(self) -> frozenset[int]:
        """The classes that are projected out."""
        return frozenset(self.closure.class_of[t] for t in self.query.output if isinstance(t, Attr))

    def name(self, node: int) -> str:
        return "+".join(self.nodes[node])

    def refined(self, atoms: Iterable[Atom]) -> Modified | None:
        """With more atoms between attributes of one node and constants; None if contradictory.

        Such atoms tell nothing of the order of time, nor which streams are finite.
        """
        more = tuple(atoms)
        closure = self.closure.adding(more)
        return replace(self, query=self.query.adding(*more), closure=closure) if closure.consistent else None


def modified(query: Query) -> Modified | None:
    """A conjunctive query, preprocessed by steps 2 and 3; None if contradictory."""
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
    nodes = _nodes(query, closure, anchors)
    return Modified(query, closure, nodes, _graph(query, closure, nodes), tuple(finite), tuple(static))


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


def _graph(query: Query, closure: Closure, nodes: tuple[tuple[str, ...], ...]) -> Graph:
    times = [closure.class_of[query.stream(node[0]).clock] for node in nodes]
    above = (closure.above[time] for time in times)
    return Graph(tuple(frozenset(n for n, t in enumerate(times) if mask >> t & 1) for mask in above))
