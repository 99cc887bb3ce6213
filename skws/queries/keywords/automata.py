"""Automata that evaluate candidate networks instead of the mesh, if their joins are hierarchical.

A network is a conjunctive query over the nodes of the expanded schema. If the
query is hierarchical, an automaton finds its results without partial ones
(PCEA paper, Theorem 4.1). The automaton ignores deletions, the order of
keywords, and tuples at two nodes; its results are filtered by these.
Docs: ``patterns/README.md``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations, islice
from typing import Final

import numpy as np

from skws.keywords.plan import Plan
from skws.spec.enums import EvaluatorName
from skws_mesh.cngen import CNGen
from skws_mesh.columnar.columns import NOTHING, Flags, Ints, TupleColumns
from skws_mesh.columnar.store import NO_MEMBER, Partials
from skws_mesh.networks import Prefix, prefix_of
from skws_mesh.sequence import FREE
from skws_mesh.tree import Tree
from skws_patterns.evaluator import Evaluator, Valuation
from skws_patterns.hcq import Atom, ConjunctiveQuery, Variable, is_hierarchical
from skws_patterns.hcq_automaton import automaton_of
from skws_schema.graph import edges
from skws_schema.model import Row, Schema
from skws_windows.window import TimeWindow, Unbounded, Window

_PAIR: Final = 2
MOST_NETWORKS: Final = 500
"""With more networks the mesh evaluates all: it makes operators on first use, so none is enumerated."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Whether an automaton evaluates a network, and why."""

    tree: Tree
    automaton: bool
    reason: str


def choices(generator: CNGen, *, everything: bool) -> list[Choice] | None:
    """The choice for each network; None if there are too many.

    ``everything``: automata evaluate all networks they can; else those whose partial results could pile up.
    """
    networks = list(islice(generator.networks(), MOST_NETWORKS + 1))
    if len(networks) > MOST_NETWORKS:
        return None
    return [_choice(generator.schema, tree, everything=everything) for tree in networks]


def choices_of(plan: Plan, generator: CNGen | None = None) -> list[Choice] | None:
    """The choice for each network of a plan; None if the mesh evaluates all."""
    if not plan.by_automata:
        return None
    generator = generator or plan.generator()
    return choices(generator, everything=plan.evaluated_by == EvaluatorName.AUTOMATA)


def networks_apart(plan: Plan, generator: CNGen) -> tuple[Tree, ...]:
    """The networks of a plan that automata evaluate."""
    return tuple(choice.tree for choice in choices_of(plan, generator) or () if choice.automaton)


def _choice(schema: Schema, tree: Tree, *, everything: bool) -> Choice:
    against = _impossible(schema, tree) or ("" if everything else _slower(tree))
    return Choice(tree, not against, against or "its joins are hierarchical: no partial results are made")


def _impossible(schema: Schema, tree: Tree) -> str:
    """Why no automaton can evaluate a network; empty if one can."""
    if len(tree.relations) == 1:
        return "it joins nothing"
    if any(schema.relations[relation].table for relation in tree.relations):
        return "static tables have no place in time"
    return "" if is_hierarchical(network_query(schema, tree)) else "its joins are not hierarchical"


def _slower(tree: Tree) -> str:
    """Why the mesh is faster, by measurement; empty if it is not."""
    if not all(tree.keywords):
        return "it joins tuples without keywords, of which there are many"
    return "" if len(tree.relations) > _PAIR else "a pair of tuples has no partial results to spare"


def network_query(schema: Schema, tree: Tree) -> ConjunctiveQuery:
    """A network as a query: an atom for each node; joined columns share a variable."""
    walked = edges(schema)
    classes: dict[tuple[int, int], str] = {}
    for node in range(1, len(tree.relations)):
        edge = walked[tree.edges[node]]
        for near, far in zip(edge.source_columns, edge.target_columns, strict=True):
            _merge(classes, (tree.parents[node], near), (node, far))
    atoms = []
    for node, relation in enumerate(tree.relations):
        columns = range(len(schema.relations[relation].attributes))
        names = [classes.get((node, column)) for column in columns]
        atoms.append(Atom(relation, tuple(None if name is None else Variable(name) for name in names)))
    return ConjunctiveQuery(tuple(dict.fromkeys(classes.values())), tuple(atoms))


def _merge(classes: dict[tuple[int, int], str], one: tuple[int, int], other: tuple[int, int]) -> None:
    name = classes.setdefault(one, f"v{len(classes)}")
    former = classes.get(other, name)
    classes[other] = name
    for place, known in classes.items():
        if known == former:
            classes[place] = name


