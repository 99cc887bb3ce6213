"""Hierarchical conjunctive queries: what they are, their q-trees, and the automata they become."""

from patterns.queries.automaton import automaton_of
from patterns.queries.hierarchy import is_acyclic, is_full, is_hierarchical, refuse_unless_hierarchical
from patterns.queries.parse import parse_conjunctive_query
from patterns.queries.qtree import FRESH, Inner, compact, qtree
from patterns.queries.query import Atom, ConjunctiveQuery, Constant, Term, Variable
from patterns.queries.root import root_of_query

__all__ = [
    "FRESH",
    "Atom",
    "ConjunctiveQuery",
    "Constant",
    "Inner",
    "Term",
    "Variable",
    "automaton_of",
    "compact",
    "is_acyclic",
    "is_full",
    "is_hierarchical",
    "parse_conjunctive_query",
    "qtree",
    "refuse_unless_hierarchical",
    "root_of_query",
]
