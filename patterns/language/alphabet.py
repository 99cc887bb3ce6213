"""The letters of a pattern as bits, and what is asked of sets of them again and again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from patterns.language.expression import Expression, Letter, letters
from patterns.language.resolve import Reading


class Alphabet:
    """Sets of letters and of classes are integers: a bit for each."""

    def __init__(self, readings: Mapping[Letter, Reading]) -> None:
        self._order = sorted(readings)
        self._readings = readings
        self._bit = {letter: 1 << number for number, letter in enumerate(self._order)}
        self._letters: dict[Expression, int] = {}
        self._classes: dict[Expression, int] = {}
        self._alike = _alike(self._order, readings)
        self._coincide: dict[tuple[int, int], bool] = {}

    def letters(self, expression: Expression) -> int:
        """Those that occur in an expression."""
        if expression not in self._letters:
            self._letters[expression] = sum(self._bit[letter] for letter in letters(expression))
        return self._letters[expression]

    def classes(self, expression: Expression) -> int:
        """Those that letters of an expression are in."""
        if expression not in self._classes:
            found = (self._readings[letter].classes for letter in letters(expression))
            self._classes[expression] = sum(1 << number for number in frozenset[int]().union(*found))
        return self._classes[expression]

    def may_coincide(self, first: int, second: int) -> bool:
        """True if one tuple could be read as a letter of each of two sets."""
        pair = first, second
        if pair not in self._coincide:
            self._coincide[pair] = any(self._alike[number] & second for number in _bits(first))
        return self._coincide[pair]

    def variables(self, found: int) -> list[str]:
        """The variables of some letters."""
        return sorted({self._order[number].variable for number in _bits(found)})


def _alike(order: Iterable[Letter], readings: Mapping[Letter, Reading]) -> list[int]:
    """For each letter those that a tuple read as it could be read as, too."""
    of_relation: defaultdict[int, list[tuple[int, Letter]]] = defaultdict(list)
    for number, letter in enumerate(order):
        of_relation[letter.relation].append((number, letter))
    return [
        sum(
            1 << number
            for number, other in of_relation[letter.relation]
            if not readings[letter].unary.excludes(readings[other].unary)
        )
        for letter in order
    ]


def first_bit(mask: int) -> int:
    """The number of the lowest bit."""
    return (mask & -mask).bit_length() - 1


def _bits(mask: int) -> Iterator[int]:
    while mask:
        yield first_bit(mask)
        mask &= mask - 1
