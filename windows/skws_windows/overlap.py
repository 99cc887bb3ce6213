"""Decides whether the number of windows open at one position can grow without bound.

Let D accept the stream before a window, and let E be the automaton of windows, reduced
to the states from which a window can still end. The number is unbounded
if and only if there are a state p of D that some word u leads to, a state q of E,
and a word v that leads from p to p, from p to q by way of a start inside v,
and from q to q: then after u v^n there are n starts, all in q (window paper,
Section 5, for finite alphabets; with types for infinite ones).

Neither automaton has to be deterministic. A run of E to a live state for each
of many starts, and a run of D to each start, colour every pair of starts with
the states of these runs; by Ramsey's theorem there are four starts whose pairs
all have one colour, and the words between them are v.

With lookback, consecutive letters are about the same records. In the graph of types, a node
is the knowledge about the last k records (their type), and an edge is a letter
between the types before and after it. Every sequence of records is a walk
through the graph, so only walks need to be examined. In some fragments
every walk is also a sequence of records (``exact``): there the types determine
all later guards.

Fields that no atom compares with each other are independent, so the fields form
components. A component whose values before the current record are never
read needs no memory. The others are in one of these fragments:

- *dense*: real numbers, compared by order with each other and with constants.
  Whatever the order of the last values, the next one can lie anywhere in it.
- *equality*: an infinite set of values, compared only for equality.
- *translation*: one field; guards read only its difference to the previous
  record. Adding one amount to all values changes nothing.
- *finite*: truth values.

All others (such as order among whole numbers, where no value lies
between 1 and 2) are in no fragment.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import combinations, product
from typing import Final, NamedTuple, TypeAlias, TypeVar

from skws_schema.budgets import StepBudget
from skws_schema.model import AttributeType
from skws_windows.automata.k_sla import NondeterministicAutomaton
from skws_windows.guards import guard as g
from skws_windows.guards.alphabet import TIME, Alphabet
from skws_windows.guards.satisfiability import Satisfiability


class RealizableFragment(Enum):
    """The reason why every walk is realised by records; NONE if it may not be."""

    FORGETFUL = auto()
    DENSE = auto()
    EQUALITY = auto()
    TRANSLATION = auto()
    FINITE = auto()
    CLOCK = auto()
    NONE = auto()


@dataclass(frozen=True, slots=True)
class Component:
    """Fields (by variable) that atoms compare; the terms that a type stores; the constants in atoms."""

    variables: tuple[str, ...]
    terms: tuple[g.Field, ...]
    constants: tuple[g.GuardConstant, ...]
    fragment: RealizableFragment


def components(guards: Sequence[g.Guard], alphabet: Alphabet) -> list[Component]:
    """The components of some guards, in order of first use."""
    atoms = list(dict.fromkeys(atom for guard in guards for atom in g.atoms(guard)))
    compared_atoms = [atom for atom in atoms if not isinstance(atom, g.OfRelation)]
    groups: list[set[str]] = []
    for atom in compared_atoms:
        names = {alphabet.fields[field.name].variable for field in g.fields(atom)}
        merged = names.union(*(group for group in groups if group & names))
        groups = [group for group in groups if not group & names] + [merged]
    return [
        _component(tuple(sorted(group)), _atoms_of(group, compared_atoms, alphabet), alphabet)
        for group in groups
        if group
    ]


def _atoms_of(group: set[str], atoms: Iterable[g.Atom], alphabet: Alphabet) -> list[g.Atom]:
    return [atom for atom in atoms if {alphabet.fields[f.name].variable for f in g.fields(atom)} & group]


def _component(variables: tuple[str, ...], atoms: list[g.Atom], alphabet: Alphabet) -> Component:
    depth: dict[str, int] = dict.fromkeys(variables, 0)
    for atom in atoms:
        for field in g.fields(atom):
            name = alphabet.fields[field.name].variable
            depth[name] = max(depth[name], field.back)
    if TIME in depth and alphabet.clock:
        # time does not decrease, which relates its values at every two records
        depth[TIME] = max(depth[TIME], 1)
    terms = tuple(g.Field(name, back) for name in variables for back in range(depth[name]))
    comparisons = [atom for atom in atoms if isinstance(atom, g.Compare)]
    constants = [c for a in comparisons for c in (a.left, a.right) if isinstance(c, g.GuardConstant)]
    for _, low, high in (bound for name in variables for bound in alphabet.bounds(name)):
        constants += [g.GuardConstant(bound) for bound in (low, high) if bound is not None]
    fragment = _fragment(variables, atoms, terms, alphabet)
    return Component(variables, terms, tuple(dict.fromkeys(constants)), fragment)


def _fragment(
    variables: tuple[str, ...], atoms: list[g.Atom], terms: tuple[g.Field, ...], alphabet: Alphabet
) -> RealizableFragment:
    if not terms:
        return RealizableFragment.FORGETFUL
    sorts = {alphabet.fields[name].sort for name in variables}
    is_bounded = any(alphabet.bounds(name) for name in variables)
    comparisons = [atom for atom in atoms if isinstance(atom, g.Compare)]
    is_simple = not any(isinstance(term, g.Sum) for atom in comparisons for term in (atom.left, atom.right))
    if sorts == {AttributeType.BOOLEAN}:
        return RealizableFragment.FINITE
    is_single_number = len(sorts) == 1 and all(sort.numeric for sort in sorts) and len(terms) == 1
    if is_single_number and not is_bounded and all(_invariant(atom) for atom in comparisons):
        return RealizableFragment.TRANSLATION
    if TIME in variables and alphabet.clock:
        return (
            RealizableFragment.CLOCK
            if is_simple and all(_against_constant(a) for a in comparisons)
            else RealizableFragment.NONE
        )
    if sorts == {AttributeType.NUMBER} and is_simple:
        return RealizableFragment.DENSE
    only_equality = all(atom.operator in ("=", "!=") for atom in comparisons)
    return (
        RealizableFragment.EQUALITY
        if len(sorts) == 1 and only_equality and is_simple and not is_bounded
        else RealizableFragment.NONE
    )


def _invariant(atom: g.Compare) -> bool:
    """True if adding one amount to all values of a field changes nothing."""
    total: g.Number = 0
    for sign, term in ((1, atom.left), (-1, atom.right)):
        match term:
            case g.Field():
                total += sign
            case g.Sum(terms):
                total += sign * sum(c for c, _ in terms)
    return total == 0


def _against_constant(atom: g.Compare) -> bool:
    return isinstance(atom.left, g.GuardConstant) or isinstance(atom.right, g.GuardConstant)


MAX_CELLS: Final = 800
"""The most cells to search for; each takes z3 some milliseconds."""


class TypeEdge(NamedTuple):
    """A letter, by number, and the type to which it leads."""

    letter: int
    target: int


@dataclass(frozen=True, slots=True)
class TypeGraph:
    """``edges[node]``: the next letters.

    ``letters``: truth values of ``guards``; ``types``: of ``type_guards``.
    """

    guards: tuple[g.Guard, ...]
    letters: tuple[tuple[bool, ...], ...]
    edges: tuple[tuple[TypeEdge, ...], ...]
    type_guards: tuple[g.Guard, ...]
    types: tuple[tuple[bool, ...], ...]
    exact: bool


def type_graphs(guards: Sequence[g.Guard], theory: Satisfiability) -> Iterator[TypeGraph]:
    """The graph without types, in which any letter follows any, then the graph with types if it says more.

    The first is cheap, and a bound found in it holds. Raises TooManyCellsError.
    """
    parts = components(guards, theory.alphabet)
    type_guards = _type_guards(parts, guards, theory.alphabet)
    exact = all(component.fragment is not RealizableFragment.NONE for component in parts)
    yield _graph(guards, (), theory, exact=exact and not type_guards)
    if type_guards:
        yield _graph(guards, type_guards, theory, exact=exact)


def _graph(
    guards: Sequence[g.Guard], type_guards: tuple[g.Guard, ...], theory: Satisfiability, *, exact: bool
) -> TypeGraph:
    previous = [g.shift(guard, 1) for guard in type_guards]
    cells = theory.cells_up_to(MAX_CELLS, [*previous, *guards, *type_guards])
    size = len(type_guards)
    letters: dict[tuple[bool, ...], int] = {}
    types: dict[tuple[bool, ...], int] = {}
    edges: list[tuple[int, TypeEdge]] = []
    for cell in cells:
        source, letter, target = (
            cell.signs[:size],
            cell.signs[size : size + len(guards)],
            cell.signs[size + len(guards) :],
        )
        edge = TypeEdge(letters.setdefault(letter, len(letters)), types.setdefault(target, len(types)))
        edges.append((types.setdefault(source, len(types)), edge))
    successors: list[list[TypeEdge]] = [[] for _ in types]
    for source_type, edge in edges:
        successors[source_type].append(edge)
    return TypeGraph(
        tuple(guards),
        tuple(letters),
        tuple(map(tuple, successors)),
        type_guards,
        tuple(types),
        exact and all(cell.sample is not None for cell in cells),
    )


def _type_guards(
    parts: Sequence[Component], guards: Sequence[g.Guard], alphabet: Alphabet
) -> tuple[g.Guard, ...]:
    """The guards that a type stores about the last records: enough to decide all later guards."""
    type_guards: dict[g.Guard, None] = {}
    for component in parts:
        type_guards.update(dict.fromkeys(_component_guards(component, guards, alphabet)))
    type_guards.update(dict.fromkeys(_relation_guards(guards, alphabet)))
    return tuple(type_guards)


def _component_guards(
    component: Component, guards: Sequence[g.Guard], alphabet: Alphabet
) -> Iterable[g.Guard]:
    terms = component.terms
    yield from (g.IsNull(field) for field in terms if not (field.name == TIME and alphabet.clock))
    sort = alphabet.fields[component.variables[0]].sort
    if component.fragment is RealizableFragment.TRANSLATION:
        return
    if sort is AttributeType.BOOLEAN:
        yield from (g.Compare("=", field, g.GuardConstant(value=True)) for field in terms)
        return
    operators = (
        ("=",)
        if component.fragment is RealizableFragment.EQUALITY or sort is AttributeType.TEXT
        else ("<", "=")
    )
    for operator in operators:
        yield from (g.Compare(operator, a, b) for a, b in combinations(terms, 2))
        yield from (g.Compare(operator, a, c) for a in terms for c in component.constants)
    keywords = dict.fromkeys(
        atom.keyword
        for guard in guards
        for atom in g.atoms(guard)
        if isinstance(atom, g.Contains) and alphabet.fields[atom.field.name].variable in component.variables
    )
    yield from (g.Contains(field, keyword) for field in terms for keyword in keywords)


def _relation_guards(guards: Sequence[g.Guard], alphabet: Alphabet) -> Iterable[g.Guard]:
    """The relations of the last records, if guards look back at all."""
    depth = max((g.back(atom) for guard in guards for atom in g.atoms(guard)), default=0)
    streams = [r.name for r in alphabet.schema.relations if not r.table]
    if len(streams) > 1:
        yield from (g.OfRelation(name, back) for back in range(depth) for name in streams)


MAX_STEPS: Final = 1_000_000

Pair: TypeAlias = tuple[int, int, int]
"""A type, a state of D, a state of E."""
Node = TypeVar("Node")
Walk: TypeAlias = tuple[TypeEdge, ...]


@dataclass(frozen=True, slots=True)
class OverlapPattern:
    """A way for windows to pile up: ``prefix`` (u), ``loop`` (v), and ``suffix``, after which all end."""

    prefix: Walk
    loop: Walk
    suffix: Walk


class _Quad(NamedTuple):
    """A pair, and the state of a second run, to a start and beyond: of D, or of E once it is ``started``."""

    pair: Pair
    started: bool
    state: int


def find_pattern(
    graph: TypeGraph, before: NondeterministicAutomaton, window: NondeterministicAutomaton
) -> OverlapPattern | None:
    """The pattern of one pair of automata; None if there is none. Raises OverBudgetError."""
    with StepBudget(MAX_STEPS, "checking the window") as budget:
        return _Search(graph, before, window, budget).pattern()


class _Search:
    def __init__(
        self,
        graph: TypeGraph,
        before: NondeterministicAutomaton,
        window: NondeterministicAutomaton,
        budget: StepBudget,
    ) -> None:
        self._graph = graph
        self._before = before
        self._window = window
        self._budget = budget
        self._start_nodes = [(node, before.initial) for node in range(len(graph.edges))]
        self._live = self._live_nodes()

    def pattern(self) -> OverlapPattern | None:
        for component in self._cycles():
            nodes = frozenset(component)
            for source in sorted(nodes):
                loop = self._loop(source, nodes)
                if loop is not None:
                    node, state, open_state = source
                    return OverlapPattern(self._prefix((node, state)), loop, self._suffix((node, open_state)))
        return None

    def _cycles(self) -> Iterator[set[Pair]]:
        """The strongly connected components with a cycle, among the pairs that can occur and be live."""
        import networkx as nx  # noqa: PLC0415 - loading takes longer than checking most windows

        pairs: nx.DiGraph[Pair] = nx.DiGraph()
        for node, state in _reachable(self._start_nodes, self._before_steps):
            for open_state in range(len(self._window.table)):
                source = (node, state, open_state)
                if (node, open_state) in self._live:
                    pairs.add_edges_from((source, target) for _, target in self._pair_steps(source))
        for component in nx.strongly_connected_components(pairs):
            first = next(iter(component))
            if len(component) > 1 or pairs.has_edge(first, first):
                yield component

    def _loop(self, source: Pair, nodes: frozenset[Pair]) -> Walk | None:
        """A word from p to p, from q to q, and, by way of a start, from p to q."""

        def steps(quad: _Quad) -> Iterator[tuple[TypeEdge, _Quad]]:
            for edge, target in self._pair_steps(quad.pair):
                if target in nodes:
                    for started, state in self._second_steps(quad, edge.letter):
                        self._budget.spend()
                        yield edge, _Quad(target, started, state)

        first, last = _Quad(source, False, source[1]), _Quad(source, True, source[2])
        return _walk_to([first], steps, lambda quad: quad == last)

    def _second_steps(self, quad: _Quad, letter: int) -> Iterator[tuple[bool, int]]:
        """The steps of the second run: to a start and beyond."""
        moves = (self._window if quad.started else self._before).table[quad.state][letter]
        yield from ((quad.started, state) for state in moves)
        if not quad.started and quad.state in self._before.final:
            yield from ((True, state) for state in self._window.table[self._window.initial][letter])

    def _prefix(self, target: tuple[int, int]) -> Walk:
        """A walk to the loop; empty if the loop may begin immediately."""
        if target in self._start_nodes:
            return ()
        return _walk_to(self._start_nodes, self._before_steps, lambda pair: pair == target) or ()

    def _suffix(self, start: tuple[int, int]) -> Walk:
        """A walk of at least one record to the end of a window."""
        return _walk_to([start], self._window_steps, lambda pair: pair[1] in self._window.final) or ()

    def _live_nodes(self) -> set[tuple[int, int]]:
        """The (type, state of E) pairs from which a window can still end, some records later."""
        sources: defaultdict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        for node in range(len(self._graph.edges)):
            for state in range(len(self._window.table)):
                for _, target in self._window_steps((node, state)):
                    sources[target].append((node, state))
        ends = [pair for pair in sources if pair[1] in self._window.final]
        live = {predecessor for end in ends for predecessor in sources[end]}
        pending = list(live)
        for pair in pending:
            new_nodes = set(sources[pair]) - live if pair in sources else set()
            live |= new_nodes
            pending += new_nodes
        return live

    def _before_steps(self, pair: tuple[int, int]) -> Iterator[tuple[TypeEdge, tuple[int, int]]]:
        return self._steps(pair, self._before)

    def _window_steps(self, pair: tuple[int, int]) -> Iterator[tuple[TypeEdge, tuple[int, int]]]:
        return self._steps(pair, self._window)

    def _steps(
        self, pair: tuple[int, int], automaton: NondeterministicAutomaton
    ) -> Iterator[tuple[TypeEdge, tuple[int, int]]]:
        row = automaton.table[pair[1]]
        for edge in self._edges(pair[0]):
            for state in row[edge.letter]:
                self._budget.spend()
                yield edge, (edge.target, state)

    def _pair_steps(self, pair: Pair) -> Iterator[tuple[TypeEdge, Pair]]:
        node, state, open_state = pair
        before, window = self._before.table[state], self._window.table[open_state]
        for edge in self._edges(node):
            for next_state, next_open in product(before[edge.letter], window[edge.letter]):
                self._budget.spend()
                yield edge, (edge.target, next_state, next_open)

    def _edges(self, node: int) -> tuple[TypeEdge, ...]:
        self._budget.spend()
        return self._graph.edges[node]


def _reachable(
    sources: Iterable[Node], steps: Callable[[Node], Iterable[tuple[TypeEdge, Node]]]
) -> list[Node]:
    """All reachable nodes, nearest first."""
    visited = dict.fromkeys(sources)
    nodes = list(visited)
    for node in nodes:
        for _, target in steps(node):
            if target not in visited:
                visited[target] = None
                nodes.append(target)
    return nodes


def _walk_to(
    sources: Iterable[Node],
    steps: Callable[[Node], Iterable[tuple[TypeEdge, Node]]],
    is_target: Callable[[Node], bool],
) -> Walk | None:
    """A shortest walk of at least one edge to a node that is a target; None if there is none."""
    origins: dict[Node, tuple[TypeEdge, Node] | None] = dict.fromkeys(sources)
    pending = list(origins)
    for node in pending:
        for edge, target in steps(node):
            if is_target(target):
                return _back(origins, node, edge)
            if target not in origins:
                origins[target] = (edge, node)
                pending.append(target)
    return None


def _back(origins: dict[Node, tuple[TypeEdge, Node] | None], node: Node, last: TypeEdge) -> Walk:
    walk = [last]
    step = origins[node]
    while step is not None:
        walk.append(step[0])
        step = origins[step[1]]
    return tuple(reversed(walk))
