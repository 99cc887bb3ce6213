"""Theorem 2 of the paper: duplicate-eliminating queries, conditions C1 to C3.

C3 counts the references of each stream by itself. With application time that
is not enough: if one of two streams has to come after the other and each keeps
an unbounded attribute, then pairs of values have to be kept, and there may be
arbitrarily many of which none is better than another. A query that passes here
therefore has to pass ``skws_bounds.maxref.unkeepable`` as well, which checks C3 for
each stream together with what it keeps of earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterator

from skws_bounds.maxref import Failure, equalities, references
from skws_bounds.modified import Modified
from skws_bounds.normal_form import Atom, Attr
from skws_bounds.theorem1 import unbounded_equality
from skws_schema.values import Op


def output_is_bounded(query: Modified) -> Iterator[Failure]:
    """C1: every output attribute is bounded. Necessary: results put out have to be remembered."""
    for attr in dict.fromkeys(t for t in query.query.output if isinstance(t, Attr)):
        if attr.stream in query.node_of and not query.closure.bounded(query.closure.class_of[attr]):
            message = f"{attr} is projected out without duplicates, but is not bounded"
            written = query.query.written(attr)
            yield Failure("C1", message, (), (attr.stream,), (attr,), columns=written)


def equalities_are_bounded(query: Modified) -> Iterator[Failure]:
    """C2: attributes joined by equality are bounded."""
    for number, _ in equalities(query):
        if not query.closure.bounded(number):
            yield unbounded_equality("C2", query, number)


def one_reference(query: Modified) -> Iterator[Failure]:
    """C3: of each stream at most one least or greatest value has to be kept."""
    for node in range(len(query.nodes)):
        found = references(query, node)
        greatest = {query.closure.class_of[j.high] for j in found.greatest}
        least = {query.closure.class_of[j.low] for j in found.least}
        if len(greatest) + len(least) > 1:
            joins = tuple(dict.fromkeys((*found.greatest, *found.least)))
            own = tuple(
                dict.fromkeys(a for j in joins for a in (j.low, j.high) if a.stream in query.nodes[node])
            )
            derived = tuple((j.low, j.high) for j in joins)
            ends = [f"the greatest {query.closure.members[n][0]}" for n in sorted(greatest)]
            ends += [f"the least {query.closure.members[n][0]}" for n in sorted(least)]
            message = f"{query.name(node)} would have to keep {' and '.join(ends)}"
            yield Failure("C3", message, derived, query.nodes[node], own, joins=joins)


def failures(query: Modified) -> tuple[Failure, ...]:
    """Every failure of a modified query by Theorem 2, as printed in the paper."""
    conditions = (output_is_bounded, equalities_are_bounded, one_reference)
    return tuple(failure for condition in conditions for failure in condition(query))


def time_cases(query: Modified) -> tuple[tuple[Atom, ...], ...]:
    """The orders of two streams that both follow a third; none for a forest."""
    for parents in query.graph.parents:
        if len(parents) > 1:
            one, other = (query.query.stream(query.nodes[p][0]).clock for p in sorted(parents)[:2])
            return tuple((Atom(one, op, other, case=True),) for op in (Op.LESS, Op.EQUAL, Op.GREATER))
    return ()
