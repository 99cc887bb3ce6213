"""Whether the number of windows open at one position can grow without bound.

Let D accept what comes before windows and E be the windows' automaton, E cut
to the states from which a window can still end. The number is unbounded
exactly if there are a state p of D that some word u leads to, a state q of E,
and a word v that leads from p to p, from p to q by way of a start inside v,
and from q to q: then after u v^n there are n starts, all in q (window paper,
Section 5, for finite alphabets; with types as in ``types``).

Neither automaton need be deterministic. A run of E to a live state for each
of many starts, and a run of D to each start, colour every pair of starts with
the states that these runs are in; by Ramsey's theorem four starts have one
colour in all pairs, and the words between them are v.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Final, NamedTuple, TypeAlias, TypeVar

from skws_schema.memory import StepBudget
from skws_windows.automata.closure import Branching
from skws_windows.check.types import Edge, TypeGraph

MAX_STEPS: Final = 1_000_000

Pair: TypeAlias = tuple[int, int, int]
"""A type, a state of D, a state of E."""
Node = TypeVar("Node")
Walk: TypeAlias = tuple[Edge, ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """How windows pile up: ``prefix`` (u), ``loop`` (v), and ``suffix``, after which they all end."""

    prefix: Walk
    loop: Walk
    suffix: Walk


class _Quad(NamedTuple):
    """A pair, and beside it a run to a start and beyond: a state of D, or of E once it is ``started``."""

    pair: Pair
    started: bool
    state: int


def find_pattern(graph: TypeGraph, before: Branching, window: Branching) -> Pattern | None:
    """The pattern of one pair of automata; None if there is none. Raises OverBudgetError."""
    with StepBudget(MAX_STEPS, "checking the window") as budget:
        return _Search(graph, before, window, budget).pattern()


class _Search:
    def __init__(self, graph: TypeGraph, before: Branching, window: Branching, budget: StepBudget) -> None:
        self._graph = graph
        self._before = before
        self._window = window
        self._budget = budget
        self._everywhere = [(node, before.initial) for node in range(len(graph.edges))]
        self._live = self._live_nodes()

    def pattern(self) -> Pattern | None:
        for component in self._cycles():
            members = frozenset(component)
            for source in sorted(members):
                loop = self._loop(source, members)
                if loop is not None:
                    node, state, open_state = source
                    return Pattern(self._prefix((node, state)), loop, self._suffix((node, open_state)))
        return None

    def _cycles(self) -> Iterator[set[Pair]]:
        """The strongly connected components with a cycle, among the pairs that can occur and be live."""
        import networkx as nx  # noqa: PLC0415 - takes longer to load than most windows to check

        pairs: nx.DiGraph[Pair] = nx.DiGraph()
        for node, state in _reached(self._everywhere, self._before_steps):
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
                if target in members:
                    for started, state in self._beside(quad, edge.letter):
                        self._budget.spend()
                        yield edge, _Quad(target, started, state)

        first, last = _Quad(source, False, source[1]), _Quad(source, True, source[2])
        return _walk_to([first], steps, lambda quad: quad == last)

    def _beside(self, quad: _Quad, letter: int) -> Iterator[tuple[bool, int]]:
        """The steps of the run beside a pair: to a start and beyond."""
        moves = (self._window if quad.started else self._before).table[quad.state][letter]
        yield from ((quad.started, state) for state in moves)
        if not quad.started and quad.state in self._before.final:
            yield from ((True, state) for state in self._window.table[self._window.initial][letter])

    def _prefix(self, target: tuple[int, int]) -> Walk:
        """A walk to the loop; empty if the loop may begin at once."""
        if target in self._everywhere:
            return ()
        return _walk_to(self._everywhere, self._before_steps, lambda pair: pair == target) or ()

    def _suffix(self, start: tuple[int, int]) -> Walk:
        """A walk to the end of a window, of one record at least."""
        return _walk_to([start], self._window_steps, lambda pair: pair[1] in self._window.final) or ()

    def _live_nodes(self) -> set[tuple[int, int]]:
        """The (type, state of E) from which a window can still end, some records later."""
        sources: defaultdict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        for node in range(len(self._graph.edges)):
            for state in range(len(self._window.table)):
                for _, after in self._window_steps((node, state)):
                    sources[after].append((node, state))
        ends = [pair for pair in sources if pair[1] in self._window.final]
        found = {before for end in ends for before in sources[end]}
        pending = list(found)
        for pair in pending:
            fresh = set(sources[pair]) - found if pair in sources else set()
            found |= fresh
            pending += fresh
        return found

    def _before_steps(self, pair: tuple[int, int]) -> Iterator[tuple[Edge, tuple[int, int]]]:
        return self._steps(pair, self._before)

    def _window_steps(self, pair: tuple[int, int]) -> Iterator[tuple[Edge, tuple[int, int]]]:
        return self._steps(pair, self._window)

    def _steps(self, pair: tuple[int, int], moves: Branching) -> Iterator[tuple[Edge, tuple[int, int]]]:
        row = moves.table[pair[1]]
        for edge in self._edges(pair[0]):
            for state in row[edge.letter]:
                self._budget.spend()
                yield edge, (edge.target, state)

    def _pair_steps(self, pair: Pair) -> Iterator[tuple[Edge, Pair]]:
        node, state, open_state = pair
        before, window = self._before.table[state], self._window.table[open_state]
        for edge in self._edges(node):
            for after, open_after in product(before[edge.letter], window[edge.letter]):
                self._budget.spend()
                yield edge, (edge.target, after, open_after)

    def _edges(self, node: int) -> tuple[Edge, ...]:
        self._budget.spend()
        return self._graph.edges[node]


def _reached(sources: Iterable[Node], steps: Callable[[Node], Iterable[tuple[Edge, Node]]]) -> list[Node]:
    """All nodes that can be reached, nearest first."""
    found = dict.fromkeys(sources)
    pending = list(found)
    for node in pending:
        for _, target in steps(node):
            if target not in found:
                found[target] = None
                pending.append(target)
    return pending


def _walk_to(
    sources: Iterable[Node],
    steps: Callable[[Node], Iterable[tuple[Edge, Node]]],
    wanted: Callable[[Node], bool],
) -> Walk | None:
    """A shortest walk of one edge or more to a ``wanted`` node; None if there is none."""
    came: dict[Node, tuple[Edge, Node] | None] = dict.fromkeys(sources)
    pending = list(came)
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
