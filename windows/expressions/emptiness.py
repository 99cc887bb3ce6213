"""Whether an automaton accepts any word; with lookback undecidable in general (window paper, Theorem 2.1)."""

from __future__ import annotations

from enum import StrEnum

from windows.expressions.alphabet import StreamRecord
from windows.expressions.automaton import LookbackAutomaton
from windows.expressions.finite import branching
from windows.expressions.overlap import shortest_walk
from windows.expressions.satisfiability import Satisfiability
from windows.expressions.types import TooManyCellsError, type_graphs
from windows.expressions.witness import records_of


class Emptiness(StrEnum):
    """UNKNOWN: no word is found, and none is ruled out."""

    EMPTY = "empty"
    INHABITED = "not empty"
    UNKNOWN = "may be empty"


def emptiness(
    given: LookbackAutomaton, theory: Satisfiability
) -> tuple[Emptiness, tuple[StreamRecord, ...] | None]:
    """The verdict about words longer than k, with an accepted word where there is one.

    Without lookback, and in the fragments of ``fragments``, there is always a verdict.
    """
    try:
        for graph in type_graphs(given.guards, theory):
            walk = shortest_walk(graph, branching(given, graph.guards, graph.letters))
            if walk is None:
                return Emptiness.EMPTY, None
            word = records_of(walk, graph, given.k, theory)
            if word is not None and given.accepts(word, theory.alphabet):
                return Emptiness.INHABITED, word
    except TooManyCellsError:
        pass
    return Emptiness.UNKNOWN, None
