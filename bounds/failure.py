"""A condition that does not hold, with what is to blame."""

from __future__ import annotations

from dataclasses import dataclass

from bounds.joins import Inequality
from bounds.query import Atom, Attr, Place


@dataclass(frozen=True, slots=True)
class Failure:
    """One condition of a theorem that fails in one query of the union.

    ``necessary``: no other way of keeping tuples could do without it; the
    others are about the shape of the paper's synopses. ``joins``: inequality
    joins that might be redundant in all further cases. ``columns``: where the attributes are
    projected out.
    """

    condition: str
    message: str
    atoms: tuple[Atom, ...] = ()
    streams: tuple[str, ...] = ()
    attributes: tuple[Attr, ...] = ()
    necessary: bool = True
    joins: tuple[Inequality, ...] = ()
    columns: tuple[Place, ...] = ()
