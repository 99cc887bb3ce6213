"""Guards: quantifier-free formulas over the fields of a record and of those before it.

These are the formulas of an alphabet theory (window paper, Definition 1); the
lookback variable x_-j is ``back=j`` here. Every atom with a NULL among its
operands is false, so guards have two truth values and complements are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Final, TypeAlias

Scalar: TypeAlias = str | int | float | bool
Number: TypeAlias = int | float
OPERATORS: Final = ("<", "<=", "=", "!=")


@dataclass(frozen=True, slots=True)
class Field:
    """A field ``back`` records before the current one; ``name`` as in the alphabet."""

    name: str
    back: int = 0

    def __str__(self) -> str:
        return self.name + (f"[-{self.back}]" if self.back else "")


@dataclass(frozen=True, slots=True)
class GuardConstant:
    """A value; timestamps and durations are in microseconds."""

    value: Scalar

    def __str__(self) -> str:
        if isinstance(self.value, bool):
            return "true" if self.value else "false"
        if isinstance(self.value, str):
            return "'" + self.value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        return repr(self.value)


@dataclass(frozen=True, slots=True)
class Sum:
    """A linear combination: coefficients times numeric fields, plus a constant."""

    terms: tuple[tuple[Number, Field], ...]
    constant: Number = 0

    def __str__(self) -> str:
        parts = [f"{c!r} * {f}" if c != 1 else str(f) for c, f in self.terms]
        return " + ".join([*parts, *([repr(self.constant)] if self.constant or not parts else [])])


Term: TypeAlias = Field | GuardConstant | Sum


@dataclass(frozen=True, slots=True)
class Truth:
    """Top or bottom."""

    value: bool

    def __str__(self) -> str:
        return "true" if self.value else "false"


@dataclass(frozen=True, slots=True)
class Compare:
    """``left operator right``, with one of OPERATORS."""

    operator: str
    left: Term
    right: Term

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.right}"


@dataclass(frozen=True, slots=True)
class Contains:
    """The text of a field contains a keyword."""

    field: Field
    keyword: str

    def __str__(self) -> str:
        return f"{self.field}:{GuardConstant(self.keyword)}"


@dataclass(frozen=True, slots=True)
class OfRelation:
    """The record ``back`` records before the current one belongs to the relation."""

    relation: str
    back: int = 0

    def __str__(self) -> str:
        return self.relation + (f"[-{self.back}]" if self.back else "")


@dataclass(frozen=True, slots=True)
class IsNull:
    """The field is NULL, or the record's relation has no such field."""

    field: Field

    def __str__(self) -> str:
        return f"{self.field} is null"


@dataclass(frozen=True, slots=True)
class Not:
    guard: Guard

    def __str__(self) -> str:
        return f"not ({self.guard})"


@dataclass(frozen=True, slots=True)
class And:
    """Conjunction of two or more."""

    guards: tuple[Guard, ...]

    def __str__(self) -> str:
        return " and ".join(f"({g})" if isinstance(g, Or) else str(g) for g in self.guards)


@dataclass(frozen=True, slots=True)
class Or:
    """Disjunction of two or more."""

    guards: tuple[Guard, ...]

    def __str__(self) -> str:
        return " or ".join(map(str, self.guards))


Atom: TypeAlias = Compare | Contains | OfRelation | IsNull
Guard: TypeAlias = Truth | Atom | Not | And | Or

TOP: Final = Truth(True)  # noqa: FBT003, RUF100 - the value is the name
BOTTOM: Final = Truth(False)  # noqa: FBT003, RUF100


def conjunction(guards: Iterable[Guard]) -> Guard:
    """All of ``guards``, flat and without duplicates; top if there are none."""
    return _flatten(guards, And, BOTTOM, TOP)


def disjunction(guards: Iterable[Guard]) -> Guard:
    """Any of ``guards``, flat and without duplicates; bottom if there are none."""
    return _flatten(guards, Or, TOP, BOTTOM)


def negation(guard: Guard) -> Guard:
    match guard:
        case Truth(value):
            return Truth(not value)
        case Not(inner):
            return inner
    return Not(guard)


def _flatten(guards: Iterable[Guard], kind: type[And | Or], absorbing: Truth, neutral: Truth) -> Guard:
    parts: dict[Guard, None] = {}
    for guard in guards:
        if guard == absorbing:
            return absorbing
        if guard != neutral:
            parts.update(dict.fromkeys(guard.guards if isinstance(guard, kind) else (guard,)))
    if len(parts) < 2:
        return next(iter(parts), neutral)
    return kind(tuple(parts))


def atoms(guard: Guard) -> Iterator[Atom]:
    """The atoms of a guard, in the order written, including repeated ones."""
    match guard:
        case Not(inner):
            yield from atoms(inner)
        case And(parts) | Or(parts):
            for part in parts:
                yield from atoms(part)
        case Compare() | Contains() | OfRelation() | IsNull():
            yield guard


def fields(atom: Atom) -> Iterator[Field]:
    match atom:
        case Compare(_, left, right):
            for term in (left, right):
                yield from _fields_of(term)
        case Contains(field) | IsNull(field):
            yield field


def _fields_of(term: Term) -> Iterator[Field]:
    match term:
        case Field():
            yield term
        case Sum(terms):
            yield from (field for _, field in terms)


def lookback(guard: Guard) -> int:
    """The number of records that the guard looks back."""
    return max((back(atom) for atom in atoms(guard)), default=0)


def back(atom: Atom) -> int:
    """The number of records that an atom looks back."""
    if isinstance(atom, OfRelation):
        return atom.back
    return max((field.back for field in fields(atom)), default=0)


def shift(guard: Guard, distance: int) -> Guard:
    """The same guard, as seen from ``distance`` records later: every field is that much further back."""
    return map_atoms(guard, lambda atom: _shift_atom(atom, distance))


def map_atoms(guard: Guard, change: Callable[[Atom], Guard]) -> Guard:
    """The guard with ``change`` applied to each atom."""
    match guard:
        case Not(inner):
            return negation(map_atoms(inner, change))
        case And(parts):
            return conjunction(map_atoms(part, change) for part in parts)
        case Or(parts):
            return disjunction(map_atoms(part, change) for part in parts)
        case Truth():
            return guard
    return change(guard)


def _shift_atom(atom: Atom, distance: int) -> Atom:
    match atom:
        case Compare(operator, left, right):
            return Compare(operator, _shift_term(left, distance), _shift_term(right, distance))
        case Contains(field, keyword):
            return Contains(Field(field.name, field.back + distance), keyword)
        case OfRelation(relation, records):
            return OfRelation(relation, records + distance)
        case IsNull(field):
            return IsNull(Field(field.name, field.back + distance))


def _shift_term(term: Term, distance: int) -> Term:
    match term:
        case Field(name, records):
            return Field(name, records + distance)
        case Sum(terms, constant):
            return Sum(tuple((c, Field(f.name, f.back + distance)) for c, f in terms), constant)
    return term


def add_scaled(left: Sum, right: Sum, factor: Number = 1) -> Sum:
    """``left + factor * right``, with like terms combined; one with the factor 0 must still have a value."""
    terms = [(factor * c, f) for c, f in right.terms]

    def add(sums: dict[Field, Number], term: tuple[Number, Field]) -> dict[Field, Number]:
        return sums | {term[1]: sums.get(term[1], 0) + term[0]}

    coefficients = reduce(add, [*left.terms, *terms], dict[Field, Number]())
    return Sum(tuple((c, f) for f, c in coefficients.items()), left.constant + factor * right.constant)
