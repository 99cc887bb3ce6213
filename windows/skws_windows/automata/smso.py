"""Symbolic monadic second-order logic, S-MSO, and its window expressions (window paper, Definitions 4 and 6).

Positions range over [k, |w| - 1]. In a formula that defines windows, the free
variables ``b`` and ``e`` are the first and last position of a window, and every
quantifier ranges over positions up to e. In this guarded fragment, the records
up to e decide whether a window ends there. ``window_expression`` turns a formula
into a window expression (Lemma 5).

Its automata read letters. A letter is a minterm of the formula's guards together with a bit for each free
variable: True if the position is that of the variable, or is in the variable's set
(Definition 5, the extension of an alphabet by boolean variables).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import and_
from typing import Final, TypeAlias

from skws_schema.budgets import StepBudget
from skws_windows.automata.k_sla import (
    DeterministicAutomaton,
    Transition,
    automaton,
    explore,
    minterm,
    reachable,
    trim,
)
from skws_windows.automata.regular import Pair, WindowExpression
from skws_windows.guards import guard as g
from skws_windows.guards.satisfiability import Satisfiability

BEGIN: Final = "b"
END: Final = "e"


@dataclass(frozen=True, slots=True)
class Satisfies:
    """[guard](x): the records up to position x satisfy a guard."""

    guard: g.Guard
    position: str


@dataclass(frozen=True, slots=True)
class Precedes:
    """x < y."""

    first: str
    second: str


@dataclass(frozen=True, slots=True)
class Member:
    """X(x): a position is in a set."""

    set: str
    position: str


@dataclass(frozen=True, slots=True)
class Negation:
    formula: Formula


@dataclass(frozen=True, slots=True)
class Conjunction:
    left: Formula
    right: Formula


@dataclass(frozen=True, slots=True)
class SomePosition:
    variable: str
    formula: Formula


@dataclass(frozen=True, slots=True)
class SomeSet:
    variable: str
    formula: Formula


Formula: TypeAlias = Satisfies | Precedes | Member | Negation | Conjunction | SomePosition | SomeSet


def either(left: Formula, right: Formula) -> Formula:
    return Negation(Conjunction(Negation(left), Negation(right)))


def implies(left: Formula, right: Formula) -> Formula:
    return Negation(Conjunction(left, Negation(right)))


def all_of(formulas: Iterable[Formula]) -> Formula:
    """The conjunction of one or more formulas."""
    return _fold(list(formulas), Conjunction)


def any_of(formulas: Iterable[Formula]) -> Formula:
    """The disjunction of one or more formulas."""
    return _fold(list(formulas), either)


def _fold(formulas: list[Formula], combine: Callable[[Formula, Formula], Formula]) -> Formula:
    """All formulas, joined in halves so that a long list does not nest deeply."""
    if len(formulas) == 1:
        return formulas[0]
    middle = len(formulas) // 2
    return combine(_fold(formulas[:middle], combine), _fold(formulas[middle:], combine))


def at_most(first: str, second: str) -> Formula:
    """X <= y."""
    return Negation(Precedes(second, first))


def guards_of(formula: Formula) -> list[g.Guard]:
    """The distinct guards of a formula, in the order written."""
    match formula:
        case Satisfies(guard, _):
            return [guard]
        case Conjunction(left, right):
            return list(dict.fromkeys(guards_of(left) + guards_of(right)))
        case Negation(inner) | SomePosition(_, inner) | SomeSet(_, inner):
            return guards_of(inner)
    return []


Bits: TypeAlias = tuple[bool, ...]

MOST_ENTRIES: Final = 10_000_000
"""The most entries of the tables of all automata of a formula; they take some seconds."""
_PER_TRANSITION: Final = 10
"""The number of entries that take as long as one transition of a pair."""
MOST_LETTERS: Final = 256
"""The most combinations of a formula's guards; each takes z3 some milliseconds."""


@dataclass(frozen=True, slots=True)
class _TrackedAutomaton:
    """An automaton over letters with bits: letter * 2^n + bits, with the bit of the first variable lowest."""

    variables: tuple[str, ...]
    automaton: DeterministicAutomaton


