"""Symbolic regular expressions (window paper, Definition 3).

A letter is a guard and stands for blocks of k + 1 records; concatenation is
k-concatenation, in which words overlap in k records. Its identity is the set
of all words of length k.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from windows.expressions import guards as g
from windows.expressions.guards import Guard


@dataclass(frozen=True, slots=True)
class Nothing:
    """The empty language."""

    def __str__(self) -> str:
        return "[false]"


@dataclass(frozen=True, slots=True)
class Identity:
    """The words of length k."""

    def __str__(self) -> str:
        return "()"


@dataclass(frozen=True, slots=True)
class Letter:
    """The blocks of k + 1 records whose last record satisfies a guard."""

    guard: Guard

    def __str__(self) -> str:
        return f"[{self.guard}]"


@dataclass(frozen=True, slots=True)
class Either:
    """Union (``+`` in the paper, ``|`` in the language)."""

    left: Regular
    right: Regular

    def __str__(self) -> str:
        return f"{self.left} | {self.right}"


@dataclass(frozen=True, slots=True)
class Then:
    """k-concatenation."""

    first: Regular
    second: Regular

    def __str__(self) -> str:
        return " ".join(f"({r})" if isinstance(r, Either) else str(r) for r in (self.first, self.second))


@dataclass(frozen=True, slots=True)
class Star:
    """Any number of repetitions, none too."""

    inner: Regular

    def __str__(self) -> str:
        return f"{self.inner}*" if isinstance(self.inner, Letter) else f"({self.inner})*"


Regular: TypeAlias = Nothing | Identity | Letter | Either | Then | Star

NOTHING: Final = Nothing()
IDENTITY: Final = Identity()
ANY: Final = Letter(g.TOP)
EVERYTHING: Final = Star(ANY)


def either(left: Regular, right: Regular) -> Regular:
    """Union, simplified where one side says nothing new."""
    if right in (left, NOTHING):
        return left
    if left == NOTHING:
        return right
    if isinstance(left, Letter) and isinstance(right, Letter):
        return Letter(g.disjunction([left.guard, right.guard]))
    return Either(left, right)


def then(first: Regular, second: Regular) -> Regular:
    """k-concatenation, simplified."""
    if NOTHING in (first, second):
        return NOTHING
    if first == IDENTITY:
        return second
    return first if second == IDENTITY else Then(first, second)


def star(inner: Regular) -> Regular:
    """Iteration, simplified."""
    if inner in (NOTHING, IDENTITY):
        return IDENTITY
    return inner if isinstance(inner, Star) else Star(inner)


def sequence(parts: Iterable[Regular]) -> Regular:
    """All of them one after the other; the identity of none."""
    parts = list(parts)
    if len(parts) < 2:
        return parts[0] if parts else IDENTITY
    # In halves, so that long sequences are not deep.
    middle = len(parts) // 2
    return then(sequence(parts[:middle]), sequence(parts[middle:]))


def repeated(inner: Regular, least: int, most: int | None) -> Regular:
    """``least`` to ``most`` repetitions; any number from ``least`` on if ``most`` is None."""
    head = sequence([inner] * least)
    if most is None:
        return then(head, star(inner))
    tail: Regular = IDENTITY
    for _ in range(most - least):
        tail = either(IDENTITY, then(inner, tail))
    return then(head, tail)


def letters(regular: Regular) -> list[Guard]:
    """The guards of all letters in the order written, repeated ones too."""
    match regular:
        case Letter(guard):
            return [guard]
        case Star(inner):
            return letters(inner)
        case Either(a, b) | Then(a, b):
            return letters(a) + letters(b)
    return []
