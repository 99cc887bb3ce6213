"""One automaton made deterministic while it runs: sets of states, stepped by letters.

No guard is decided here: which guards hold together is seen in the stream.
Sets are bit masks, numbered in order of occurrence.
"""

from __future__ import annotations

from typing import Final

from windows.expressions.automaton import LookbackAutomaton
from windows.expressions.letters import Letters

DEAD: Final = -1


class Macrostates:
    """The macrostates of an automaton that occurred so far, and where letters lead from them."""

    def __init__(self, automaton: LookbackAutomaton, letters: Letters) -> None:
        place = {guard: i for i, guard in enumerate(letters.guards)}
        self._letters = letters
        self._outgoing = {
            p: [(place[guard], 1 << q) for guard, q in arcs] for p, arcs in automaton.outgoing.items()
        }
        self._final_mask = sum(1 << f for f in automaton.final)
        self._numbers: dict[int, int] = {}
        self._masks: list[int] = []
        self._steps: list[dict[int, int]] = []
        self.final: list[bool] = []
        self.initial = self._number(1 << automaton.initial)

    def mask(self, state: int) -> int:
        """The states that a macrostate is made of, as bits."""
        return 0 if state == DEAD else self._masks[state]

    def of(self, mask: int) -> int:
        """The macrostate made of some states."""
        return self._number(mask)

    def step(self, state: int, letter: int) -> int:
        """Where ``letter`` leads from a macrostate; DEAD for the empty set, which leads to itself."""
        if state == DEAD:
            return DEAD
        known = self._steps[state]
        if letter not in known:
            known[letter] = self._number(self._target(self._masks[state], self._letters.signs[letter]))
        return known[letter]

    def is_final(self, state: int) -> bool:
        return state != DEAD and self.final[state]

    def is_exhausted(self, state: int) -> bool:
        """Whether no letter leads on: what is here has ended, whatever comes."""
        return not any(self._masks[state] >> p & 1 for p in self._outgoing)

    def _target(self, mask: int, signs: tuple[bool, ...]) -> int:
        target = 0
        while mask:
            lowest = mask & -mask
            for guard, bit in self._outgoing.get(lowest.bit_length() - 1, ()):
                if signs[guard]:
                    target |= bit
            mask ^= lowest
        return target

    def _number(self, mask: int) -> int:
        if not mask:
            return DEAD
        if mask not in self._numbers:
            self._numbers[mask] = len(self._masks)
            self._masks.append(mask)
            self._steps.append({})
            self.final.append(bool(mask & self._final_mask))
        return self._numbers[mask]
