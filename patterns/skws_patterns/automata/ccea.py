"""Chain complex event automata (PCEA paper, Section 2): PCEA whose runs are chains."""

from __future__ import annotations

from dataclasses import dataclass

from skws_patterns.automata.pcea import PCEA, Source, State, Transition
from skws_patterns.automata.predicates import Equality, Unary


@dataclass(frozen=True, slots=True)
class Link:
    """(p, U, B, L, q): one transition of a CCEA; each tuple is compared with the one read before."""

    source: State
    unary: Unary
    equality: Equality
    labels: frozenset[str]
    target: State


@dataclass(frozen=True, slots=True)
class CCEA:
    """(Q, U, B, Omega, Delta, I, F). ``initial``: the states that runs start in, with tuple and labels."""

    initial: tuple[tuple[State, Unary, frozenset[str]], ...]
    links: tuple[Link, ...]
    final: frozenset[State]

    def pcea(self) -> PCEA:
        """The same as a PCEA: every transition has at most one source."""
        starts = [Transition((), unary, labels, state) for state, unary, labels in self.initial]
        steps = [
            Transition((Source(link.source, link.equality),), link.unary, link.labels, link.target)
            for link in self.links
        ]
        return PCEA((*starts, *steps), self.final)
