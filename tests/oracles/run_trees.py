"""Run trees by their definition (PCEA paper, Section 3): the reference for evaluation, and for ambiguity.

Every tree is built, so this is for small streams.

Automata of queries and patterns are unambiguous by construction. For one made
by hand ``find_ambiguity`` looks for a stream on which it gives a result twice.
That nothing is found up to a length is no proof.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, TypeAlias

from skws_patterns.automata.pcea import PCEA, State, Transition
from skws_patterns.automata.predicates import Compared, Equality, Key, Unary, key
from skws_patterns.evaluation import heap
from skws_schema.comparison import Op
from skws_schema.memory import StepBudget
from skws_schema.model import Row, Value

Valuation: TypeAlias = dict[str, frozenset[int]]


@dataclass(frozen=True, slots=True)
class RunTree:
    """A node (q, i, L) of a run tree with the trees below it; positions grow towards the root."""

    state: State
    position: int
    labels: frozenset[str]
    children: tuple[RunTree, ...] = ()

    def nodes(self) -> Iterator[RunTree]:
        yield self
        for child in self.children:
            yield from child.nodes()

    def valuation(self) -> Valuation:
        """The positions that each label marks."""
        marked: dict[str, set[int]] = {}
        for node in self.nodes():
            for label in node.labels:
                marked.setdefault(label, set()).add(node.position)
        return {label: frozenset(positions) for label, positions in marked.items()}

    def is_simple(self) -> bool:
        """No position is marked twice with the same label."""
        marks = [(node.position, label) for node in self.nodes() for label in node.labels]
        return len(set(marks)) == len(marks)


def runs_at(pcea: PCEA, stream: Sequence[tuple[int, Row]], position: int) -> Iterator[RunTree]:
    """All run trees whose root reads the tuple at a position. ``stream``: (relation, row) by position."""
    for transition in pcea.transitions:
        yield from _by(pcea, stream, position, transition)


def accepting_runs(pcea: PCEA, stream: Sequence[tuple[int, Row]], position: int) -> list[RunTree]:
    """The run trees that accept at a position."""
    return [run for run in runs_at(pcea, stream, position) if run.state in pcea.final]


def _by(
    pcea: PCEA, stream: Sequence[tuple[int, Row]], position: int, transition: Transition
) -> Iterator[RunTree]:
    relation, row = stream[position]
    if not transition.unary.holds(relation, row):
        return
    below = []
    for source in transition.sources:
        wanted = key(source.equality.right, row)
        below.append(
            [
                run
                for earlier in range(position)
                if wanted is not None and left_key(source.equality, *stream[earlier]) == wanted
                for run in runs_at(pcea, stream, earlier)
                if run.state == source.state
            ]
        )
    for children in product(*below):
        yield RunTree(transition.target, position, transition.labels, children)


def left_key(equality: Equality, relation: int, row: Row) -> Key | None:
    """The key of an earlier tuple; None if its relation has none, or a value is NULL."""
    columns = dict(equality.left).get(relation)
    return None if columns is None else key(columns, row)


MOST_RUNS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Ambiguity:
    """A stream of (relation, row), and accepting runs at its end: one not simple, or two of one result."""

    stream: tuple[tuple[int, Row], ...]
    runs: tuple[RunTree, ...]


def find_ambiguity(pcea: PCEA, length: int) -> Ambiguity | None:
    """A shortest ambiguity within ``length`` tuples; None if none is found.

    The tuples tried have one value wherever no test demands another, so that
    every equality predicate holds. Time exponential in ``length``: raises
    OverBudgetError after a million run trees.
    """
    budget = StepBudget(MOST_RUNS, "looking for ambiguity")
    tuples = _tuples(pcea)
    for size in range(1, length + 1):
        for stream in product(tuples, repeat=size):
            budget.spend()
            found = _ambiguous(_accepting(pcea, stream, budget))
            if found:
                return Ambiguity(stream, found)
    return None


def _accepting(pcea: PCEA, stream: tuple[tuple[int, Row], ...], budget: StepBudget) -> Iterator[RunTree]:
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
    """A tuple for every unary predicate that one is found for."""
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
        if isinstance(test, Compared) and test.operator is Op.EQUAL:
            values[test.column] = test.value
    return tuple(values)


def by_label(valuation: heap.Valuation) -> dict[str, frozenset[int]]:
    """The positions that each label marks."""
    marked: dict[str, frozenset[int]] = {}
    for position, labels in valuation:
        for label in labels:
            marked[label] = marked.get(label, frozenset()) | {position}
    return marked
