"""Which conjunctive queries are full, acyclic, hierarchical (PCEA paper, Section 4)."""

from __future__ import annotations

from itertools import combinations

from patterns.queries.query import ConjunctiveQuery
from schema.errors import PatternError


def is_full(query: ConjunctiveQuery) -> bool:
    """Every variable is in the head."""
    return set(query.variables) <= set(query.head)


def is_hierarchical(query: ConjunctiveQuery) -> bool:
    """Full, and the atoms of any two variables are disjoint or one set contains the other."""
    return is_full(query) and breaking_pair(query) is None


def breaking_pair(query: ConjunctiveQuery) -> tuple[str, str] | None:
    """Two variables whose atoms overlap without one containing the other."""
    for first, second in combinations(query.variables, 2):
        a, b = query.atoms_of(first), query.atoms_of(second)
        if a & b and not (a <= b or b <= a):
            return first, second
    return None


def is_acyclic(query: ConjunctiveQuery) -> bool:
    """There is a join tree: ears can be taken off until nothing is left (Graham, Yu and Ozsoyoglu)."""
    edges = [set(atom.variables) for atom in query.atoms]
    while True:
        for edge in edges:
            edge -= {v for v in edge if sum(v in other for other in edges) == 1}
        ear = next((i for i, e in enumerate(edges) if _in_another(edges, i, e)), None)
        if ear is None:
            return len(edges) <= 1
        del edges[ear]


def _in_another(edges: list[set[str]], place: int, edge: set[str]) -> bool:
    return any(edge <= other for i, other in enumerate(edges) if i != place)


def refuse_unless_hierarchical(query: ConjunctiveQuery, relation_names: tuple[str, ...]) -> None:
    """Raises PatternError that names what breaks the query and what evaluates it instead."""
    missing = [v for v in query.variables if v not in query.head]
    if missing:
        raise PatternError(
            f"the query is not full: {', '.join(missing)} must be in the head "
            "(or be written _ where it occurs only once)"
        )
    pair = breaking_pair(query)
    if pair is None:
        return
    shown = [_atoms_text(query, variable, relation_names) for variable in pair]
    raise PatternError(
        f"the query is not hierarchical, by {pair[0]} and {pair[1]}: {pair[0]} is in {shown[0]}; "
        f"{pair[1]} is in {shown[1]}; these overlap and neither contains the other. No automaton with "
        "equality predicates can evaluate it; a keyword search over the same joins can, by the mesh"
    )


def _atoms_text(query: ConjunctiveQuery, variable: str, relation_names: tuple[str, ...]) -> str:
    return ", ".join(query.atoms[i].text(relation_names) for i in sorted(query.atoms_of(variable)))
