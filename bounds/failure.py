"""A condition that does not hold, with what is to blame."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bounds.closure import Closure
from bounds.joins import Inequality
from bounds.query import Atom, Attr, Place, Term


@dataclass(frozen=True, slots=True)
class Failure:
    """One condition of a theorem that fails in one query of the union.

    ``derived``: the comparisons in P+ to blame; ``atoms``: the atoms of the
    query that they follow from. ``necessary``: no other way of keeping tuples could do without it; the
    others are about the shape of the paper's synopses. ``joins``: inequality
    joins that might be redundant in all further cases. ``columns``: where the attributes are
    projected out.
    """

    condition: str
    message: str
    derived: tuple[tuple[Term, Term], ...] = ()
    streams: tuple[str, ...] = ()
    attributes: tuple[Attr, ...] = ()
    necessary: bool = True
    joins: tuple[Inequality, ...] = ()
    columns: tuple[Place, ...] = ()
    atoms: tuple[Atom, ...] = ()

    def explained(self, closure: Closure) -> Failure:
        """The same with ``atoms``: those that ``derived`` follows from, which takes a while to find."""
        atoms = dict.fromkeys(a for one, other in self.derived for a in closure.because(one, other))
        return replace(self, atoms=tuple(atoms))
