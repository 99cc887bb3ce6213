"""Parallelized finite automata and their determinisation (PCEA paper, Section 3, Proposition 3.2)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from skws_patterns.automata.pcea import State
from skws_schema.budget import StepBudget

MOST_MOVES: Final = 100_000
"""Moves of a deterministic automaton: some seconds."""
Symbol: TypeAlias = Hashable
Macrostate: TypeAlias = frozenset[State]


@dataclass(frozen=True, slots=True)
class PFA:
    """(Q, Sigma, Delta, I, F) with Delta of (P, a, q): reading a, runs from each state of P become one in q.

    All branches of a run tree are as long as the string; its leaves are
    initial states, its root an accepting one.
    """

    transitions: tuple[tuple[frozenset[State], Symbol, State], ...]
    initial: frozenset[State]
    final: frozenset[State]

    def states(self) -> frozenset[State]:
        reached = {target for _, _, target in self.transitions}
        return frozenset(self.initial | self.final | reached).union(*(p for p, _, _ in self.transitions))

    def step(self, macrostate: Macrostate, symbol: Symbol) -> Macrostate:
        """The states that runs can reach by a symbol, from runs in all states of the macrostate."""
        return frozenset(
            target
            for sources, read, target in self.transitions
            if read == symbol and sources and sources <= macrostate
        )

    def determinised(self) -> DFA:
        """A DFA of the same language, over the macrostates that can be reached, at most 2^|Q|.

        Raises OverBudgetError if its moves are too many.
        """
        budget = StepBudget(MOST_MOVES, "making an automaton deterministic")
        symbols = {symbol for _, symbol, _ in self.transitions}
        moves: dict[tuple[Macrostate, Symbol], Macrostate] = {}
        waiting, seen = [self.initial], {self.initial}
        while waiting:
            macrostate = waiting.pop()
            for symbol in symbols:
                budget.spend()
                reached = moves[macrostate, symbol] = self.step(macrostate, symbol)
                if reached not in seen:
                    seen.add(reached)
                    waiting.append(reached)
        return DFA(moves, self.initial, frozenset(state for state in seen if state & self.final))


@dataclass(frozen=True, slots=True)
class DFA:
    """A deterministic automaton over macrostates; a missing move rejects."""

    moves: dict[tuple[Macrostate, Symbol], Macrostate]
    initial: Macrostate
    final: frozenset[Macrostate]

    def states(self) -> frozenset[Macrostate]:
        return frozenset({self.initial, *self.moves.values()})

    def accepts(self, string: Sequence[Symbol]) -> bool:
        macrostate = self.initial
        for symbol in string:
            following = self.moves.get((macrostate, symbol))
            if following is None:
                return False
            macrostate = following
        return macrostate in self.final
