"""From a hierarchical conjunctive query to an unambiguous PCEA (PCEA paper, Theorem 4.1, Appendix B).

States are the nodes of the compact q-tree: an atom that has been read, or a
variable below which all atoms have been read. The last tuple to arrive below a
variable completes it, and gathers the subtrees that hang from the path between
them.

A tuple may match several atoms at once. Then a variable has several states, one for each set of atoms that
the last tuple matched; sets of different relations share a state, since the tuple's relation distinguishes
them. Without self-joins there is one state for each variable, as in the paper, and an automaton of quadratic
size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product
from typing import Final

from skws_patterns.hcq import FRESH, ConjunctiveQuery, ConstantTerm, Inner, RelationAtom, Term, compact, qtree
from skws_patterns.pcea import (
    PCEA,
    Columns,
    ConstantTest,
    EqualColumns,
    Equality,
    RunSource,
    Test,
    Transition,
    Unary,
)
from skws_schema.budgets import OverBudgetError, StepBudget
from skws_schema.errors import PatternError
from skws_schema.model import Op

# The number of sets of atoms, and so of states, is exponential.
MOST_OF_ONE_RELATION: Final = 10


def self_joins(query: ConjunctiveQuery) -> list[tuple[frozenset[int], Unary]]:
    """SJ_Q: the sets of atoms that one tuple can satisfy together, each with the predicate of such tuples.

    Sets of one atom first. Exponential in the number of atoms of one relation:
    raises PatternError if there are too many.
    """
    atom_sets = []
    relations = {atom.relation for atom in query.atoms}
    by_relation = [[i for i, a in enumerate(query.atoms) if a.relation == r] for r in sorted(relations)]
    for atoms in by_relation:
        if len(atoms) > MOST_OF_ONE_RELATION:
            raise PatternError(
                f"the query has {len(atoms)} atoms of one relation, and at most {MOST_OF_ONE_RELATION} can "
                "be distinguished in every way; write it as a pattern, in which atoms are different tuples"
            )
        for size in range(1, len(atoms) + 1):
            for atom_set in combinations(atoms, size):
                unary = unary_of([query.atoms[i] for i in atom_set])
                if unary is not None:
                    atom_sets.append((frozenset(atom_set), unary))
    return sorted(atom_sets, key=lambda pair: (len(pair[0]), sorted(pair[0])))


def unary_of(atoms: list[RelationAtom]) -> Unary | None:
    """The predicate of tuples that satisfy several atoms of one relation at once; None if there are none."""
    tests: list[Test] = []
    for columns, terms in _classes(atoms):
        constants = [term.value for term in terms if isinstance(term, ConstantTerm)]
        if any(value != constants[0] for value in constants):
            return None
        if constants:
            tests += [ConstantTest(column, Op.EQUAL, constants[0]) for column in columns]
        elif len(columns) > 1 or any(sum(t in atom.terms for atom in atoms) > 1 for t in terms):
            tests.append(EqualColumns(tuple(columns)))  # even for one column: a NULL does not join itself
    return Unary(atoms[0].relation, tuple(tests))


def _classes(atoms: list[RelationAtom]) -> list[tuple[list[int], list[Term]]]:
    """Groups of columns that must be equal, with their terms."""
    groups: list[tuple[set[int], set[Term]]] = []
    for column in range(len(atoms[0].terms)):
        columns, terms = {column}, {atom.terms[column] for atom in atoms} - {None}
        for overlapping in [group for group in groups if group[1] & terms]:
            groups.remove(overlapping)
            columns |= overlapping[0]
            terms |= overlapping[1]
        groups.append((columns, terms))
    return [(sorted(columns), list(terms)) for columns, terms in sorted(groups, key=lambda p: min(p[0]))]


# A query with self-joins and more than this takes too long to compile.
MOST_TRANSITIONS: Final = 20_000
MOST_SOURCES: Final = 200_000


@dataclass(frozen=True, slots=True)
class AtomState:
    """One atom has been read."""

    atom: int

    def __str__(self) -> str:
        return str(self.atom)


@dataclass(frozen=True, slots=True)
class VariableState:
    """All atoms below a variable have been read; ``variant``: the atoms that the last tuple matched."""

    variable: str
    variant: int = 0

    def __str__(self) -> str:
        return self.variable + "'" * self.variant


@dataclass(frozen=True, slots=True)
class _LastTuple:
    """The atoms matched by a tuple that completes a variable."""

    atoms: frozenset[int]
    unary: Unary


def automaton_of(query: ConjunctiveQuery) -> PCEA:
    """The PCEA of a hierarchical query; labels are the positions of the atoms, as texts.

    Raises ValueError if the query is not hierarchical, PatternError if
    self-joins make the automaton too large.
    """
    return _HcqConstruction(query).pcea()


class _HcqConstruction:
    def __init__(self, query: ConjunctiveQuery) -> None:
        self._query = query
        self._tree = compact(qtree(query))
        self._lasts = [_LastTuple(atoms, unary) for atoms, unary in self_joins(query)]
        self._place = {variable: place for place, variable in enumerate(query.variables)}
        self._columns_cache: dict[tuple[frozenset[int] | str, ...], Columns] = {}
        self._variables_cache: dict[frozenset[int], frozenset[str]] = {}
        self._variants = {node.variable: self._variants_of(node) for node in self._tree.inner_nodes()}

    def pcea(self) -> PCEA:
        starts = [
            Transition((), last.unary, self._labels(last), AtomState(*last.atoms))
            for last in self._lasts
            if len(last.atoms) == 1
        ]
        if len(self._query.atoms) == 1:
            return PCEA(tuple(starts), frozenset({AtomState(0)}))
        transitions = list(starts)
        try:
            with StepBudget(MOST_SOURCES, "compiling the query") as budget:
                for transition in self._completions():
                    budget.spend(len(transition.sources))
                    transitions.append(transition)
                    if len(transitions) > MOST_TRANSITIONS:
                        raise self._too_large(f"{MOST_TRANSITIONS:,} transitions")
        except OverBudgetError:
            raise self._too_large(f"{budget.limit:,} sources of transitions") from None
        root = self._tree.variable
        final = {VariableState(root, variant) for variant in range(len(self._variants[root]))}
        return PCEA(tuple(transitions), frozenset(final)).trim()

    def _too_large(self, size: str) -> PatternError:
        if len(self._lasts) == len(self._query.atoms):
            return PatternError(f"the query's automaton has more than {size}: ask for fewer atoms")
        return PatternError(
            "the query's atoms of one relation coincide in too many ways: its automaton has more "
            f"than {size}; write it as a pattern, in which atoms are different tuples"
        )

    def _completions(self) -> Iterator[Transition]:
        for node in self._tree.inner_nodes():
            for variant, lasts in enumerate(self._variants[node.variable]):
                for last in lasts.values():
                    target = VariableState(node.variable, variant)
                    for sources in self._encodings(node, last):
                        yield Transition(sources, last.unary, self._labels(last), target)

    def _variants_of(self, node: Inner) -> list[dict[int, _LastTuple]]:
        """The states of a variable, each with at most one set of atoms for every relation."""
        variants: list[dict[int, _LastTuple]] = []
        counts: Counter[int] = Counter()
        node_atoms = node.atoms()
        for last in self._lasts:
            if last.atoms <= node_atoms:
                relation = last.unary.relation
                index = counts[relation]
                counts[relation] += 1
                if index == len(variants):
                    variants.append({})
                variants[index][relation] = last
        return variants

    def _encodings(self, node: Inner, last: _LastTuple) -> Iterator[tuple[RunSource, ...]]:
        """The ways to have read all atoms below a node except the last tuple's atoms: C of the paper."""
        ways: list[list[RunSource]] = []
        for child in self._remaining_subtrees(node, last):
            if isinstance(child, int):
                atom_last = _LastTuple(frozenset({child}), Unary(self._query.atoms[child].relation))
                ways.append([RunSource(AtomState(child), self._equality([atom_last], last))])
            else:
                ways.append(
                    [
                        RunSource(VariableState(child.variable, i), self._equality(list(v.values()), last))
                        for i, v in enumerate(self._variants[child.variable])
                    ]
                )
        return product(*ways)

    def _remaining_subtrees(self, node: Inner, last: _LastTuple) -> Iterator[Inner | int]:
        """The subtrees that hang from the paths between a node and the last tuple's atoms."""
        for child in node.children:
            if isinstance(child, int):
                if child not in last.atoms:
                    yield child
            elif child.atoms() & last.atoms:
                yield from self._remaining_subtrees(child, last)
            else:
                yield child

    def _equality(self, earlier: list[_LastTuple], later: _LastTuple) -> Equality:
        """The equality predicate over the variables that both have."""
        variables = self._variables(earlier[0]) & self._variables(later)
        for last in earlier[1:]:
            variables &= self._variables(last)
        order = sorted(variables - {FRESH}, key=self._place.__getitem__)
        left = tuple(sorted((last.unary.relation, self._columns(last, order)) for last in earlier))
        return Equality(left, self._columns(later, order))

    def _variables(self, last: _LastTuple) -> frozenset[str]:
        variables = self._variables_cache.get(last.atoms)
        if variables is None:
            variables_of_atoms = (self._query.atoms[i].variables for i in last.atoms)
            variables = self._variables_cache[last.atoms] = frozenset[str]().union(*variables_of_atoms)
        return variables

    def _columns(self, last: _LastTuple, order: list[str]) -> Columns:
        columns = self._columns_cache.get((last.atoms, *order))
        if columns is None:
            atoms = [self._query.atoms[i] for i in sorted(last.atoms)]
            columns = tuple(next(a.column(v) for a in atoms if v in a.variables) for v in order)
            self._columns_cache[last.atoms, *order] = columns
        return columns

    def _labels(self, last: _LastTuple) -> frozenset[str]:
        return frozenset(map(str, last.atoms))
