"""Which letters can follow which: the graph of types.

With lookback, consecutive letters speak about the same records. A node of the
graph is the knowledge about the last k records (their type), an edge a letter
between the types before and after it. Every sequence of records is a walk
through the graph, so nothing happens that no walk allows. In some fragments
every walk is a sequence of records too (``exact``): there the types determine
all later guards.

Fields that no atom compares with each other are independent, so the fields fall
into components. A component whose values before the current record are never
read needs no memory. The others:

- *dense*: real numbers, compared by order with each other and with constants.
  Whatever the order of the last values, a next one can lie anywhere in it.
- *equality*: an infinite set of values, compared for equality only.
- *translation*: one field, of which guards read only the difference to the
  record before. Adding one amount to all values changes nothing.
- *finite*: truth values.

Anything else (such as order among whole numbers, where there is no room
between 1 and 2) is in no fragment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import combinations
from typing import Final, NamedTuple

from skws_schema.model import AttributeType
from skws_windows.guards import guard as g
from skws_windows.guards.alphabet import TIME, Alphabet
from skws_windows.guards.satisfiability import Satisfiability


class Fragment(Enum):
    """The reason why every walk is realised by records; NONE if it may not be."""

    FORGETFUL = auto()
    DENSE = auto()
    EQUALITY = auto()
    TRANSLATION = auto()
    FINITE = auto()
    CLOCK = auto()
    NONE = auto()


@dataclass(frozen=True, slots=True)
class Component:
    """Fields (by variable) that atoms compare; the terms that a type remembers; the constants in atoms."""

    variables: tuple[str, ...]
    remembered: tuple[g.Field, ...]
    constants: tuple[g.Constant, ...]
    fragment: Fragment


def components(guards: Sequence[g.Guard], alphabet: Alphabet) -> list[Component]:
    """The components of some guards, in order of first use."""
    atoms = list(dict.fromkeys(atom for guard in guards for atom in g.atoms(guard)))
    asked = [atom for atom in atoms if not isinstance(atom, g.OfRelation)]
    groups: list[set[str]] = []
    for atom in asked:
        names = {alphabet.fields[field.name].variable for field in g.fields(atom)}
        together = names.union(*(group for group in groups if group & names))
        groups = [group for group in groups if not group & names] + [together]
    return [
        _component(tuple(sorted(group)), _about(group, asked, alphabet), alphabet)
        for group in groups
        if group
    ]


def _about(group: set[str], atoms: Iterable[g.Atom], alphabet: Alphabet) -> list[g.Atom]:
    return [atom for atom in atoms if {alphabet.fields[f.name].variable for f in g.fields(atom)} & group]


def _component(variables: tuple[str, ...], atoms: list[g.Atom], alphabet: Alphabet) -> Component:
    depth: dict[str, int] = dict.fromkeys(variables, 0)
    for atom in atoms:
        for field in g.fields(atom):
            name = alphabet.fields[field.name].variable
            depth[name] = max(depth[name], field.back)
    if TIME in depth and alphabet.clock:
        depth[TIME] = max(depth[TIME], 1)  # time does not run back, which relates it at every two records
    remembered = tuple(g.Field(name, back) for name in variables for back in range(depth[name]))
    compared = [atom for atom in atoms if isinstance(atom, g.Compare)]
    constants = [c for a in compared for c in (a.left, a.right) if isinstance(c, g.Constant)]
    for _, low, high in (bound for name in variables for bound in alphabet.bounds(name)):
        constants += [g.Constant(bound) for bound in (low, high) if bound is not None]
    fragment = _fragment(variables, atoms, remembered, alphabet)
    return Component(variables, remembered, tuple(dict.fromkeys(constants)), fragment)


def _fragment(
    variables: tuple[str, ...], atoms: list[g.Atom], remembered: tuple[g.Field, ...], alphabet: Alphabet
) -> Fragment:
    if not remembered:
        return Fragment.FORGETFUL
    sorts = {alphabet.fields[name].sort for name in variables}
    bounded = any(alphabet.bounds(name) for name in variables)
    compared = [atom for atom in atoms if isinstance(atom, g.Compare)]
    simple = not any(isinstance(term, g.Sum) for atom in compared for term in (atom.left, atom.right))
    if sorts == {AttributeType.BOOLEAN}:
        return Fragment.FINITE
    moving = len(sorts) == 1 and all(sort.numeric for sort in sorts) and len(remembered) == 1
    if moving and not bounded and all(_invariant(atom) for atom in compared):
        return Fragment.TRANSLATION
    if TIME in variables and alphabet.clock:
        return Fragment.CLOCK if simple and all(_against_constant(a) for a in compared) else Fragment.NONE
    if sorts == {AttributeType.NUMBER} and simple:
        return Fragment.DENSE
    equal = all(atom.operator in ("=", "!=") for atom in compared)
    return Fragment.EQUALITY if len(sorts) == 1 and equal and simple and not bounded else Fragment.NONE


def _invariant(atom: g.Compare) -> bool:
    """Whether adding one amount to all values of a field changes nothing."""
    total: g.Number = 0
    for sign, term in ((1, atom.left), (-1, atom.right)):
        match term:
            case g.Field():
                total += sign
            case g.Sum(terms):
                total += sign * sum(c for c, _ in terms)
    return total == 0


def _against_constant(atom: g.Compare) -> bool:
    return isinstance(atom.left, g.Constant) or isinstance(atom.right, g.Constant)


MAX_CELLS: Final = 800
"""The most cells that are searched for; each takes z3 some milliseconds."""


class Edge(NamedTuple):
    """A letter (its number), and the type that it leads to."""

    letter: int
    target: int


@dataclass(frozen=True, slots=True)
class TypeGraph:
    """``edges[node]``: the next letters. ``letters``: truth of ``guards``; ``types``: of ``remembered``."""

    guards: tuple[g.Guard, ...]
    letters: tuple[tuple[bool, ...], ...]
    edges: tuple[tuple[Edge, ...], ...]
    remembered: tuple[g.Guard, ...]
    types: tuple[tuple[bool, ...], ...]
    exact: bool


def type_graphs(guards: Sequence[g.Guard], theory: Satisfiability) -> Iterator[TypeGraph]:
    """The graph without types, where any letter follows any, then the one with types if that says more.

    The first is found at once, and a bound there is a bound. Raises TooManyCellsError.
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
    cells = theory.cells_up_to(MAX_CELLS, [*before, *guards, *remembered])
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


def _remembered(
    found: Sequence[Component], guards: Sequence[g.Guard], alphabet: Alphabet
) -> tuple[g.Guard, ...]:
    """The guards that a type remembers of the last records: enough to decide all later guards."""
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
    if sort is AttributeType.BOOLEAN:
        yield from (g.Compare("=", field, g.Constant(value=True)) for field in terms)
        return
    operators = (
        ("=",) if component.fragment is Fragment.EQUALITY or sort is AttributeType.TEXT else ("<", "=")
    )
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
