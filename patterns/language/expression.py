"""Expressions over letters: what a pattern says about the order of tuples, and their derivatives.

A letter is one way to read one tuple: its relation and the variable it is
marked with. The tuples of a result, in order, spell a word of letters, and a
result is its word and the positions. So two patterns have a result in common
only if they have a word in common, and a deterministic automaton over letters
gives every result once (the input-output determinism of complex event
recognition).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final, TypeAlias


@dataclass(frozen=True, slots=True, order=True)
class Letter:
    """A tuple of a relation (its position in the schema), marked with a variable."""

    relation: int
    variable: str


@dataclass(frozen=True, slots=True)
class Read:
    """One tuple."""

    letter: Letter


@dataclass(frozen=True, slots=True)
class Sequence:
    """All of the first part before all of the second, and so on."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Conjunction:
    """All parts, in any order, of different tuples."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Alternation:
    """One of the parts."""

    parts: frozenset[Expression]


@dataclass(frozen=True, slots=True)
class Star:
    """Any number of times the body, one after the other."""

    body: Expression


Expression: TypeAlias = Read | Sequence | Conjunction | Alternation | Star

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
    """Parts in any order, in normal form: equal ones give equal expressions however they are ordered."""
    flat: list[Expression] = []
    for part in parts:
        if part == NOTHING:
            return NOTHING
        if part != EMPTY:
            flat += part.parts if isinstance(part, Conjunction) else (part,)
    if not flat:
        return EMPTY
    return flat[0] if len(flat) == 1 else Conjunction(tuple(sorted(flat, key=canonical)))


def alternation(*parts: Expression) -> Expression:
    """One of several parts, in normal form."""
    flat: set[Expression] = set()
    for part in parts:
        flat |= part.parts if isinstance(part, Alternation) else {part}
    return next(iter(flat)) if len(flat) == 1 else Alternation(frozenset(flat))


def star(body: Expression) -> Expression:
    """Any number of times the body, in normal form."""
    return body if isinstance(body, Star) else Star(body)


def repeated(body: Expression) -> Expression:
    """One or more times the body, which then stands there twice; of what is repeated already, itself."""
    if isinstance(body, Sequence) and body.parts and body.parts[-1] == star(sequence(*body.parts[:-1])):
        return body
    return sequence(body, star(body))


def size(expression: Expression) -> int:
    """How many times a tuple is read in it."""
    match expression:
        case Read():
            return 1
        case Star(body):
            return size(body)
        case _:
            return sum(map(size, expression.parts))


@cache
def canonical(expression: Expression) -> str:
    """A text that is the same for equal expressions in every run: what to order them by."""
    match expression:
        case Read(letter):
            return f"{letter.relation}.{letter.variable}"
        case Star(body):
            return f"*{canonical(body)}"
        case Alternation(parts):
            return f"|({' '.join(sorted(map(canonical, parts)))})"
        case Sequence(parts) | Conjunction(parts):
            return f"{type(expression).__name__}({' '.join(map(canonical, parts))})"


@cache
def letters(expression: Expression) -> frozenset[Letter]:
    """The letters that occur."""
    match expression:
        case Read(letter):
            return frozenset({letter})
        case Star(body):
            return letters(body)
        case _:
            return frozenset().union(*map(letters, expression.parts))


@cache
def nullable(expression: Expression) -> bool:
    """True if no tuple at all is a way to satisfy it."""
    match expression:
        case Read():
            return False
        case Star():
            return True
        case Alternation(parts):
            return any(map(nullable, parts))
        case _:
            return all(map(nullable, expression.parts))


@cache
def derivative(expression: Expression, letter: Letter) -> Expression:
    """What is left to satisfy after a letter (Brzozowski); NOTHING if the letter cannot come first."""
    match expression:
        case Read(known):
            return EMPTY if known == letter else NOTHING
        case Star(body):
            return sequence(derivative(body, letter), expression)
        case Alternation(parts):
            return alternation(*(derivative(part, letter) for part in parts))
        case Conjunction(parts):
            return alternation(
                *(
                    conjunction(*parts[:i], derivative(part, letter), *parts[i + 1 :])
                    for i, part in enumerate(parts)
                )
            )
        case Sequence(parts):
            ways = []
            for i, part in enumerate(parts):
                ways.append(sequence(derivative(part, letter), *parts[i + 1 :]))
                if not nullable(part):
                    break
            return alternation(*ways)


def in_common(first: Expression, second: Expression) -> bool:
    """True if some word satisfies both."""
    waiting, seen = [(first, second)], {(first, second)}
    while waiting:
        one, other = waiting.pop()
        if nullable(one) and nullable(other):
            return True
        for letter in letters(one) & letters(other):
            following = derivative(one, letter), derivative(other, letter)
            if NOTHING not in following and following not in seen:
                seen.add(following)
                waiting.append(following)
    return False
