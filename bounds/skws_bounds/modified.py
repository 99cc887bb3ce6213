"""Preprocessing: splits a query into conjunctions, and turns these into modified queries (Definition 7).

Step 1 of the paper splits on ``!=``. SQL has ``<=`` and ``>=`` as well: over
integers a comparison with a constant becomes strict, all others are split.
Steps 2 and 3 merge streams with equal timestamps, and make upper-bounded ones
finite.

A *node* is an infinite stream, or several whose timestamps are equal, merged
into one; it is named by its aliases.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from skws_bounds.closure import Closure
from skws_bounds.normal_form import Atom, Attr, Constant, Domain, Extreme, Kind, SpjQuery, SpjStream, Term
from skws_schema.budgets import StepBudget
from skws_schema.model import Op

MOST_STEPS: Final = 50_000
"""The most steps to split a union into conjunctions and check these; they take some seconds."""
_CASES: Final = {
    Op.DIFFERENT: (Op.LESS, Op.GREATER),
    Op.AT_MOST: (Op.LESS, Op.EQUAL),
    Op.AT_LEAST: (Op.GREATER, Op.EQUAL),
}


def conjunctions(query: SpjQuery, budget: StepBudget) -> Iterator[SpjQuery]:
    """The disjoint conjunctive queries whose union is ``query``, without contradictory ones.

    Their number is exponential in the number of split atoms. Raises OverBudgetError.
    """
    atoms = tuple(_strict(a) for a in query.atoms)
    simple_atoms = [a for a in atoms if a.op not in _CASES]
    terms = [t for a in atoms for t in (a.left, a.right)]
    open_atoms = [a for a in atoms if a.op in _CASES]
    # Depth first without recursion: there may be many atoms.
    pending = [(Closure(simple_atoms, terms), tuple[Atom, ...]())]
    while pending:
        closure, case_atoms = pending.pop()
        budget.spend()
        if closure.consistent and len(case_atoms) == len(open_atoms):
            yield replace(query, atoms=(*case_atoms, *simple_atoms))
        elif closure.consistent:
            atom = open_atoms[len(case_atoms)]
            cases = [atom.with_op(op) for op in reversed(_CASES[atom.op])]
            pending += [(closure.with_atoms((case,)), (*case_atoms, case)) for case in cases]


def _strict(atom: Atom) -> Atom:
    """``A <= 5`` is ``A < 6`` where A is an integer; a constant comes last."""
    if not isinstance(atom.left, Attr):
        atom = Atom(atom.right, atom.op.converse, atom.left, atom.text, atom.place, atom.assumed)
    shift = {Op.AT_MOST: 1, Op.AT_LEAST: -1}.get(atom.op)
    value = atom.right.value if isinstance(atom.right, Constant) else None
    if shift is None or not isinstance(value, int) or not atom.left.domain.discrete:
        return atom
    op = Op.LESS if shift > 0 else Op.GREATER
    bound = Constant(value + shift, atom.right.domain)
    return Atom(atom.left, op, bound, atom.text, atom.place, atom.assumed, atom.case)


def extremes(attrs: Iterator[Attr] | list[Attr]) -> tuple[Atom, ...]:
    """Atoms that hold each of ``attrs`` between its own extremes."""
    return tuple(
        Atom(a, op, Extreme(a, low), assumed=True)
        for a in attrs
        for op, low in ((Op.GREATER, True), (Op.LESS, False))
    )


@dataclass(frozen=True, eq=False)
class Graph:
    """The dependency graph. ``successors``: for each node the nodes that are later by P+."""

    successors: tuple[frozenset[int], ...]

    @cached_property
    def parents(self) -> tuple[frozenset[int], ...]:
        """For each node the next later nodes; the graph is a forest if each has at most one."""
        return tuple(
            frozenset(p for p in later if not any(p in self.successors[q] for q in later))
            for later in self.successors
        )

    @cached_property
    def component(self) -> tuple[int, ...]:
        """The least node of the connected component of each node."""
        components = list(range(len(self.successors)))
        for _ in self.successors:
            for node, later in enumerate(self.successors):
                for other in (node, *later):
                    components[node] = components[other] = min(components[node], components[other])
        return tuple(components)

    @cached_property
    def _trees(self) -> frozenset[int]:
        broken = {self.component[node] for node, parents in enumerate(self.parents) if len(parents) > 1}
        return frozenset(self.component) - broken

    def is_tree(self, node: int) -> bool:
        """True if the component of ``node`` is a tree (Theorem 1, C1)."""
        return self.component[node] in self._trees

    @cached_property
    def roots(self) -> tuple[int, ...]:
        """The nodes that no other node must follow."""
        return tuple(n for n, parents in enumerate(self.parents) if not parents)

    def depth(self, node: int) -> int:
        """The distance of a node of a tree to its root."""
        (parent,) = self.parents[node] or (None,)
        return 0 if parent is None else 1 + self.depth(parent)

    def children(self, node: int) -> tuple[int, ...]:
        return tuple(n for n, parents in enumerate(self.parents) if node in parents)

    @cached_property
    def subtrees(self) -> tuple[frozenset[int], ...]:
        """Each node of a forest with all nodes below it."""
        nodes = range(len(self.successors))
        return tuple(frozenset(n for n in nodes if n == root or root in self.successors[n]) for root in nodes)


@dataclass(frozen=True, eq=False)
class Modified:
    """A conjunctive query: its closure, its nodes (of infinite streams), finite and static streams."""

    query: SpjQuery
    closure: Closure
    nodes: tuple[tuple[str, ...], ...]
    graph: Graph
    finite: tuple[SpjStream, ...]
    static: tuple[SpjStream, ...]

    @cached_property
    def node_of(self) -> dict[str, int]:
        """The node of each infinite stream, by alias."""
        return {alias: number for number, node in enumerate(self.nodes) for alias in node}

    @cached_property
    def nodes_of_class(self) -> tuple[frozenset[int], ...]:
        return tuple(
            frozenset(
                self.node_of[t.stream] for t in members if isinstance(t, Attr) and t.stream in self.node_of
            )
            for members in self.closure.members
        )

    @cached_property
    def time_classes(self) -> frozenset[int]:
        """The classes of application times."""
        times = {t: n for t, n in self.closure.class_of.items() if t.domain is Domain.TIME}
        return frozenset(times.values())

    @cached_property
    def unbounded(self) -> frozenset[int]:
        """The classes with attributes of nodes whose number of values is infinite."""
        return frozenset(
            n for n, nodes in enumerate(self.nodes_of_class) if nodes and not self.closure.is_bounded(n)
        )

    @cached_property
    def output(self) -> frozenset[int]:
        """The projected classes."""
        return frozenset(self.closure.class_of[t] for t in self.query.output if isinstance(t, Attr))

    @cached_property
    def filtered_attributes(self) -> frozenset[Term]:
        """The attributes in atoms that filter rows, which NULL does not satisfy."""
        atoms = (atom for atom in self.query.atoms if not atom.assumed)
        return frozenset(t for a in atoms for t in (a.left, a.right) if isinstance(t, Attr))

    def name(self, node: int) -> str:
        return "+".join(self.nodes[node])

    def refine(self, atoms: Iterable[Atom]) -> Modified | None:
        """The query with more atoms between attributes of one node and constants; None if contradictory.

        Such atoms change neither the order of times nor the set of finite streams.
        """
        new_atoms = tuple(atoms)
        closure = self.closure.with_atoms(new_atoms)
        return (
            replace(self, query=self.query.with_atoms(*new_atoms), closure=closure)
            if closure.consistent
            else None
        )


def modified(query: SpjQuery) -> Modified | None:
    """A conjunctive query, preprocessed by steps 2 and 3; None if contradictory."""
    extra_terms = [t for t in query.output if isinstance(t, Attr)]
    extra_terms += [s.time for s in query.streams if s.time is not None]
    static = [s for s in query.streams if s.kind is Kind.STATIC]
    first = Closure(query.atoms, extra_terms)
    if not first.consistent:
        return None
    finite = _finite(query, first)
    anchors = [s.alias for s in (*static, *finite)]
    attributes = [t for t in first.class_of if isinstance(t, Attr) and t.stream in anchors and _ordered(t)]
    closure = Closure((*query.atoms, *extremes(attributes)), extra_terms, anchors) if anchors else first
    if not closure.consistent:
        return None
    nodes = _nodes(query, closure, anchors)
    return Modified(query, closure, nodes, _graph(query, closure, nodes), tuple(finite), tuple(static))


def _ordered(attr: Attr) -> bool:
    return attr.domain not in (Domain.TEXT, Domain.TIME)


def _finite(query: SpjQuery, closure: Closure) -> list[SpjStream]:
    """Streams declared finite, or whose time has an upper bound: a constant or a finite stream's time."""
    finite = [s for s in query.streams if s.kind is Kind.FINITE]
    infinite = [s for s in query.streams if s.kind is Kind.INFINITE]
    ends: list[Term] = [t for t in closure.class_of if isinstance(t, Constant) and t.domain is Domain.TIME]
    ends += [s.clock for s in finite]
    for stream in infinite:
        stream_class = closure.class_of[stream.clock]
        if any(closure.class_of[end] == stream_class or closure.less(stream.clock, end) for end in ends):
            finite.append(stream)
    return finite


def _nodes(query: SpjQuery, closure: Closure, anchors: list[str]) -> tuple[tuple[str, ...], ...]:
    groups: dict[int, list[str]] = {}
    for stream in query.streams:
        if stream.alias not in anchors and stream.time is not None:
            groups.setdefault(closure.class_of[stream.time], []).append(stream.alias)
    return tuple(tuple(group) for group in groups.values())


def _graph(query: SpjQuery, closure: Closure, nodes: tuple[tuple[str, ...], ...]) -> Graph:
    times = [closure.class_of[query.stream(node[0]).clock] for node in nodes]
    masks = (closure.above[time] for time in times)
    return Graph(tuple(frozenset(n for n, t in enumerate(times) if mask >> t & 1) for mask in masks))
