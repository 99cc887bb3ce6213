"""Which letters can follow which: the graph of types.

With lookback, a letter says something about records that letters before it
spoke of too. A node is what is known of the last k records (their type), an
edge a letter between the types before and after it. Every sequence of records
walks through the graph, so what no walk does cannot happen. In the fragments
told apart here every walk is some sequence of records too (``exact``): the
types then say all that any later guard can ask.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from typing import Final, NamedTuple

from schema.budget import OverBudgetError
from windows.expressions import guards as g
from windows.expressions.alphabet import TIME, Alphabet, Sort
from windows.expressions.fragments import Component, Fragment, components
from windows.expressions.satisfiability import Cell, Satisfiability

MAX_CELLS: Final = 800
"""Cells that are looked for at most; each takes z3 some milliseconds."""


class Edge(NamedTuple):
    """A letter (its number), and the type that it leads to."""

    letter: int
    target: int


@dataclass(frozen=True, slots=True)
class TypeGraph:
    """``edges[node]``: what can come next. ``letters``: truth of ``guards``. ``types``: of ``remembered``."""

    guards: tuple[g.Guard, ...]
    letters: tuple[tuple[bool, ...], ...]
    edges: tuple[tuple[Edge, ...], ...]
    remembered: tuple[g.Guard, ...]
    types: tuple[tuple[bool, ...], ...]
    exact: bool


class TooManyCellsError(Exception):
    """The guards have more minterms than are worth looking at, or these are too hard to find."""


def type_graphs(guards: Sequence[g.Guard], theory: Satisfiability) -> Iterator[TypeGraph]:
    """The graph without types, where any letter follows any, then the one with types if that says more.

    The first is found at once, and what is bounded there is bounded. Raises TooManyCellsError.
    """
    found = components(guards, theory.alphabet)
    remembered = _remembered(found, guards, theory.alphabet)
    exact = all(component.fragment is not Fragment.NONE for component in found)
    yield _graph(guards, (), theory, exact=exact and not remembered)
    if remembered:
        yield _graph(guards, remembered, theory, exact=exact)


def _graph(
    guards: Sequence[g.Guard], remembered: tuple[g.Guard, ...], theory: Satisfiability, *, exact: bool
) -> TypeGraph:
    before = [g.shifted(guard, 1) for guard in remembered]
    cells = _cells([*before, *guards, *remembered], theory)
    size = len(remembered)
    letters: dict[tuple[bool, ...], int] = {}
    types: dict[tuple[bool, ...], int] = {}
    edges: list[tuple[int, Edge]] = []
    for cell in cells:
        source, letter, target = (
            cell.signs[:size],
            cell.signs[size : size + len(guards)],
            cell.signs[size + len(guards) :],
        )
        edge = Edge(letters.setdefault(letter, len(letters)), types.setdefault(target, len(types)))
        edges.append((types.setdefault(source, len(types)), edge))
    following: list[list[Edge]] = [[] for _ in types]
    for source_type, edge in edges:
        following[source_type].append(edge)
    return TypeGraph(
        tuple(guards),
        tuple(letters),
        tuple(map(tuple, following)),
        remembered,
        tuple(types),
        exact and all(cell.sample is not None for cell in cells),
    )


def _cells(guards: Sequence[g.Guard], theory: Satisfiability) -> list[Cell]:
    try:
        cells = list(islice(theory.cells(guards), MAX_CELLS + 1))
    except OverBudgetError:
        raise TooManyCellsError from None
    if len(cells) > MAX_CELLS:
        raise TooManyCellsError
    return cells


def _remembered(
    found: Sequence[Component], guards: Sequence[g.Guard], alphabet: Alphabet
) -> tuple[g.Guard, ...]:
    """What a type says of the last records: enough for all that guards ask about records before them."""
    kept: dict[g.Guard, None] = {}
    for component in found:
        kept.update(dict.fromkeys(_of_component(component, guards, alphabet)))
    kept.update(dict.fromkeys(_of_relations(guards, alphabet)))
    return tuple(kept)


def _of_component(component: Component, guards: Sequence[g.Guard], alphabet: Alphabet) -> Iterable[g.Guard]:
    terms = component.remembered
    yield from (g.IsNull(field) for field in terms if field.name != TIME)
    sort = alphabet.fields[component.variables[0]].sort
    if component.fragment is Fragment.TRANSLATION:
        return
    if sort is Sort.BOOLEAN:
        yield from (g.Compare("=", field, g.Constant(value=True)) for field in terms)
        return
    operators = ("=",) if component.fragment is Fragment.EQUALITY or sort is Sort.TEXT else ("<", "=")
    for operator in operators:
        yield from (g.Compare(operator, a, b) for a, b in combinations(terms, 2))
        yield from (g.Compare(operator, a, c) for a in terms for c in component.constants)
    keywords = dict.fromkeys(
        atom.keyword
        for guard in guards
        for atom in g.atoms(guard)
        if isinstance(atom, g.Contains) and alphabet.fields[atom.field.name].variable in component.variables
    )
    yield from (g.Contains(field, keyword) for field in terms for keyword in keywords)


def _of_relations(guards: Sequence[g.Guard], alphabet: Alphabet) -> Iterable[g.Guard]:
    """The relations of the last records, where guards look back at all."""
    depth = max((g.back(atom) for guard in guards for atom in g.atoms(guard)), default=0)
    streams = [r.name for r in alphabet.schema.relations if not r.table]
    if len(streams) > 1:
        yield from (g.OfRelation(name, back) for back in range(depth) for name in streams)
