"""S-MSO formulas by brute force (window paper, Definition 4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, combinations
from typing import TypeAlias

from skws_windows.automata.smso import Before, Conjunction, Formula, Member, Negation, Satisfies, SomeSet
from skws_windows.guards.alphabet import Alphabet, StreamRecord, holds

Assignment: TypeAlias = Mapping[str, int | frozenset[int]]


def satisfied(
    formula: Formula, word: Sequence[StreamRecord], assignment: Assignment, k: int, alphabet: Alphabet
) -> bool:
    """Whether a word satisfies a formula under an assignment of its free variables, by brute force."""
    match formula:
        case Satisfies(guard, position):
            place = _place(assignment, position)
            return holds(guard, word[place - k : place + 1], alphabet)
        case Before(first, second):
            return _place(assignment, first) < _place(assignment, second)
        case Member(positions, position):
            return _place(assignment, position) in _places(assignment, positions)
        case Negation(inner):
            return not satisfied(inner, word, assignment, k, alphabet)
        case Conjunction(left, right):
            return all(satisfied(part, word, assignment, k, alphabet) for part in (left, right))
    values: Iterable[int | frozenset[int]] = range(k, len(word))
    if isinstance(formula, SomeSet):
        values = _subsets(range(k, len(word)))
    inner, name = formula.formula, formula.variable
    return any(satisfied(inner, word, {**assignment, name: value}, k, alphabet) for value in values)


def _place(assignment: Assignment, name: str) -> int:
    value = assignment[name]
    assert isinstance(value, int)
    return value


def _places(assignment: Assignment, name: str) -> frozenset[int]:
    value = assignment[name]
    assert isinstance(value, frozenset)
    return value


def _subsets(places: Sequence[int]) -> Iterable[frozenset[int]]:
    sizes = range(len(places) + 1)
    return map(frozenset, chain.from_iterable(combinations(places, size) for size in sizes))
