"""Preprocessing: a union is split until every query is a conjunction of ``<``, ``=`` and ``>``.

Step 1 of the paper splits on ``!=``. SQL has ``<=`` and ``>=`` as well: over
integers a comparison with a constant becomes strict, all others are split.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bounds.closure import Closure
from bounds.query import Atom, Attr, Constant, Extreme, Op, Query

_CASES = {
    Op.DIFFERENT: (Op.LESS, Op.GREATER),
    Op.AT_MOST: (Op.LESS, Op.EQUAL),
    Op.AT_LEAST: (Op.GREATER, Op.EQUAL),
}


def conjunctions(query: Query) -> Iterator[Query]:
    """The disjoint conjunctive queries whose union is ``query``; contradictory ones are left out."""
    plain = tuple(_strict(a) for a in query.atoms)
    open_atoms = [a for a in plain if a.op in _CASES]
    yield from _split(replace(query, atoms=()), plain, open_atoms)


def _split(query: Query, plain: tuple[Atom, ...], open_atoms: list[Atom]) -> Iterator[Query]:
    settled = tuple(a for a in plain if a.op not in _CASES)
    if not Closure((*query.atoms, *settled)).consistent:
        return
    if not open_atoms:
        yield query.adding(*settled)
        return
    atom, *others = open_atoms
    for op in _CASES[atom.op]:
        yield from _split(query.adding(atom.with_op(op)), plain, others)


def _strict(atom: Atom) -> Atom:
    """``A <= 5`` is ``A < 6`` where A is an integer; a constant comes last."""
    if not isinstance(atom.left, Attr):
        atom = Atom(atom.right, atom.op.turned, atom.left, atom.text, atom.place, atom.assumed)
    shift = {Op.AT_MOST: 1, Op.AT_LEAST: -1}.get(atom.op)
    value = atom.right.value if isinstance(atom.right, Constant) else None
    if shift is None or not isinstance(value, int) or not atom.left.domain.discrete:
        return atom
    op = Op.LESS if shift > 0 else Op.GREATER
    bound = Constant(value + shift, atom.right.domain)
    return Atom(atom.left, op, bound, atom.text, atom.place, atom.assumed, atom.case)


def extremes(attrs: Iterator[Attr] | list[Attr]) -> tuple[Atom, ...]:
    """Atoms that hold each of ``attrs`` between its own extremes; texts have no order to speak of."""
    return tuple(
        Atom(a, op, Extreme(a, low), assumed=True)
        for a in attrs
        for op, low in ((Op.GREATER, True), (Op.LESS, False))
    )
