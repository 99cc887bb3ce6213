"""From S-MSO formulas to window expressions (window paper, Lemma 5).

A letter is a minterm of the formula's guards together with a bit for each free
variable: whether the position is the variable's, or in the variable's set
(Definition 5, the extension of an alphabet by boolean variables).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import and_
from typing import Final, TypeAlias

from schema.budget import Budget
from windows.expressions import guards as g
from windows.expressions.automaton import Transition, automaton
from windows.expressions.closure import minterm, trimmed
from windows.expressions.expression import Pair, WindowExpression
from windows.expressions.finite import Finite, explored
from windows.expressions.logic import (
    BEGIN,
    END,
    Before,
    Conjunction,
    Formula,
    Member,
    Negation,
    Satisfies,
    SomePosition,
    SomeSet,
    guards_of,
)
from windows.expressions.satisfiability import Satisfiability

Bits: TypeAlias = tuple[bool, ...]

MOST_ENTRIES: Final = 10_000_000
"""Entries of the tables of all automata of a formula: some seconds."""


@dataclass(frozen=True, slots=True)
class _Tracked:
    """An automaton over letters with bits: letter * 2^n + bits, the first variable's the lowest."""

    variables: tuple[str, ...]
    automaton: Finite


class _Construction:
    """Automata of formulas over one set of guards; ``signs`` are the letters."""

    def __init__(self, guards: Sequence[g.Guard], signs: Sequence[tuple[bool, ...]]) -> None:
        self._guards = list(guards)
        self._signs = list(signs)
        self._budget = Budget(MOST_ENTRIES, "compiling the formula")

    def of(self, formula: Formula) -> _Tracked:  # noqa: PLR0911 - a case each
        """The words with bits that satisfy a formula, of those with one bit for every position variable."""
        match formula:
            case Satisfies(guard, x):
                place = self._guards.index(guard)
                return self._automaton((x,), lambda seen, signs, bits: seen or (bits[0] and signs[place]))
            case Member(positions, x):
                return self._automaton((positions, x), lambda seen, _, bits: seen or (bits[0] and bits[1]))
            case Before(x, y):
                return self._before(x, y)
            case Negation(inner):
                found = self.of(inner)
                return _Tracked(found.variables, found.automaton.complement())
            case Conjunction(left, right):
                return self.both(self.of(left), self.of(right))
            case SomePosition(x, inner):
                return self._projected(self.both(self.of(inner), self.once(x)), x)
            case SomeSet(positions, inner):
                return self._projected(self.of(inner), positions)

    def once(self, variable: str) -> _Tracked:
        """That a variable's bit is set exactly once."""
        return self._counted((variable,), lambda count, bits: min(count + bits[0], 2), {1})

    def both(self, left: _Tracked, right: _Tracked) -> _Tracked:
        variables = tuple(sorted({*left.variables, *right.variables}))
        a, b = self.widened(left, variables), self.widened(right, variables)
        return _Tracked(variables, a.automaton.product(b.automaton, and_, self._budget))

    def widened(self, given: _Tracked, variables: tuple[str, ...]) -> _Tracked:
        """The same language with bits for more variables, which do not matter."""
        places = [variables.index(name) for name in given.variables]
        size, less = len(variables), len(given.variables)

        def narrowed(letter: int) -> int:
            bits = sum((letter >> place & 1) << i for i, place in enumerate(places))
            return (letter >> size << less) + bits

        self._budget.spend(len(given.automaton.table) * len(self._signs) << size)
        letters = [narrowed(letter) for letter in range(len(self._signs) << size)]
        table = tuple(tuple(row[letter] for letter in letters) for row in given.automaton.table)
        return _Tracked(variables, Finite(given.automaton.initial, table, given.automaton.final))

    def _projected(self, given: _Tracked, variable: str) -> _Tracked:
        """The words that have bits for a variable with which they are accepted (by subsets)."""
        if variable not in given.variables:
            return given
        place = given.variables.index(variable)
        rest = tuple(name for name in given.variables if name != variable)
        table = given.automaton.table

        def step(states: frozenset[int], letter: int) -> frozenset[int]:
            low = letter & ((1 << place) - 1)
            clear = ((letter >> place) << (place + 1)) + low
            return frozenset(table[s][clear + (bit << place)] for s in states for bit in (0, 1))

        start = frozenset([given.automaton.initial])
        final = given.automaton.final
        found = explored(start, step, lambda s: bool(s & final), len(self._signs) << len(rest), self._budget)
        return _Tracked(rest, found.minimised(self._budget))

    def _automaton(
        self, variables: tuple[str, ...], seen: Callable[[bool, tuple[bool, ...], Bits], bool]
    ) -> _Tracked:
        """A language of which one bit of memory tells."""
        size = len(variables)
        ordered = tuple(sorted(variables))
        places = [ordered.index(name) for name in variables]

        def step(state: int, letter: int) -> int:
            bits = tuple(bool(letter >> place & 1) for place in places)
            return int(seen(bool(state), self._signs[letter >> size], bits))

        return _Tracked(ordered, explored(0, step, bool, len(self._signs) << size, self._budget))

    def _counted(
        self, variables: tuple[str, ...], count: Callable[[int, Bits], int], final: set[int]
    ) -> _Tracked:
        size = len(variables)

        def step(state: int, letter: int) -> int:
            return count(state, tuple(bool(letter >> i & 1) for i in range(size)))

        return _Tracked(
            variables, explored(0, step, lambda s: s in final, len(self._signs) << size, self._budget)
        )

    def _before(self, x: str, y: str) -> _Tracked:
        """x, then y, at different positions."""
        ordered = tuple(sorted((x, y)))
        first = ordered.index(x)

        def count(state: int, bits: Bits) -> int:
            if state == 0 and bits[first] and not bits[1 - first]:
                return 1
            return 2 if state == 1 and bits[1 - first] else state

        if x == y:
            return self._counted((x,), lambda state, _: state, set())
        return self._counted(ordered, count, {2})