class _FormulaConstruction:
    """Automata of formulas over one set of guards; ``signs`` are the letters."""

    def __init__(self, guards: Sequence[g.Guard], signs: Sequence[Bits], budget: StepBudget) -> None:
        self._guards = list(guards)
        self._signs = list(signs)
        self._budget = budget

    def of(self, formula: Formula) -> _TrackedAutomaton:  # noqa: PLR0911 - one case each
        """The words with bits that satisfy a formula, if every position variable has exactly one bit."""
        match formula:
            case Satisfies(guard, x):
                index = self._guards.index(guard)
                return self._automaton(
                    (x,), lambda accepted, signs, bits: accepted or (bits[0] and signs[index])
                )
            case Member(positions, x):
                return self._automaton(
                    (positions, x), lambda accepted, _, bits: accepted or (bits[0] and bits[1])
                )
            case Precedes(x, y):
                return self._precedes(x, y)
            case Negation(inner):
                tracked = self.of(inner)
                return _TrackedAutomaton(tracked.variables, tracked.automaton.complement())
            case Conjunction(left, right):
                return self.intersection(self.of(left), self.of(right))
            case SomePosition(x, inner):
                return self._project(self.intersection(self.of(inner), self.once(x)), x)
            case SomeSet(positions, inner):
                return self._project(self.of(inner), positions)

    def once(self, variable: str) -> _TrackedAutomaton:
        """The words in which a variable's bit is set exactly once."""
        return self._counter((variable,), lambda count, bits: min(count + bits[0], 2), {1})

    def intersection(self, left: _TrackedAutomaton, right: _TrackedAutomaton) -> _TrackedAutomaton:
        variables = tuple(sorted({*left.variables, *right.variables}))
        a, b = self.widen(left, variables), self.widen(right, variables)
        return _TrackedAutomaton(variables, a.automaton.product(b.automaton, and_, self._budget))

    def widen(self, source: _TrackedAutomaton, variables: tuple[str, ...]) -> _TrackedAutomaton:
        """The same language with bits for more variables, whose values are arbitrary."""
        positions = [variables.index(name) for name in source.variables]
        size, source_size = len(variables), len(source.variables)

        def narrowed(letter: int) -> int:
            bits = sum((letter >> index & 1) << i for i, index in enumerate(positions))
            return (letter >> size << source_size) + bits

        self._budget.spend(len(source.automaton.table) * len(self._signs) << size)
        narrowed_letters = [narrowed(letter) for letter in range(len(self._signs) << size)]
        table = tuple(tuple(row[letter] for letter in narrowed_letters) for row in source.automaton.table)
        return _TrackedAutomaton(
            variables, DeterministicAutomaton(source.automaton.initial, table, source.automaton.final)
        )

    def _project(self, source: _TrackedAutomaton, variable: str) -> _TrackedAutomaton:
        """The words that are accepted with some bits for a variable (by the subset construction)."""
        if variable not in source.variables:
            return source
        index = source.variables.index(variable)
        other_variables = tuple(name for name in source.variables if name != variable)
        table = source.automaton.table

        def step(states: frozenset[int], letter: int) -> frozenset[int]:
            low = letter & ((1 << index) - 1)
            base = ((letter >> index) << (index + 1)) + low
            return frozenset(table[s][base + (bit << index)] for s in states for bit in (0, 1))

        start = frozenset([source.automaton.initial])
        final = source.automaton.final
        projected = explore(
            start, step, lambda s: bool(s & final), len(self._signs) << len(other_variables), self._budget
        )
        return _TrackedAutomaton(other_variables, projected.minimise(self._budget))

    def _automaton(
        self, variables: tuple[str, ...], update: Callable[[bool, tuple[bool, ...], Bits], bool]
    ) -> _TrackedAutomaton:
        """A language that is decided with one bit of memory."""
        size = len(variables)
        sorted_variables = tuple(sorted(variables))
        positions = [sorted_variables.index(name) for name in variables]

        def step(state: int, letter: int) -> int:
            bits = tuple(bool(letter >> index & 1) for index in positions)
            return int(update(bool(state), self._signs[letter >> size], bits))

        return _TrackedAutomaton(
            sorted_variables, explore(0, step, bool, len(self._signs) << size, self._budget)
        )

    def _counter(
        self, variables: tuple[str, ...], update: Callable[[int, Bits], int], final: set[int]
    ) -> _TrackedAutomaton:
        size = len(variables)

        def step(state: int, letter: int) -> int:
            return update(state, tuple(bool(letter >> i & 1) for i in range(size)))

        return _TrackedAutomaton(
            variables, explore(0, step, lambda s: s in final, len(self._signs) << size, self._budget)
        )

    def _precedes(self, x: str, y: str) -> _TrackedAutomaton:
        """The words in which x comes before y."""
        sorted_variables = tuple(sorted((x, y)))
        first = sorted_variables.index(x)

        def count(state: int, bits: Bits) -> int:
            if state == 0 and bits[first] and not bits[1 - first]:
                return 1
            return 2 if state == 1 and bits[1 - first] else state

        if x == y:
            return self._counter((x,), lambda state, _: state, set())
        return self._counter(sorted_variables, count, {2})


def window_expression(formula: Formula, k: int, theory: Satisfiability) -> WindowExpression:
    """The window expression of a formula with free variables ``b`` and ``e`` (Lemma 5).

    The automaton of the formula on words that end at e is split at the letter
    that carries the bit of b: a pair for each state before it. Raises
    ValueError for other free variables, or a guard that looks back too far;
    TooManyCellsError for more combinations of guards than MOST_LETTERS; and
    OverBudgetError: every quantifier may make the automaton exponentially
    larger.
    """
    guards = guards_of(formula)
    if any(g.lookback(guard) > k for guard in guards):
        raise ValueError(f"a guard looks back more than {k} records")
    signs = [cell.signs for cell in theory.cells_up_to(MOST_LETTERS, guards)]
    with StepBudget(MOST_ENTRIES, "compiling the formula") as budget:
        construction = _FormulaConstruction(guards, signs, budget)
        tracked = construction.of(formula)
        if not set(tracked.variables) <= {BEGIN, END}:
            raise ValueError(f"free variables {', '.join(tracked.variables)}; expected {BEGIN} and {END}")
        for variable in (BEGIN, END):
            tracked = construction.intersection(tracked, construction.once(variable))
        pairs = _Splits(tracked.automaton, _Letters(guards, signs), k, budget).pairs()
    return WindowExpression(tuple(pairs))


