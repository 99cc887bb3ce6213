"""Automata over streams of tuples: CCEA, PCEA and, without data, PFA."""

from patterns.automata.ambiguity import Ambiguity, find_ambiguity
from patterns.automata.ccea import CCEA, Link
from patterns.automata.pcea import PCEA, Source, State, Transition
from patterns.automata.pfa import DFA, PFA
from patterns.automata.predicates import Columns, Compared, Contains, Equality, Operator, Same, Test, Unary
from patterns.automata.runs import RunTree, accepting_runs, runs_at

__all__ = [
    "CCEA",
    "DFA",
    "PCEA",
    "PFA",
    "Ambiguity",
    "Columns",
    "Compared",
    "Contains",
    "Equality",
    "Link",
    "Operator",
    "RunTree",
    "Same",
    "Source",
    "State",
    "Test",
    "Transition",
    "Unary",
    "accepting_runs",
    "find_ambiguity",
    "runs_at",
]
