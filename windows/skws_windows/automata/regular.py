"""Symbolic regular expressions, their automata, and window expressions (window paper, Definitions 3 and 7).

A letter is a guard and stands for blocks of k + 1 records. Concatenation is
k-concatenation, in which words overlap in k records. Its identity is the set
of all words of length k.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Final, TypeAlias

from skws_windows.automata.k_sla import LookbackAutomaton, Transition, automaton
from skws_windows.guards import guard as g
from skws_windows.guards.guard import Guard


@dataclass(frozen=True, slots=True)
class Nothing:
    """The empty language."""

    def __str__(self) -> str:
        return "[false]"


@dataclass(frozen=True, slots=True)
class FixedLength:
    """The words of length k."""

    def __str__(self) -> str:
        return "()"


@dataclass(frozen=True, slots=True)
class LetterBlock:
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
class Repetition:
    """Any number of repetitions, including none."""

    inner: Regular

    def __str__(self) -> str:
        return f"{self.inner}*" if isinstance(self.inner, LetterBlock) else f"({self.inner})*"


Regular: TypeAlias = Nothing | FixedLength | LetterBlock | Either | Then | Repetition

NOTHING: Final = Nothing()
IDENTITY: Final = FixedLength()
ANY: Final = LetterBlock(g.TOP)
EVERYTHING: Final = Repetition(ANY)


def either(left: Regular, right: Regular) -> Regular:
    """Union, simplified if one side adds nothing."""
    if right in (left, NOTHING):
        return left
    if left == NOTHING:
        return right
    if isinstance(left, LetterBlock) and isinstance(right, LetterBlock):
        return LetterBlock(g.disjunction([left.guard, right.guard]))
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
    return inner if isinstance(inner, Repetition) else Repetition(inner)


def sequence(parts: Iterable[Regular]) -> Regular:
    """Concatenation of all parts; the identity if there are none."""
    parts = list(parts)
    if len(parts) < 2:
        return parts[0] if parts else IDENTITY
    # In halves, so that long sequences do not nest deeply.
    middle = len(parts) // 2
    return then(sequence(parts[:middle]), sequence(parts[middle:]))


def repeat(inner: Regular, least: int, most: int | None) -> Regular:
    """``least`` to ``most`` repetitions; any number from ``least`` on if ``most`` is None."""
    head = sequence([inner] * least)
    if most is None:
        return then(head, star(inner))
    tail: Regular = IDENTITY
    for _ in range(most - least):
        tail = either(IDENTITY, then(inner, tail))
    return then(head, tail)


def letters(regular: Regular) -> list[Guard]:
    """The guards of all letters in the order written, with repetitions."""
    match regular:
        case LetterBlock(guard):
            return [guard]
        case Repetition(inner):
            return letters(inner)
        case Either(a, b) | Then(a, b):
            return letters(a) + letters(b)
    return []


def to_automaton(regular: Regular, k: int) -> LookbackAutomaton:
    """Glushkov's automaton: a state for each letter, and the initial one; guards may look back at most k."""
    positions = _Positions()
    root = positions.of(regular)
    transitions: list[Transition] = [(0, positions.guards[q], q + 1) for q in root.first]
    transitions += [(p + 1, positions.guards[q], q + 1) for p, q in positions.follow]
    final = [p + 1 for p in root.last] + ([0] if root.empty else [])
    return automaton(k, len(positions.guards) + 1, 0, final, transitions)


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of an expression: whether it can be empty, and the letters with which it can begin and end."""

    empty: bool
    first: tuple[int, ...] = ()
    last: tuple[int, ...] = ()


@dataclass(slots=True)
class _Positions:
    """The letters read so far, and the letters that may follow each."""

    guards: list[Guard] = field(default_factory=list)
    follow: dict[tuple[int, int], None] = field(default_factory=dict)

    def of(self, regular: Regular) -> _Part:
        match regular:
            case Nothing():
                return _Part(False)
            case FixedLength():
                return _Part(True)
            case LetterBlock(guard):
                self.guards.append(guard)
                position = (len(self.guards) - 1,)
                return _Part(False, position, position)
            case Repetition(inner):
                body = self.of(inner)
                self._link(body, body)
                return _Part(True, body.first, body.last)
            case Either(left, right):
                a, b = self.of(left), self.of(right)
                return _Part(a.empty or b.empty, a.first + b.first, a.last + b.last)
            case Then(left, right):
                a, b = self.of(left), self.of(right)
                self._link(a, b)
                first = a.first + b.first if a.empty else a.first
                return _Part(a.empty and b.empty, first, a.last + b.last if b.empty else b.last)

    def _link(self, first: _Part, second: _Part) -> None:
        self.follow.update(dict.fromkeys((p, q) for p in first.last for q in second.first))


class Selection(StrEnum):
    """The windows that are selected.

    ``every``: all. ``longest``: of the windows that end at one record, the one that
    begins first. ``first``: a window begins only while none is open, and ends
    at the first possible record.
    """

    EVERY = "every"
    FIRST = "first"
    LONGEST = "longest"


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on windows: records in them, and microseconds from first to last record. None: no bound."""

    least: int = 1
    most: int | None = None
    within: int | None = None

    @property
    def bounding(self) -> bool:
        """True if the limits keep windows from growing without bound."""
        return self.most is not None or self.within is not None

    @property
    def any(self) -> bool:
        return self.bounding or self.least > 1


NO_LIMITS: Final = Limits()


@dataclass(frozen=True)
class Pair:
    """(r, r'): the automaton of the records before a window, and the automaton of the window itself."""

    before: LookbackAutomaton
    window: LookbackAutomaton

    @classmethod
    def of(cls, before: Regular, window: Regular, k: int) -> Pair:
        return cls(to_automaton(before, k), to_automaton(window, k))


@dataclass(frozen=True)
class WindowExpression:
    """A set of pairs with one lookback; (ib, ie) is a window if it is one of some pair.

    That is, for k <= ib <= ie: w[0:ib-1] is in L(r) and w[ib-k:ie] in L(r').
    ``per`` names the fields whose values first split the stream.
    """

    pairs: tuple[Pair, ...]
    selection: Selection = Selection.EVERY
    limits: Limits = NO_LIMITS
    per: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.pairs:
            raise ValueError("a window expression needs a pair")
        if len({a.k for pair in self.pairs for a in (pair.before, pair.window)}) > 1:
            raise ValueError("all automata of a window expression have the same lookback")

    @property
    def k(self) -> int:
        return self.pairs[0].before.k

    @cached_property
    def guards(self) -> tuple[g.Guard, ...]:
        """The distinct guards of all automata; each is evaluated once per record."""
        all_guards = (guard for p in self.pairs for a in (p.before, p.window) for guard in a.guards)
        return tuple(dict.fromkeys(all_guards))


def lookback_of(regulars: list[Regular]) -> int:
    """The lookback that the guards of regular expressions need."""
    return max((g.lookback(guard) for regular in regulars for guard in letters(regular)), default=0)


def expression(
    pairs: list[tuple[Regular, Regular]],
    k: int | None = None,
    selection: Selection = Selection.EVERY,
    limits: Limits = NO_LIMITS,
    per: tuple[str, ...] = (),
) -> WindowExpression:
    """A window expression of pairs (r, r'); its lookback is that of their guards unless ``k`` is larger."""
    lookback = lookback_of([side for pair in pairs for side in pair])
    k = max(lookback, k or 0)
    return WindowExpression(tuple(Pair.of(a, b, k) for a, b in pairs), selection, limits, per)