class _Letters:
    """The letters of a formula, each the truth of all its guards; sets of letters are bit masks."""

    def __init__(self, guards: Sequence[g.Guard], signs: Sequence[Bits]) -> None:
        self._guards = guards
        self._signs = signs
        self._all = (1 << len(signs)) - 1
        self._letters_of_guard = [
            sum(1 << n for n, sign in enumerate(signs) if sign[i]) for i in range(len(guards))
        ]
        self._guard_cache: dict[int, g.Guard] = {}

    def __len__(self) -> int:
        return len(self._signs)

    def guard(self, target: int) -> g.Guard:
        """A guard that holds exactly for a set of letters, with few atoms."""
        if target not in self._guard_cache:
            parts, remaining = [], target
            while remaining:
                implicant, implied = self._implicant((remaining & -remaining).bit_length() - 1, target)
                parts.append(implicant)
                remaining &= ~implied
            self._guard_cache[target] = g.disjunction(parts)
        return self._guard_cache[target]

    def _implicant(self, letter: int, target: int) -> tuple[g.Guard, int]:
        """A letter's minterm without unneeded guards, and the letters for which the rest holds."""
        signs = self._signs[letter]
        literals = list(range(len(signs)))
        for index in range(len(signs)):
            shorter = [other for other in literals if other != index]
            if not self._letters_with(shorter, signs) & ~target:
                literals = shorter
        implicant = minterm([self._guards[i] for i in literals], [signs[i] for i in literals])
        return implicant, self._letters_with(literals, signs)

    def _letters_with(self, indices: Sequence[int], signs: Bits) -> int:
        """The letters in which the guards at some places have the truth values ``signs``."""
        matching = self._all
        for i in indices:
            matching &= self._letters_of_guard[i] if signs[i] else ~self._letters_of_guard[i]
        return matching


class _Splits:
    """The pairs of a formula's automaton over letters with bits for b, the lowest, and e."""

    def __init__(self, whole: DeterministicAutomaton, letters: _Letters, k: int, budget: StepBudget) -> None:
        self._formula_automaton = whole
        self._letters = letters
        self._k = k
        self._budget = budget
        self._none, self._begin, self._end, self._both = map(self._masks, range(4))
        # Shared by all pairs: letters without b or e, and a new final state to which e leads.
        self._last = len(whole.table)
        self._steps = self._arcs(self._none)
        self._ends = self._final_transitions(self._end)

    def pairs(self) -> list[Pair]:
        """A pair for each state before b from which a window can begin; if there is none, an empty pair."""
        # Only states that letters without b or e lead to can precede a window.
        edges = ((p, q) for p, state_pairs in enumerate(self._none) for q in state_pairs)
        state_pairs = (
            self._pair(state) for state in sorted(reachable([self._formula_automaton.initial], edges))
        )
        pairs_with_windows = [pair for pair in state_pairs if pair.before.final and pair.window.final]
        return pairs_with_windows or [self._pair(self._formula_automaton.initial)]

    def _pair(self, state: int) -> Pair:
        """The words without b or e that lead to a state, and the words from there, from b to e."""
        size, first = self._last, self._last + 1
        self._budget.spend(_PER_TRANSITION * (len(self._steps) + len(self._ends)))
        before = automaton(self._k, size, self._formula_automaton.initial, [state], self._steps)
        transitions = [*self._steps, *self._ends]
        transitions += [(first, self._letters.guard(mask), q) for q, mask in self._begin[state].items()]
        transitions += [
            (first, guard, q) for p, guard, q in self._final_transitions(self._both) if p == state
        ]
        return Pair(trim(before), trim(automaton(self._k, size + 2, first, [self._last], transitions)))

    def _masks(self, bits: int) -> list[dict[int, int]]:
        """For each state, the states to which letters with some bits lead, and these letters."""
        masks_of_states = []
        for row in self._formula_automaton.table:
            masks: dict[int, int] = {}
            for letter in range(len(self._letters)):
                target = row[letter * 4 + bits]
                masks[target] = masks.get(target, 0) | 1 << letter
            masks_of_states.append(masks)
        return masks_of_states

    def _arcs(self, masks: list[dict[int, int]]) -> list[Transition]:
        return [
            (p, self._letters.guard(m), q)
            for p, state_masks in enumerate(masks)
            for q, m in state_masks.items()
        ]

    def _final_transitions(self, masks: list[dict[int, int]]) -> list[Transition]:
        """Transitions to the new final state by the letters that lead to a final state."""
        final = self._formula_automaton.final
        final_masks = [sum(mask for q, mask in state_masks.items() if q in final) for state_masks in masks]
        return [(p, self._letters.guard(mask), self._last) for p, mask in enumerate(final_masks)]
