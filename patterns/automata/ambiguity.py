"""Whether an automaton can give a result twice: a search for a stream on which it does.

Automata of queries and patterns are unambiguous by construction. For one made
by hand this finds what is wrong with it, if it shows on a short stream; that
nothing is found up to a length is no proof.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Final

from patterns.automata.pcea import PCEA
from patterns.automata.predicates import Compared, Operator, Unary
from patterns.automata.runs import RunTree, runs_at
from schema.budget import Budget
from schema.model import Row, Value

MOST_RUNS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Ambiguity:
    """A stream of (relation, row), and what accepts at its end: a run not simple, or two of one result."""

    stream: tuple[tuple[int, Row], ...]
    runs: tuple[RunTree, ...]


def find_ambiguity(pcea: PCEA, length: int) -> Ambiguity | None:
    """An ambiguity that shows within ``length`` tuples, a shortest one; None if none is found.

    The tuples tried have one value wherever no test asks for another, so that
    every equality predicate holds. Time exponential in ``length``: raises
    OverBudgetError after a million run trees.
    """
    budget = Budget(MOST_RUNS, "looking for ambiguity")
    tuples = _tuples(pcea)
    for size in range(1, length + 1):
        for stream in product(tuples, repeat=size):
            budget.spend()
            found = _ambiguous(_accepting(pcea, stream, budget))
            if found:
                return Ambiguity(stream, found)
    return None


def _accepting(pcea: PCEA, stream: tuple[tuple[int, Row], ...], budget: Budget) -> Iterator[RunTree]:
    for run in runs_at(pcea, stream, len(stream) - 1):
        budget.spend()
        if run.state in pcea.final:
            yield run


def _ambiguous(runs: Iterable[RunTree]) -> tuple[RunTree, ...]:
    known: dict[frozenset[tuple[str, frozenset[int]]], RunTree] = {}
    for run in runs:
        if not run.is_simple():
            return (run,)
        result = frozenset(run.valuation().items())
        if result in known:
            return known[result], run
        known[result] = run
    return ()


def _tuples(pcea: PCEA) -> list[tuple[int, Row]]:
    """A tuple for every unary predicate for which one is found."""
    width = 1 + max(_columns(pcea), default=0)
    made = {unary: _row(unary, width) for unary in dict.fromkeys(t.unary for t in pcea.transitions)}
    rows = ((unary.relation, row) for unary, row in made.items() if unary.holds(unary.relation, row))
    return list(dict.fromkeys(rows))


def _columns(pcea: PCEA) -> Iterator[int]:
    for transition in pcea.transitions:
        for source in transition.sources:
            yield from source.equality.right
            for _, columns in source.equality.left:
                yield from columns
        for test in transition.unary.tests:
            yield from (test.column,) if isinstance(test, Compared) else test.columns


def _row(unary: Unary, width: int) -> Row:
    values: list[Value] = [0] * width
    for test in unary.tests:
        if isinstance(test, Compared) and test.operator is Operator.EQUAL:
            values[test.column] = test.value
    return tuple(values)
