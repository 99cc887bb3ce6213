"""Whether the number of windows open at one position can grow without bound.

Let D accept what comes before windows and E be the windows' automaton, both
deterministic, E cut to the states from which a window can still end. The
number is unbounded exactly if there are a state p of D that some word u leads
to, a state q of E, and a word v that leads from p to p, from p to q by way of
a start inside v, and from q to q: then after u v^n there are n starts, all in
q (window paper, Section 5, for finite alphabets; with types as in ``types``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias, TypeVar

import networkx as nx

from windows.expressions.finite import Finite
from windows.expressions.types import Edge, TypeGraph

MAX_STEPS: Final = 1_000_000
_BEFORE: Final = -1

Pair: TypeAlias = tuple[int, int, int]
"""A type, a state of D, a state of E."""
Node = TypeVar("Node")
Walk: TypeAlias = tuple[Edge, ...]


class TooLargeError(Exception):
    """The automata are too large to be searched."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """How windows pile up: ``prefix`` (u), ``loop`` (v), and ``suffix``, after which they all end."""

    prefix: Walk
    loop: Walk
    suffix: Walk


class _Quad(NamedTuple):
    """A pair, and beside it the state of the start made in the loop: _BEFORE it is made."""

    pair: Pair
    started: int


def find_pattern(graph: TypeGraph, before: Finite, window: Finite) -> Pattern | None:
    """The pattern of one pair of automata, if there is one. Raises TooLargeError."""
    return _Search(graph, before, window).pattern()


def shortest_walk(graph: TypeGraph, accepting: Finite) -> Walk | None:
    """A shortest walk, of one edge at least, that an automaton accepts; None if there is none."""

    def steps(pair: tuple[int, int]) -> Iterator[tuple[Edge, tuple[int, int]]]:
        for edge in graph.edges[pair[0]]:
            yield edge, (edge.target, accepting.table[pair[1]][edge.letter])

    starts = [(node, accepting.initial) for node in range(len(graph.edges))]
    walks = _walks(starts, steps)
    found = [
        (*walk, edge)
        for node, walk in walks.items()
        for edge, after in steps(node)
        if after[1] in accepting.final
    ]
    return min(found, key=len, default=None)


class _Search:
    def __init__(self, graph: TypeGraph, before: Finite, window: Finite) -> None:
        self._graph = graph
        self._before = before
        self._window = window
        self._steps = 0
        everywhere = [(node, before.initial) for node in range(len(graph.edges))]
        self._prefixes = _walks(everywhere, self._before_steps)
        self._live = self._live_nodes()

    def pattern(self) -> Pattern | None:
        for component in self._cycles():
            members = frozenset(component)
            if not any(state in self._before.final for _, state, _ in members):
                continue
            for source in sorted(members):
                loop = self._loop(source, members)
                if loop is not None:
                    node, state, open_state = source
                    suffix = self._suffix((node, open_state))
                    return Pattern(self._prefixes[node, state], loop, suffix)
        return None

    def _cycles(self) -> Iterator[set[Pair]]:
        """The strongly connected components that have a cycle, of the pairs that can occur and be live."""
        pairs: nx.DiGraph[Pair] = nx.DiGraph()
        for node, state in self._prefixes:
            for open_state in range(len(self._window.table)):
                source = (node, state, open_state)
                if (node, open_state) in self._live:
                    pairs.add_edges_from((source, target) for _, target in self._pair_steps(source))
        for component in nx.strongly_connected_components(pairs):
            first = next(iter(component))
            if len(component) > 1 or pairs.has_edge(first, first):
                yield component

    def _loop(self, source: Pair, members: frozenset[Pair]) -> Walk | None:
        """A word from p to p, from q to q, and, by a start on the way, from p to q."""

        def steps(quad: _Quad) -> Iterator[tuple[Edge, _Quad]]:
            for edge, target in self._pair_steps(quad.pair):
                if target not in members:
                    continue
                if quad.started != _BEFORE:
                    yield edge, _Quad(target, self._window.table[quad.started][edge.letter])
                    continue
                yield edge, _Quad(target, _BEFORE)
                if quad.pair[1] in self._before.final:
                    yield edge, _Quad(target, self._window.table[self._window.initial][edge.letter])

        return _walk_to(_Quad(source, _BEFORE), steps, lambda q: q.pair == source and q.started == source[2])

    def _suffix(self, start: tuple[int, int]) -> Walk:
        """The rest of a window, one record at least."""

        def steps(pair: tuple[int, int]) -> Iterator[tuple[Edge, tuple[int, int]]]:
            for edge in self._edges(pair[0]):
                yield edge, (edge.target, self._window.table[pair[1]][edge.letter])

        found = _walk_to(start, steps, lambda pair: pair[1] in self._window.final)
        return found or ()

    def _live_nodes(self) -> set[tuple[int, int]]:
        """The (type, state of E) from which a window can still end, some records later."""
        arcs: nx.DiGraph[tuple[int, int]] = nx.DiGraph()
        for node in range(len(self._graph.edges)):
            for state in range(len(self._window.table)):
                for edge in self._edges(node):
                    arcs.add_edge((edge.target, self._window.table[state][edge.letter]), (node, state))
        ends = {pair for pair in arcs if pair[1] in self._window.final}
        found = {after for end in ends for after in arcs[end]}
        for end in list(found):
            found |= nx.descendants(arcs, end)
        return found

    def _before_steps(self, pair: tuple[int, int]) -> Iterator[tuple[Edge, tuple[int, int]]]:
        for edge in self._edges(pair[0]):
            yield edge, (edge.target, self._before.table[pair[1]][edge.letter])

    def _pair_steps(self, pair: Pair) -> Iterator[tuple[Edge, Pair]]:
        node, state, open_state = pair
        for edge in self._edges(node):
            after = self._window.table[open_state][edge.letter]
            yield edge, (edge.target, self._before.table[state][edge.letter], after)

    def _edges(self, node: int) -> tuple[Edge, ...]:
        edges = self._graph.edges[node]
        self._steps += len(edges) + 1
        if self._steps > MAX_STEPS:
            raise TooLargeError
        return edges


def _walks(sources: Iterable[Node], steps: Callable[[Node], Iterable[tuple[Edge, Node]]]) -> dict[Node, Walk]:
    """A shortest walk to every node that can be reached."""
    found: dict[Node, Walk] = dict.fromkeys(sources, ())
    pending = list(found)
    for node in pending:
        for edge, target in steps(node):
            if target not in found:
                found[target] = (*found[node], edge)
                pending.append(target)
    return found


def _walk_to(
    source: Node, steps: Callable[[Node], Iterable[tuple[Edge, Node]]], wanted: Callable[[Node], bool]
) -> Walk | None:
    """A shortest walk of one edge or more to a node that is wanted."""
    came: dict[Node, tuple[Edge, Node] | None] = {source: None}
    pending = [source]
    for node in pending:
        for edge, target in steps(node):
            if wanted(target):
                return _back(came, node, edge)
            if target not in came:
                came[target] = (edge, node)
                pending.append(target)
    return None


def _back(came: dict[Node, tuple[Edge, Node] | None], node: Node, last: Edge) -> Walk:
    walk = [last]
    step = came[node]
    while step is not None:
        walk.append(step[0])
        step = came[step[1]]
    return tuple(reversed(walk))
