"""Random hierarchical queries and streams for them, and homomorphisms by brute force."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Final

from hypothesis import strategies as st

from skws_patterns.hcq import ConjunctiveQuery, ConstantTerm, RelationAtom, Term, Variable
from skws_schema.model import Attribute, AttributeType, Relation, Row, Schema, Value

RELATIONS: Final = 3
ARITY: Final = 3
VALUES: Final = (0, 1, 2)
SCHEMA: Final = Schema(
    "random",
    tuple(
        Relation(f"R{i}", tuple(Attribute(a, AttributeType.INTEGER) for a in "abc")) for i in range(RELATIONS)
    ),
    (),
)


def is_hierarchical(query: ConjunctiveQuery) -> bool:
    """True if full, and the atoms of any two variables are disjoint or one set contains the other."""
    atom_sets = [query.atoms_of(variable) for variable in query.variables]
    is_full = set(query.variables) <= set(query.head)
    return is_full and all(not a & b or a <= b or b <= a for a, b in product(atom_sets, repeat=2))


@st.composite
def hierarchical_queries(draw: st.DrawFn, max_atoms: int = 4) -> ConjunctiveQuery:
    """Queries drawn as q-trees: with self-joins, repeated variables, constants, _, and disconnected parts."""
    names = iter("abcdefghijklm")
    relations = st.integers(0, draw(st.sampled_from([0, 1, RELATIONS - 1])))
    atoms: list[RelationAtom] = []

    def below(path: tuple[str, ...]) -> None:
        if len(path) < ARITY and draw(st.booleans()):
            path = (*path, next(names))
        for _ in range(draw(st.integers(1, 2))):
            if len(atoms) >= max_atoms:
                return
            if len(path) < ARITY and draw(st.booleans()):
                below((*path, next(names)))
            else:
                atoms.append(RelationAtom(draw(relations), draw(_terms(path))))

    below(())
    if not atoms:
        atoms.append(RelationAtom(0, (None,) * ARITY))
    query = ConjunctiveQuery((), tuple(atoms))
    return ConjunctiveQuery(query.variables, query.atoms)


@st.composite
def _terms(draw: st.DrawFn, path: tuple[str, ...]) -> tuple[Term, ...]:
    """Each variable of the path at least once, and arbitrary terms in the other columns."""
    terms: list[Term] = [Variable(name) for name in path]
    choices: list[Term] = [None, ConstantTerm(1), *terms]
    terms += [draw(st.sampled_from(choices)) for _ in range(ARITY - len(path))]
    return tuple(draw(st.permutations(terms)))


def streams(max_tuples: int = 9, nulls: bool = True) -> st.SearchStrategy[list[tuple[int, Row]]]:
    value: st.SearchStrategy[Value] = st.sampled_from([*VALUES[:2], *VALUES, *([None] if nulls else [])])
    row = st.tuples(*[value] * ARITY)
    return st.lists(st.tuples(st.integers(0, RELATIONS - 1), row), max_size=max_tuples)


def homomorphisms(
    query: ConjunctiveQuery, stream: Sequence[tuple[int, Row]], first: int
) -> list[tuple[int, ...]]:
    """The t-homomorphisms from ``first`` on that use the last tuple, with a position for each atom."""
    window = range(max(first, 0), len(stream))
    return [
        image
        for image in product(window, repeat=len(query.atoms))
        if len(stream) - 1 in image and _is_homomorphism(query, [stream[position] for position in image])
    ]


def _is_homomorphism(query: ConjunctiveQuery, image: list[tuple[int, Row]]) -> bool:
    values: dict[str, list[Value]] = {}
    for atom, (relation, row) in zip(query.atoms, image, strict=True):
        if atom.relation != relation:
            return False
        for term, value in zip(atom.terms, row, strict=True):
            if isinstance(term, ConstantTerm) and value != term.value:
                return False
            if isinstance(term, Variable):
                values.setdefault(term.name, []).append(value)
    # A variable that occurs once may be NULL; a join variable may not.
    return all(len(bound) == 1 or (None not in bound and len(set(bound)) == 1) for bound in values.values())
