"""One automaton made deterministic while it runs: sets of states, stepped by letters.

No guard is decided here: which guards hold together is seen in the stream. A
macrostate is a bit mask. There may be exponentially many, so where letters
lead is remembered for so many alone.
"""

from __future__ import annotations

from typing import Final

from windows.expressions.automaton import LookbackAutomaton
from windows.expressions.letters import Letters

DEAD: Final = 0
"""The empty set, which leads to itself."""
REMEMBERED: Final = 100_000
"""Steps that are remembered; beyond, all are forgotten and found anew."""


class Macrostates:
    """The macrostates of an automaton, and where letters lead from them."""

    def __init__(self, automaton: LookbackAutomaton, letters: Letters) -> None:
        place = {guard: i for i, guard in enumerate(letters.guards)}
        self._letters = letters
        self._outgoing = {
            p: [(place[guard], 1 << q) for guard, q in arcs] for p, arcs in automaton.outgoing.items()
        }
        self._leading_on = sum(1 << p for p in self._outgoing)
        self._final = sum(1 << f for f in automaton.final)
        self._steps: dict[tuple[int, int], int] = {}
        self.initial = 1 << automaton.initial

    def step(self, state: int, letter: int) -> int:
        """Where ``letter`` leads from a macrostate."""
        known = self._steps.get((state, letter))
        if known is None:
            if len(self._steps) >= REMEMBERED:
                self._steps.clear()
            known = self._steps[state, letter] = self._target(state, self._letters.signs[letter])
        return known

    def is_final(self, state: int) -> bool:
        return bool(state & self._final)

    def is_exhausted(self, state: int) -> bool:
        """Whether no letter leads on: what is here has ended, whatever comes."""
        return not state & self._leading_on

    def _target(self, mask: int, signs: tuple[bool, ...]) -> int:
        target = 0
        while mask:
            lowest = mask & -mask
            for guard, bit in self._outgoing.get(lowest.bit_length() - 1, ()):
                if signs[guard]:
                    target |= bit
            mask ^= lowest
        return target
