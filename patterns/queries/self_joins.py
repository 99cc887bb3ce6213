"""Sets of atoms that one tuple can stand for at once (PCEA paper, Appendix B, Lemma B.3)."""

from __future__ import annotations

from itertools import combinations
from typing import Final

from patterns.automata.predicates import Compared, Operator, Same, Test, Unary
from patterns.queries.query import Atom, ConjunctiveQuery, Constant, Term
from schema.errors import PatternError

# Sets of atoms grow by powers of two, and so does what is built of them.
MOST_OF_ONE_RELATION: Final = 10

# A column of the tuple, or what an atom says must be in it.
_Member = int | Term


def self_joins(query: ConjunctiveQuery) -> list[tuple[frozenset[int], Unary]]:
    """SJ_Q: the sets of atoms that some tuple satisfies together, each with the predicate that it does.

    Sets of one atom first. Exponential in the number of atoms of one relation:
    raises PatternError if there are too many.
    """
    found = []
    relations = {atom.relation for atom in query.atoms}
    by_relation = [[i for i, a in enumerate(query.atoms) if a.relation == r] for r in sorted(relations)]
    for atoms in by_relation:
        if len(atoms) > MOST_OF_ONE_RELATION:
            raise PatternError(
                f"the query has {len(atoms)} atoms of one relation, and at most {MOST_OF_ONE_RELATION} can "
                "be told apart in every way; write it as a pattern, in which atoms are different tuples"
            )
        for size in range(1, len(atoms) + 1):
            for chosen in combinations(atoms, size):
                unary = unary_of([query.atoms[i] for i in chosen])
                if unary is not None:
                    found.append((frozenset(chosen), unary))
    return sorted(found, key=lambda pair: (len(pair[0]), sorted(pair[0])))


def unary_of(atoms: list[Atom]) -> Unary | None:
    """The tuples that satisfy all of some atoms of one relation at once; None if there are none."""
    tests: list[Test] = []
    for columns, terms in _classes(atoms):
        constants = [term.value for term in terms if isinstance(term, Constant)]
        if any(value != constants[0] for value in constants):
            return None
        if constants:
            tests += [Compared(column, Operator.EQUAL, constants[0]) for column in columns]
        elif len(columns) > 1 or any(sum(t in atom.terms for atom in atoms) > 1 for t in terms):
            tests.append(Same(tuple(columns)))  # of one column: a NULL does not even join itself
    return Unary(atoms[0].relation, tuple(tests))


def _classes(atoms: list[Atom]) -> list[tuple[list[int], list[Term]]]:
    """Columns that must be equal, with the terms that stand at them."""
    parts: list[tuple[set[int], set[Term]]] = []
    for column in range(len(atoms[0].terms)):
        columns, terms = {column}, {atom.terms[column] for atom in atoms} - {None}
        for part in [p for p in parts if p[1] & terms]:
            parts.remove(part)
            columns |= part[0]
            terms |= part[1]
        parts.append((columns, terms))
    return [(sorted(columns), list(terms)) for columns, terms in sorted(parts, key=lambda p: min(p[0]))]
