"""Symbolic regular expressions to automata and back: they say the same (window paper, Section 2)."""

from __future__ import annotations

from dataclasses import dataclass, field

from windows.expressions.automaton import LookbackAutomaton, Transition, automaton
from windows.expressions.guards import Guard
from windows.expressions.regular import (
    IDENTITY,
    NOTHING,
    Either,
    Identity,
    Letter,
    Nothing,
    Regular,
    Star,
    Then,
    either,
    star,
    then,
)


def to_automaton(regular: Regular, k: int) -> LookbackAutomaton:
    """Glushkov's automaton: a state for each letter, and the initial one. Guards must look back at most k."""
    positions = _Positions()
    whole = positions.of(regular)
    transitions: list[Transition] = [(0, positions.guards[q], q + 1) for q in whole.first]
    transitions += [(p + 1, positions.guards[q], q + 1) for p, q in positions.follow]
    final = [p + 1 for p in whole.last] + ([0] if whole.empty else [])
    return automaton(k, len(positions.guards) + 1, 0, final, transitions)


@dataclass(frozen=True, slots=True)
class _Part:
    """Whether a part can be skipped, and the letters that it can begin and end with."""

    empty: bool
    first: tuple[int, ...] = ()
    last: tuple[int, ...] = ()


@dataclass(slots=True)
class _Positions:
    """The letters met so far, and which may follow which."""

    guards: list[Guard] = field(default_factory=list)
    follow: dict[tuple[int, int], None] = field(default_factory=dict)

    def of(self, regular: Regular) -> _Part:
        match regular:
            case Nothing():
                return _Part(False)
            case Identity():
                return _Part(True)
            case Letter(guard):
                self.guards.append(guard)
                place = (len(self.guards) - 1,)
                return _Part(False, place, place)
            case Star(inner):
                part = self.of(inner)
                self._link(part, part)
                return _Part(True, part.first, part.last)
            case Either(left, right):
                a, b = self.of(left), self.of(right)
                return _Part(a.empty or b.empty, a.first + b.first, a.last + b.last)
            case Then(left, right):
                a, b = self.of(left), self.of(right)
                self._link(a, b)
                first = a.first + b.first if a.empty else a.first
                return _Part(a.empty and b.empty, first, a.last + b.last if b.empty else b.last)

    def _link(self, before: _Part, after: _Part) -> None:
        self.follow.update(dict.fromkeys((p, q) for p in before.last for q in after.first))


def to_regular(given: LookbackAutomaton) -> Regular:
    """An expression for an automaton's language, by removing one state after the other."""
    begin, end = given.states, given.states + 1
    arcs: dict[tuple[int, int], Regular] = {(p, q): Letter(guard) for p, guard, q in given.transitions}
    arcs[begin, given.initial] = IDENTITY
    arcs.update({(f, end): IDENTITY for f in given.final})
    left = set(range(given.states))
    while left:
        state = min(left, key=lambda s: (_degree(arcs, s), s))
        left.remove(state)
        arcs = _without(arcs, state)
    return arcs.get((begin, end), NOTHING)


def _degree(arcs: dict[tuple[int, int], Regular], state: int) -> int:
    """How many arcs the removal of a state makes; few first keeps expressions short."""
    incoming = sum(1 for p, q in arcs if q == state != p)
    return incoming * sum(1 for p, q in arcs if p == state != q)


def _without(arcs: dict[tuple[int, int], Regular], state: int) -> dict[tuple[int, int], Regular]:
    loop = star(arcs.get((state, state), NOTHING))
    kept = {ends: regular for ends, regular in arcs.items() if state not in ends}
    for (p, q), before in arcs.items():
        if q != state or p == state:
            continue
        for (r, s), after in arcs.items():
            if r == state != s:
                path = then(then(before, loop), after)
                kept[p, s] = either(kept.get((p, s), NOTHING), path)
    return kept
