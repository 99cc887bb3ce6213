"""Expressions over letters, which describe the order of a pattern's tuples.

A letter is one way to read one tuple: its relation and the variable that marks it. The tuples of a result, in
order, spell a word of letters, and a result is its word and the positions. So two patterns share a result
only if they share a word, and a deterministic automaton over letters gives every result once (the
input-output determinism of complex event recognition). ``Derivatives`` computes the rest of an expression
after a letter (Brzozowski), once for each expression.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import Final, TypeAlias

from skws_schema.budgets import StepBudget


@dataclass(frozen=True, slots=True, order=True)
class TupleLetter:
    """A tuple of a relation (its position in the schema), marked with a variable."""

    relation: int
    variable: str


class _CachedHash:
    """Computes its hash once: expressions are often used as keys, and as deep as the pattern."""

    def __init_subclass__(cls) -> None:
        cls.__hash__ = _CachedHash.__hash__  # type: ignore[method-assign]

    def __hash__(self) -> int:
        attributes = vars(self)
        if "_hash" not in attributes:
            attributes["_hash"] = hash((type(self).__name__, *attributes.values()))
        return int(attributes["_hash"])

    def __getstate__(self) -> dict[str, object]:
        """The fields without the hash, which differs between processes."""
        return {name: value for name, value in vars(self).items() if name != "_hash"}


@dataclass(frozen=True)
class OneTuple(_CachedHash):
    """One tuple."""

    letter: TupleLetter


@dataclass(frozen=True)
class Sequence(_CachedHash):
    """The parts one after the other: all of the first before all of the second, and so on."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True)
class AllOf(_CachedHash):
    """All parts, in any order, of different tuples."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True)
class Alternation(_CachedHash):
    """One of the parts."""

    parts: frozenset[Expression]


@dataclass(frozen=True)
class Star(_CachedHash):
    """Any number of repetitions of the body, one after the other."""

    body: Expression


Expression: TypeAlias = OneTuple | Sequence | AllOf | Alternation | Star

_CACHE_SIZE: Final = 1 << 14
EMPTY: Final = Sequence(())
NOTHING: Final = Alternation(frozenset())


def sequence(*parts: Expression) -> Expression:
    """Parts one after the other, in normal form."""
    flat: list[Expression] = []
    for part in parts:
        if part == NOTHING:
            return NOTHING
        flat += part.parts if isinstance(part, Sequence) else (part,)
    return flat[0] if len(flat) == 1 else Sequence(tuple(flat))


def conjunction(*parts: Expression) -> Expression:
    """Parts in any order, in normal form: the order of the arguments does not matter."""
    flat: list[Expression] = []
    for part in parts:
        if part == NOTHING:
            return NOTHING
        if part != EMPTY:
            flat += part.parts if isinstance(part, AllOf) else (part,)
    if not flat:
        return EMPTY
    return flat[0] if len(flat) == 1 else AllOf(tuple(sorted(flat, key=canonical)))


def alternation(*parts: Expression) -> Expression:
    """One of several parts, in normal form."""
    flat: set[Expression] = set()
    for part in parts:
        flat |= part.parts if isinstance(part, Alternation) else {part}
    return next(iter(flat)) if len(flat) == 1 else Alternation(frozenset(flat))


def star(body: Expression) -> Expression:
    """Any number of repetitions of the body, in normal form."""
    return body if isinstance(body, Star) else Star(body)


def repetition(body: Expression) -> Expression:
    """One or more repetitions of the body, which then occurs twice; a repeated body is returned unchanged."""
    if isinstance(body, Sequence) and body.parts and body.parts[-1] == star(sequence(*body.parts[:-1])):
        return body
    return sequence(body, star(body))


def size(expression: Expression) -> int:
    """The number of places at which a tuple is read."""
    match expression:
        case OneTuple():
            return 1
        case Star(body):
            return size(body)
        case _:
            return sum(map(size, expression.parts))


@lru_cache(_CACHE_SIZE)
def canonical(expression: Expression) -> str:
    """A text by which to order expressions, the same in every process."""
    match expression:
        case OneTuple(letter):
            return f"{letter.relation}.{letter.variable}"
        case Star(body):
            return f"*{canonical(body)}"
        case Alternation(parts):
            return f"|({' '.join(sorted(map(canonical, parts)))})"
        case Sequence(parts) | AllOf(parts):
            return f"{type(expression).__name__}({' '.join(map(canonical, parts))})"


@lru_cache(_CACHE_SIZE)
def letters(expression: Expression) -> frozenset[TupleLetter]:
    match expression:
        case OneTuple(letter):
            return frozenset({letter})
        case Star(body):
            return letters(body)
        case _:
            return frozenset().union(*map(letters, expression.parts))


@lru_cache(_CACHE_SIZE)
def nullable(expression: Expression) -> bool:
    """True if the empty word satisfies it."""
    match expression:
        case OneTuple():
            return False
        case Star():
            return True
        case Alternation(parts):
            return any(map(nullable, parts))
        case _:
            return all(map(nullable, expression.parts))


class Derivatives:
    """The derivatives of the expressions of one pattern; each new part takes a step of the budget."""

    def __init__(self, budget: StepBudget) -> None:
        self._budget = budget
        self._cache: dict[Expression, dict[TupleLetter, Expression]] = {}

    def of(self, expression: Expression) -> dict[TupleLetter, Expression]:
        """The possible first letters, in order, each with the rest of the expression after it."""
        derivatives = self._cache.get(expression)
        if derivatives is None:
            ways_by_letter: defaultdict[TupleLetter, list[Expression]] = defaultdict(list)
            for letter, remainder in self._ways(expression):
                ways_by_letter[letter].append(remainder)
            sorted_ways = sorted(ways_by_letter.items(), key=itemgetter(0))
            derivatives = self._cache[expression] = {
                letter: alternation(*ways) for letter, ways in sorted_ways
            }
        return derivatives

    def overlap(self, first: Expression, second: Expression) -> bool:
        """True if some word satisfies both."""
        pairs, visited = [(first, second)], {(first, second)}
        for left, right in pairs:
            self._budget.spend()
            if nullable(left) and nullable(right):
                return True
            left_derivatives, right_derivatives = self.of(left), self.of(right)
            successors = dict.fromkeys(
                (left_derivatives[letter], right_derivatives[letter])
                for letter in left_derivatives
                if letter in right_derivatives
            )
            pairs += [pair for pair in successors if pair not in visited]
            visited |= successors.keys()
        return False

    def _ways(self, expression: Expression) -> Iterator[tuple[TupleLetter, Expression]]:
        match expression:
            case OneTuple(letter):
                self._budget.spend()
                yield letter, EMPTY
            case Star(body):
                for letter, remainder in self._parts(body, 1):
                    yield letter, sequence(remainder, expression)
            case Alternation(parts):
                for part in parts:
                    yield from self._parts(part, 1)
            case AllOf(parts):
                for i, part in enumerate(parts):
                    for letter, remainder in self._parts(part, len(parts)):
                        yield letter, conjunction(*parts[:i], remainder, *parts[i + 1 :])
            case Sequence(parts):
                for i, part in enumerate(parts):
                    for letter, remainder in self._parts(part, len(parts) - i):
                        yield letter, sequence(remainder, *parts[i + 1 :])
                    if not nullable(part):
                        break

    def _parts(self, part: Expression, size: int) -> Iterator[tuple[TupleLetter, Expression]]:
        """The derivatives of a part of an expression that has ``size`` of them."""
        for letter, remainder in self.of(part).items():
            self._budget.spend(size)
            yield letter, remainder
