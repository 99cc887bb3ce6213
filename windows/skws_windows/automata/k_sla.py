"""k-lookback symbolic automata, k-SLA, and their closure (window paper, Definition 2, Lemmas 1 to 4).

A run on a word of length n >= k has n - k + 1 states: one before each position
from k on, and one at the end. So the words of length k are accepted if and only
if the initial state is final.

Complements are taken with respect to the words of length at least k.

Over a finite alphabet, letters are the numbered minterms of guards. There may
be exponentially many subsets, so every construction of a deterministic
automaton takes a budget, in table entries.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias, TypeVar

from skws_schema.budgets import StepBudget
from skws_windows.guards import guard as g
from skws_windows.guards.satisfiability import Satisfiability

Transition: TypeAlias = tuple[int, g.Guard, int]


@dataclass(frozen=True)
class LookbackAutomaton:
    """States are 0 to ``states`` - 1, with at most one transition between two; no guard is bottom."""

    k: int
    states: int
    initial: int
    final: frozenset[int]
    transitions: tuple[Transition, ...]

    def __post_init__(self) -> None:
        used_states = {s for p, _, q in self.transitions for s in (p, q)} | self.final | {self.initial}
        if not used_states <= set(range(self.states)):
            raise ValueError(f"states must be 0 to {self.states - 1}")
        if len({(p, q) for p, _, q in self.transitions}) < len(self.transitions):
            raise ValueError("two transitions between the same states")
        if any(g.lookback(guard) > self.k for guard in self.guards):
            raise ValueError(f"a guard looks back more than {self.k} records")

    @cached_property
    def guards(self) -> tuple[g.Guard, ...]:
        """The distinct guards, in order of first use."""
        return tuple(dict.fromkeys(guard for _, guard, _ in self.transitions))

    @cached_property
    def outgoing(self) -> dict[int, list[tuple[g.Guard, int]]]:
        """The transitions of each state that has any."""
        by_state: dict[int, list[tuple[g.Guard, int]]] = defaultdict(list)
        for p, guard, q in self.transitions:
            by_state[p].append((guard, q))
        return dict(by_state)

    @property
    def accepts_identity(self) -> bool:
        """True if the words of length k are accepted."""
        return self.initial in self.final


def automaton(
    k: int, states: int, initial: int, final: Iterable[int], transitions: Iterable[Transition]
) -> LookbackAutomaton:
    """An automaton from transitions; parallel ones are merged and those with bottom are dropped."""
    guards_by_pair: dict[tuple[int, int], list[g.Guard]] = defaultdict(list)
    for p, guard, q in transitions:
        guards_by_pair[p, q].append(guard)
    transitions_by_pair = ((p, g.disjunction(guards), q) for (p, q), guards in guards_by_pair.items())
    unique = tuple(sorted((t for t in transitions_by_pair if t[1] != g.BOTTOM), key=lambda t: (t[0], t[2])))
    return LookbackAutomaton(k, states, initial, frozenset(final), unique)


MOST_TRANSITIONS: Final = 20_000
"""The most transitions of a deterministic automaton; each takes z3 some milliseconds."""


def clean(source: LookbackAutomaton, theory: Satisfiability) -> LookbackAutomaton:
    """The same automaton without transitions whose guard no records can satisfy."""
    transitions = [t for t in source.transitions if theory.is_possible(t[1])]
    return automaton(source.k, source.states, source.initial, source.final, transitions)


def trim(source: LookbackAutomaton) -> LookbackAutomaton:
    """The automaton with only the initial state and the states on a path from there to a final state.

    Exact for a clean automaton with k = 0. Otherwise a state may remain to which no word leads.
    """
    accessible = reachable([source.initial], ((p, q) for p, _, q in source.transitions))
    coaccessible = reachable(source.final, ((q, p) for p, _, q in source.transitions))
    useful_states = sorted((accessible & coaccessible) | {source.initial})
    number = {state: i for i, state in enumerate(useful_states)}
    transitions = [
        (number[p], guard, number[q]) for p, guard, q in source.transitions if {p, q} <= number.keys()
    ]
    return automaton(
        source.k,
        len(useful_states),
        number[source.initial],
        [number[f] for f in source.final if f in number],
        transitions,
    )


def determinise(source: LookbackAutomaton, theory: Satisfiability) -> LookbackAutomaton:
    """An equivalent deterministic automaton (Lemma 1), complete: every state has a guard for every block.

    Raises OverBudgetError: macrostates may be exponentially many.
    """
    start = frozenset([source.initial])
    numbers = {start: 0}
    pending, transitions = [start], list[Transition]()
    with StepBudget(MOST_TRANSITIONS, "making an automaton deterministic") as budget:
        while pending:
            subset = pending.pop()
            for guard, target in _steps(source, subset, theory):
                budget.spend()
                if target not in numbers:
                    numbers[target] = len(numbers)
                    pending.append(target)
                transitions.append((numbers[subset], guard, numbers[target]))
    final = [number for subset, number in numbers.items() if subset & source.final]
    return automaton(source.k, len(numbers), 0, final, transitions)


def _steps(
    source: LookbackAutomaton, subset: frozenset[int], theory: Satisfiability
) -> Iterable[tuple[g.Guard, frozenset[int]]]:
    """The minterms of the guards that leave a macrostate, each with the macrostate to which it leads."""
    outgoing = [(guard, q) for p in sorted(subset) for guard, q in source.outgoing.get(p, ())]
    guards = list(dict.fromkeys(guard for guard, _ in outgoing))
    for cell in theory.cells(guards):
        true_guards = {guard for guard, sign in zip(guards, cell.signs, strict=True) if sign}
        yield minterm(guards, cell.signs), frozenset(q for guard, q in outgoing if guard in true_guards)


def minterm(guards: Iterable[g.Guard], signs: Iterable[bool]) -> g.Guard:
    """The guard that holds if exactly the guards with a true sign hold."""
    pairs = zip(guards, signs, strict=True)
    return g.conjunction(guard if sign else g.negation(guard) for guard, sign in pairs)


def complement(source: LookbackAutomaton, theory: Satisfiability) -> LookbackAutomaton:
    """The words of length at least k that are not accepted (Lemma 2). Raises OverBudgetError."""
    deterministic = determinise(source, theory)
    final = set(range(deterministic.states)) - deterministic.final
    return automaton(
        deterministic.k, deterministic.states, deterministic.initial, final, deterministic.transitions
    )


def product(left: LookbackAutomaton, right: LookbackAutomaton) -> LookbackAutomaton:
    """Intersection (Lemma 3): pairs of states, guards conjoined."""
    _check_lookback(left, right)
    size = right.states
    transitions = [
        (p * size + r, g.conjunction([first, second]), q * size + s)
        for p, first, q in left.transitions
        for r, second, s in right.transitions
    ]
    final = [f * size + h for f in left.final for h in right.final]
    initial = left.initial * size + right.initial
    return trim(automaton(left.k, left.states * size, initial, final, transitions))


def union(left: LookbackAutomaton, right: LookbackAutomaton) -> LookbackAutomaton:
    """Union: both automata side by side, with a new initial state that has the transitions of both."""
    _check_lookback(left, right)
    shift, initial = left.states, left.states + right.states
    both = _side_by_side(left, right)
    initial_transitions = [(initial, guard, q) for guard, q in left.outgoing.get(left.initial, ())]
    initial_transitions += [(initial, guard, q + shift) for guard, q in right.outgoing.get(right.initial, ())]
    final = {*left.final, *(f + shift for f in right.final)}
    if left.accepts_identity or right.accepts_identity:
        final.add(initial)
    return trim(automaton(left.k, initial + 1, initial, final, [*both, *initial_transitions]))


def _side_by_side(left: LookbackAutomaton, right: LookbackAutomaton) -> list[Transition]:
    right_transitions = [(p + left.states, guard, q + left.states) for p, guard, q in right.transitions]
    return [*left.transitions, *right_transitions]


def _check_lookback(left: LookbackAutomaton, right: LookbackAutomaton) -> None:
    if left.k != right.k:
        raise ValueError(f"automata with lookback {left.k} and {right.k} cannot be combined")


def reachable(start: Iterable[int], edges: Iterable[tuple[int, int]]) -> set[int]:
    """The nodes that can be reached from ``start``."""
    successors: dict[int, list[int]] = {}
    for p, q in edges:
        successors.setdefault(p, []).append(q)
    visited = set(start)
    pending = list(visited)
    while pending:
        for state in successors.get(pending.pop(), ()):
            if state not in visited:
                visited.add(state)
                pending.append(state)
    return visited


@dataclass(frozen=True, slots=True)
class DeterministicAutomaton:
    """A complete deterministic automaton: ``table[state][letter]`` is the next state."""

    initial: int
    table: tuple[tuple[int, ...], ...]
    final: frozenset[int]

    @property
    def letters(self) -> int:
        return len(self.table[0])

    def complement(self) -> DeterministicAutomaton:
        return DeterministicAutomaton(
            self.initial, self.table, frozenset(range(len(self.table))) - self.final
        )

    def product(
        self, other: DeterministicAutomaton, combine: Callable[[bool, bool], bool], budget: StepBudget
    ) -> DeterministicAutomaton:
        """The minimal product; a pair is final where ``combine`` is true of its two states."""

        def step(pair: tuple[int, int], letter: int) -> tuple[int, int]:
            return self.table[pair[0]][letter], other.table[pair[1]][letter]

        def final(pair: tuple[int, int]) -> bool:
            return combine(pair[0] in self.final, pair[1] in other.final)

        return explore((self.initial, other.initial), step, final, self.letters, budget).minimise(budget)

    def minimise(self, budget: StepBudget) -> DeterministicAutomaton:
        """The minimal automaton of the language (Moore), with states in breadth-first order.

        Raises OverBudgetError.
        """
        classes = [int(state in self.final) for state in range(len(self.table))]
        count = len(set(classes))
        while True:
            budget.spend(len(self.table) * self.letters)
            signatures: dict[tuple[int, ...], int] = {}
            new_classes = [
                signatures.setdefault((classes[state], *(classes[q] for q in row)), len(signatures))
                for state, row in enumerate(self.table)
            ]
            if len(signatures) == count:
                break
            classes, count = new_classes, len(signatures)
        representative = {cls: state for state, cls in reversed(list(enumerate(classes)))}

        def step(cls: int, letter: int) -> int:
            return classes[self.table[representative[cls]][letter]]

        initial = classes[self.initial]
        return explore(initial, step, lambda c: representative[c] in self.final, self.letters, budget)


@dataclass(frozen=True, slots=True)
class NondeterministicAutomaton:
    """A nondeterministic automaton: ``table[state][letter]`` are the next states."""

    initial: int
    table: tuple[tuple[tuple[int, ...], ...], ...]
    final: frozenset[int]

    @classmethod
    def of(cls, source: DeterministicAutomaton) -> NondeterministicAutomaton:
        """A deterministic automaton as a nondeterministic one."""
        return cls(source.initial, tuple(tuple((q,) for q in row) for row in source.table), source.final)


State = TypeVar("State", bound=Hashable)


def explore(
    initial: State,
    step: Callable[[State, int], State],
    final: Callable[[State], bool],
    letters: int,
    budget: StepBudget,
) -> DeterministicAutomaton:
    """The reachable part of the automaton that ``step`` defines. Raises OverBudgetError."""
    numbers = {initial: 0}
    order, rows = [initial], []
    for state in order:
        budget.spend(letters)
        row = []
        for letter in range(letters):
            target = step(state, letter)
            if target not in numbers:
                numbers[target] = len(numbers)
                order.append(target)
            row.append(numbers[target])
        rows.append(tuple(row))
    return DeterministicAutomaton(0, tuple(rows), frozenset(numbers[s] for s in order if final(s)))


def deterministic_over(
    source: LookbackAutomaton,
    guards: Sequence[g.Guard],
    letters: Sequence[tuple[bool, ...]],
    budget: StepBudget,
) -> DeterministicAutomaton:
    """An automaton over letters, each a tuple of truth values of ``guards``; deterministic and minimal.

    Raises OverBudgetError.
    """
    table = nondeterministic_over(source, guards, letters).table

    def step(subset: frozenset[int], letter: int) -> frozenset[int]:
        return frozenset(q for p in subset for q in table[p][letter])

    start = frozenset([source.initial])
    deterministic = explore(start, step, lambda s: bool(s & source.final), len(letters), budget)
    return deterministic.minimise(budget)


def nondeterministic_over(
    source: LookbackAutomaton, guards: Sequence[g.Guard], letters: Sequence[tuple[bool, ...]]
) -> NondeterministicAutomaton:
    """An automaton over letters, with the states of ``source``."""
    index = {guard: i for i, guard in enumerate(guards)}
    arcs = [[(index[guard], q) for guard, q in source.outgoing.get(p, ())] for p in range(source.states)]
    table = (
        tuple(tuple(q for guard_index, q in outgoing if signs[guard_index]) for signs in letters)
        for outgoing in arcs
    )
    return NondeterministicAutomaton(source.initial, tuple(table), source.final)