def window_expression(formula: Formula, k: int, theory: Satisfiability) -> WindowExpression:
    """The window expression of a formula with free variables ``b`` and ``e`` (Lemma 5).

    The automaton of the formula on words that end at e is split at the letter
    that carries the bit of b: a pair for each state before it. Raises
    ValueError for other free variables, or a guard that looks back too far,
    and OverBudgetError: every quantifier over sets may make the automaton
    exponentially larger.
    """
    guards = guards_of(formula)
    if any(g.lookback(guard) > k for guard in guards):
        raise ValueError(f"a guard looks back more than {k} records")
    signs = [cell.signs for cell in theory.cells(guards)]
    made = _Construction(guards, signs)
    found = made.of(formula)
    if not set(found.variables) <= {BEGIN, END}:
        raise ValueError(f"free variables {', '.join(found.variables)}; expected {BEGIN} and {END}")
    for variable in (BEGIN, END):
        found = made.both(found, made.once(variable))
    minterms = [minterm(guards, letter) for letter in signs]
    whole = found.automaton
    pairs = [_split(whole, minterms, state, k) for state in range(len(whole.table))]
    kept = [pair for pair in pairs if pair.before.final and pair.window.final]
    return WindowExpression(tuple(kept or pairs[:1]))


def _split(whole: Finite, minterms: Sequence[g.Guard], state: int, k: int) -> Pair:
    """What leads to a state without b or e, and what leads on from it, b first and e last."""
    size = len(whole.table)
    none, begin, end, both = range(4)  # the bits of (b, e)

    def arcs(bits: int) -> list[Transition]:
        return [
            (p, guard, row[letter * 4 + bits])
            for p, row in enumerate(whole.table)
            for letter, guard in enumerate(minterms)
        ]

    before = automaton(k, size, whole.initial, [state], arcs(none))
    # A new initial state, from which b is read; and a new final one, to which e leads.
    first, last = size, size + 1
    transitions = list(arcs(none))
    transitions += [(first, guard, q) for p, guard, q in arcs(begin) if p == state]
    transitions += [(p, guard, last) for p, guard, q in arcs(end) if q in whole.final]
    transitions += [(first, guard, last) for p, guard, q in arcs(both) if p == state and q in whole.final]
    return Pair(trimmed(before), trimmed(automaton(k, size + 2, first, [last], transitions)))