class NetworkAutomata:
    """The automata of one query. Tuples come in order of their start, by slot.

    ``networks``: by the numbers of their operators.
    """

    def __init__(self, generator: CNGen, window: Window, networks: dict[int, Tree]) -> None:
        self._sequence = generator.sequence
        self._width = generator.max_size
        self._bits = generator.slots + 1  # one for excluded tuples
        self._ids: Ints = NOTHING  # by slot: numbers of tuples, which stay when slots change
        self._next = 0
        self._networks = networks
        self._evaluators: list[tuple[int, Evaluator]] = []
        self._reading: defaultdict[int, list[int]] = defaultdict(list)
        for operator, tree in networks.items():
            self._evaluators.append((operator, self._evaluator(generator.schema, window, tree)))
        self._read = np.array(sorted(self._reading), dtype=np.int64)

    def insert(self, first: int, tuples: TupleColumns, labels: Ints, row: Callable[[int], Row]) -> Partials:
        """The results that the tuples from slot ``first`` on complete, given their labels; of query 0.

        ``row`` gives the row of a slot.
        """
        nodes = tuples.relation[first:] << self._bits | labels
        self._number(first)
        ids = self._number(len(tuples))
        read = np.flatnonzero(np.isin(nodes, self._read))
        columns = (nodes[read].tolist(), ids[read].tolist(), tuples.start[first + read].tolist())
        found: defaultdict[int, list[list[int]]] = defaultdict(list)
        for node, number, tick, slot in zip(*columns, (first + read).tolist(), strict=True):
            values = row(slot)
            for place in self._reading[node]:
                operator, evaluator = self._evaluators[place]
                evaluator.position = number - 1
                if evaluator.update(node, values, tick):
                    found[operator] += map(self._members, evaluator.results())
        parts = [self._filtered(operator, members, tuples) for operator, members in found.items()]
        return Partials.together([Partials.none(self._width), *parts])

    def compact(self, slots: Ints) -> None:
        """Tuples have got new slots."""
        self._number(len(slots))
        self._ids = self._ids[slots >= 0]

    def _number(self, slots: int) -> Ints:
        """Ids for slots that have none yet, rows of tables among them."""
        ids = np.arange(self._next, self._next + slots - len(self._ids), dtype=np.int64)
        self._next += len(ids)
        self._ids = np.concatenate([self._ids, ids])
        return ids

    def _evaluator(self, schema: Schema, window: Window, tree: Tree) -> Evaluator:
        query = network_query(schema, tree)
        nodes = [r << self._bits | k for r, k in zip(tree.relations, tree.keywords, strict=True)]
        atoms = tuple(Atom(node, atom.terms) for node, atom in zip(nodes, query.atoms, strict=True))
        pcea = automaton_of(ConjunctiveQuery(query.head, atoms))
        for node in pcea.relations:
            self._reading[node].append(len(self._evaluators))
        # Whatever ticks count, a window is a number of ticks.
        span = Unbounded() if isinstance(window, Unbounded) else TimeWindow(window.end(0))
        return Evaluator(pcea, len(schema.relations) << self._bits, span)

    def _members(self, valuation: Valuation) -> list[int]:
        members = [-1] * self._width
        for number, labels in valuation:
            for label in labels:
                members[int(label)] = number
        return members

    def _filtered(self, operator: int, found: list[list[int]], tuples: TupleColumns) -> Partials:
        """The results of distinct tuples that are alive at one instant, and in the order of keywords."""
        tree = self._networks[operator]
        size = len(tree.relations)
        ids = np.array(found, dtype=np.int64)
        members = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
        there = (self._ids[members] == ids)[:, :size].all(axis=1)
        members[:, size:] = NO_MEMBER
        start, end = tuples.start[members[:, :size]], tuples.end[members[:, :size]]
        kept = there & (start.max(axis=1) < end.min(axis=1))
        for one, other in combinations(range(size), 2):
            kept &= members[:, one] != members[:, other]
            ranks = [self._sequence.rank(tree.keywords[node]) for node in (one, other)]
            if FREE not in ranks and ranks[0] != ranks[1]:
                kept &= _before(tuples, members[:, one], members[:, other]) == (ranks[0] < ranks[1])
        chosen = np.flatnonzero(kept)
        numbers = np.full(len(chosen), operator, dtype=np.int64)
        return Partials(
            np.zeros_like(numbers),
            numbers,
            members[chosen],
            start[chosen].max(axis=1),
            end[chosen].min(axis=1),
        )


def _before(tuples: TupleColumns, one: Ints, other: Ints) -> Flags:
    """Whether tuples came before others; undefined for equal tuples."""
    first, second = tuples.start[one], tuples.start[other]
    earlier: Flags = (first < second) | ((first == second) & (tuples.place[one] < tuples.place[other]))
    return earlier


def prefixes(trees: list[Tree]) -> frozenset[Prefix]:
    """Networks and their prefixes: the operators that the mesh needs for them."""
    return frozenset(prefix_of(tree, size) for tree in trees for size in range(1, len(tree.relations) + 1))
