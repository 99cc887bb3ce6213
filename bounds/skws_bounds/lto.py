"""Locally totally ordered queries (Definition 6), split only where necessary.

Step 4 of the paper's preprocessing adds atoms until the attributes of each stream and all constants are
totally ordered, which leads to an exponential number of queries. A criterion that holds stays true when atoms
are added: they bound more attributes and make more joins redundant. So a query that passes is not split, and
one that fails is split first at the joins at fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

from skws_bounds.maxref import Failure
from skws_bounds.modified import Modified, modified
from skws_bounds.normal_form import Atom, Attr, Domain, SpjQuery, Term
from skws_bounds.theorems import time_cases
from skws_schema.budgets import StepBudget
from skws_schema.model import Op

MOST_CASES = 2000
"""The most cases of one query; each case has its own synopses."""

Criterion = Callable[[Modified], tuple[Failure, ...]]


@dataclass(frozen=True, slots=True)
class Case:
    """A query with its added atoms, and its failures in all further cases."""

    query: Modified
    failures: tuple[Failure, ...]


def cases(query: SpjQuery, criterion: Criterion) -> Iterator[Case]:
    """Disjoint cases of a conjunctive query, each of which passes or is split completely.

    In each the dependency graph is a forest. Raises OverBudgetError.
    """
    budget = StepBudget(MOST_CASES, "distinguishing orders")
    for forest in forests(query, budget):
        yield from _cases(forest, criterion, budget)


def forests(query: SpjQuery, budget: StepBudget) -> Iterator[Modified]:
    """Split by the order of streams until the dependency graph is a forest. Raises OverBudgetError."""
    budget.spend()
    first_query = modified(query)
    if first_query is None:
        return
    orders = time_cases(first_query)
    if not orders:
        yield first_query
    for atoms in orders:
        yield from forests(query.with_atoms(*atoms), budget)


def _cases(query: Modified, criterion: Criterion, budget: StepBudget) -> Iterator[Case]:
    budget.spend()
    failures = criterion(query)
    orders = pair_orders(query, failures)
    if not orders:
        yield Case(query, failures)
    for atoms in orders:
        case = query.refine(atoms)
        if case is not None:
            yield from _cases(case, criterion, budget)


def pair_orders(query: Modified, failures: tuple[Failure, ...]) -> tuple[tuple[Atom, ...], ...]:
    """The three orders of an unordered pair; none if all pairs are ordered, or no order would help."""
    if not failures or not all(f.joins for f in failures):
        return ()
    for term, first, bound in chain(_pairs_at_fault(query, failures), _local_pairs(query)):
        if term != bound and not query.closure.is_ordered(term, bound):
            return tuple((Atom(term, op, bound, case=True),) for op in (first, first.converse, Op.EQUAL))
    return ()


def _pairs_at_fault(query: Modified, failures: tuple[Failure, ...]) -> Iterator[tuple[Term, Op, Term]]:
    """Pairs with an end of a join at fault, and the order of the first case to try.

    Pairs after which the join may be redundant come first: past a bound of the other side, a comparison
    follows from two with that bound. The case in which the join is not redundant is tried first, since one
    failing case is enough.
    """
    joins = dict.fromkeys(j for f in failures for j in f.joins)
    for join in joins:
        for bound in _comparable_terms(query, join.high):
            if query.closure.less(join.low, bound):
                yield join.high, Op.LESS, bound
        for bound in _comparable_terms(query, join.low):
            if query.closure.less(bound, join.high):
                yield join.low, Op.GREATER, bound
    for end in dict.fromkeys(e for j in joins for e in (j.low, j.high)):
        yield from ((end, Op.GREATER, other) for other in _comparable_terms(query, end))


def _local_pairs(query: Modified) -> Iterator[tuple[Term, Op, Term]]:
    for term in compared_terms(query):
        if isinstance(term, Attr) and term.stream in query.node_of and term.domain is not Domain.TIME:
            yield from ((term, Op.GREATER, bound) for bound in _comparable_terms(query, term))


def _comparable_terms(query: Modified, attr: Attr) -> Iterator[Term]:
    """The terms that a total order of a node orders with ``attr``: constants, and attributes in atoms."""
    for other in query.closure.class_of:
        if other.domain.family is attr.domain.family:
            in_node = (
                isinstance(other, Attr) and query.node_of.get(other.stream) == query.node_of[attr.stream]
            )
            if not isinstance(other, Attr) or (in_node and other in compared_terms(query)):
                yield other


@lru_cache(maxsize=16)
def compared_terms(query: Modified) -> dict[Term, None]:
    """The terms of atoms that filter rows; an order of other attributes would leave out rows with NULL."""
    return dict.fromkeys(t for a in query.query.atoms if not a.assumed for t in (a.left, a.right))
