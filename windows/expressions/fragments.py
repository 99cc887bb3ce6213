"""What guards ask of fields over several records, and where that is simple enough to be decided.

Fields that no atom compares with each other have nothing to do with each
other: the fields fall into components. A component whose values before the
current record are never asked about needs no memory. Of the others:

- *dense*: real numbers, compared by order with each other and with constants.
  Whatever the order of the last values, a next one can stand anywhere in it.
- *equality*: an infinite set of values, asked for equality alone.
- *translation*: one field, of which only the difference to the record before
  is asked about. Moving all values by one amount changes nothing.
- *finite*: truth values.

Anything else (such as order among whole numbers, where there is no room
between 1 and 2) is in no fragment.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from windows.expressions import guards as g
from windows.expressions.alphabet import TIME, Alphabet, Sort


class Fragment(Enum):
    """Why every locally consistent sequence of types is realised; NONE if it may not be."""

    FORGETFUL = auto()
    DENSE = auto()
    EQUALITY = auto()
    TRANSLATION = auto()
    FINITE = auto()
    CLOCK = auto()
    NONE = auto()


@dataclass(frozen=True, slots=True)
class Component:
    """Fields (by variable) that atoms compare; the terms that a type remembers; the constants asked for."""

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
        depth[TIME] = max(depth[TIME], 1)  # time does not run back, so it is asked about at every record
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
    if sorts == {Sort.BOOLEAN}:
        return Fragment.FINITE
    moving = len(sorts) == 1 and all(sort.numeric for sort in sorts) and len(remembered) == 1
    if moving and not bounded and all(_invariant(atom) for atom in compared):
        return Fragment.TRANSLATION
    if TIME in variables and alphabet.clock:
        return Fragment.CLOCK if simple and all(_against_constant(a) for a in compared) else Fragment.NONE
    if sorts == {Sort.NUMBER} and simple:
        return Fragment.DENSE
    equal = all(atom.operator in ("=", "!=") for atom in compared)
    return Fragment.EQUALITY if len(sorts) == 1 and equal and simple and not bounded else Fragment.NONE


def _invariant(atom: g.Compare) -> bool:
    """Whether moving all values of a field by one amount changes nothing."""
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
