"""Preprocessing: a union is split until every query is a conjunction of ``<``, ``=`` and ``>``.

Step 1 of the paper splits on ``!=``. SQL has ``<=`` and ``>=`` as well: over
integers a comparison with a constant becomes strict, all others are split.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from bounds.closure import Closure
from bounds.query import Atom, Attr, Constant, Extreme, Op, Query
from schema.budget import Budget

MOST_STEPS: Final = 50_000
"""Steps in which a whole union is split into conjunctions and these are looked at: some seconds."""
_CASES: Final = {
    Op.DIFFERENT: (Op.LESS, Op.GREATER),
    Op.AT_MOST: (Op.LESS, Op.EQUAL),
    Op.AT_LEAST: (Op.GREATER, Op.EQUAL),
}


def conjunctions(query: Query, budget: Budget) -> Iterator[Query]:
    """The disjoint conjunctive queries whose union is ``query``; contradictory ones are left out.

    Exponentially many in the atoms that are split. Raises OverBudgetError.
    """
    plain = tuple(_strict(a) for a in query.atoms)
    settled = [a for a in plain if a.op not in _CASES]
    terms = [t for a in plain for t in (a.left, a.right)]
    open_atoms = [a for a in plain if a.op in _CASES]
    # The most recent choice is tried first, so nothing nests as deep as there are atoms.
    pending = [(Closure(settled, terms), tuple[Atom, ...]())]
    while pending:
        closure, chosen = pending.pop()
        budget.spend()
        if closure.consistent and len(chosen) == len(open_atoms):
            yield replace(query, atoms=(*chosen, *settled))
        elif closure.consistent:
            atom = open_atoms[len(chosen)]
            cases = [atom.with_op(op) for op in reversed(_CASES[atom.op])]
            pending += [(closure.adding((case,)), (*chosen, case)) for case in cases]


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
