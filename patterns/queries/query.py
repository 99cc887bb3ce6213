"""Conjunctive queries over streams (PCEA paper, Section 4)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from schema.model import Value


@dataclass(frozen=True, slots=True)
class Variable:
    """Stands for one value, the same wherever it occurs."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that the tuple must have."""

    value: Value

    def __str__(self) -> str:
        return repr(self.value) if isinstance(self.value, str) else str(self.value)


# None for an attribute that does not matter: a variable that occurs nowhere else.
Term: TypeAlias = Variable | Constant | None


@dataclass(frozen=True)
class Atom:
    """R(terms): a tuple of a relation (its position in the schema), one term for each attribute."""

    relation: int
    terms: tuple[Term, ...]

    @cached_property
    def variables(self) -> frozenset[str]:
        return frozenset(term.name for term in self.terms if isinstance(term, Variable))

    def column(self, variable: str) -> int:
        """The first column that a variable stands at."""
        return self.terms.index(Variable(variable))

    def text(self, relation_names: tuple[str, ...]) -> str:
        terms = ", ".join("_" if term is None else str(term) for term in self.terms)
        return f"{relation_names[self.relation]}({terms})"


@dataclass(frozen=True)
class ConjunctiveQuery:
    """Q(head) <- atoms: a bag of atoms, told apart by their position (the identifiers I(Q) of the paper).

    Its results are t-homomorphisms: each atom is mapped to a position of the
    stream, and two atoms may be mapped to the same one.
    """

    head: tuple[str, ...]
    atoms: tuple[Atom, ...]

    def __post_init__(self) -> None:
        if not self.atoms:
            raise ValueError("a query has at least one atom")
        unknown = set(self.head) - set(self.variables)
        if unknown:
            raise ValueError(f"the head's {min(unknown)} is in no atom")

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """In order of their first occurrence."""
        found = [t.name for atom in self.atoms for t in atom.terms if isinstance(t, Variable)]
        return tuple(dict.fromkeys(found))

    def atoms_of(self, variable: str) -> frozenset[int]:
        """The atoms that a variable occurs in: atoms(x) of the paper."""
        return self._atoms_of.get(variable, frozenset())

    @cached_property
    def _atoms_of(self) -> dict[str, frozenset[int]]:
        found: defaultdict[str, list[int]] = defaultdict(list)
        for i, atom in enumerate(self.atoms):
            for variable in atom.variables:
                found[variable].append(i)
        return {variable: frozenset(atoms) for variable, atoms in found.items()}
