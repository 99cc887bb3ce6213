"""The search for a locally totally ordered query that fails for joins given.

To fail for a join it must not be redundant there: no constant is between its
ends, nor an attribute of their nodes. So of the orders of ends and constants
only those are looked at in which both ends lie between the same two constants,
and total orders in which nothing comes between the ends are tried first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from bounds.closure import Closure, bits
from bounds.failure import Failure
from bounds.joins import Inequality
from bounds.modified import Modified
from bounds.query import Atom, Attr, Constant, Domain, Op, Term
from bounds.refine import Criterion, compared, pair_orders
from schema.budget import Budget

Joins = tuple[Inequality, ...]
Order = tuple[Atom, ...]


@dataclass(frozen=True, slots=True)
class Blame:
    """A condition, and joins for all of which it is to fail."""

    condition: str
    joins: Joins

    def among(self, failures: Iterable[Failure]) -> tuple[Failure, ...]:
        return tuple(f for f in failures if f.condition == self.condition and set(self.joins) <= set(f.joins))


def failing(query: Modified, criterion: Criterion, blame: Blame, budget: Budget) -> Modified | None:
    """A case that fails for what is blamed however it is split further; None if none does.

    Raises OverBudgetError.
    """
    budget.spend()
    failures = blame.among(criterion(query))
    if not failures:
        return None
    orders: Iterable[Order] = _gaps(query.closure, blame.joins)
    if not orders:
        for guessed in filter(None, map(query.refined, _guesses(query, blame.joins))):
            budget.spend()
            if blame.among(criterion(guessed)):
                return guessed
        orders = pair_orders(query, failures)
    cases = filter(None, map(query.refined, orders))
    return next(filter(None, (failing(case, criterion, blame, budget) for case in cases)), None)


def _gaps(closure: Closure, joins: Joins) -> list[Order]:
    """Where the ends of a join may lie among constants; none if that is known of all joins.

    What equals a constant is joined with nothing.
    """
    for low, high in ((j.low, j.high) for j in joins):
        known = [t for t in closure.class_of if not isinstance(t, Attr)]
        known = [t for t in known if t.domain.family is low.domain.family]
        ends = [_above(low, t) for t in known if closure.less(t, high) and not closure.less(t, low)]
        ends += [_below(high, t) for t in known if closure.less(low, t) and not closure.less(high, t)]
        free = [t for t in known if isinstance(t, Constant) and not _reached(closure, t, low, high)]
        if ends or free:
            free.sort(key=lambda t: t.value)  # type: ignore[arg-type, return-value]
            floors = [(), *((_above(low, t),) for t in free)]
            ceilings = [*((_below(high, t),) for t in free), ()]
            return [(*ends, *floor, *ceiling) for floor, ceiling in zip(floors, ceilings, strict=True)]
    return []


def _reached(closure: Closure, constant: Constant, low: Term, high: Term) -> bool:
    return closure.decided(low, constant) or closure.decided(high, constant)


def _above(term: Term, bound: Term) -> Atom:
    return Atom(term, Op.GREATER, bound, case=True)


def _below(term: Term, bound: Term) -> Atom:
    return Atom(term, Op.LESS, bound, case=True)


def _guesses(query: Modified, joins: Joins) -> Iterator[Order]:
    """Total orders in which most terms are small, and large; contradictory ones now and then."""
    closure = query.closure
    chains = list(_chains(query))
    for values in (
        _values(closure, closure.below, closure.above, 1),
        _values(closure, closure.above, closure.below, -1),
    ):
        numbers = sorted(range(len(values)), key=values.__getitem__)
        for join in joins:
            _bring_together(closure, numbers, closure.class_of[join.low], closure.class_of[join.high])
        place = {number: at for at, number in enumerate(numbers)}
        ordered = (sorted(chain, key=place.__getitem__) for chain in chains)
        yield tuple(
            Atom(
                closure.members[one][0],
                Op.LESS if values[one] != values[other] else Op.EQUAL,
                closure.members[other][0],
                case=True,
            )
            for chain in ordered
            for one, other in pairwise(chain)
            if not closure.above[one] >> other & 1
        )


def _values(closure: Closure, below: list[int], above: list[int], sign: int) -> list[int]:
    """Integers that the classes may stand for: those of constants, else small ones that are free."""
    numbers = range(len(closure.members))
    fixed = {
        n: sign * int(t.value)
        for n in numbers
        for t in closure.members[n]
        if isinstance(t, Constant) and isinstance(t.value, int | float)
    }
    room = 2 * len(numbers)
    first, last = min(fixed.values(), default=0) - room, max(fixed.values(), default=0) + room
    most: dict[int, int] = {}
    for number in sorted(numbers, key=lambda n: above[n].bit_count()):
        most[number] = fixed.get(number, min((most[n] - 1 for n in bits(above[number])), default=last))
    found: dict[int, int] = {}
    taken = set(fixed.values())
    for number in sorted(numbers, key=lambda n: below[n].bit_count()):
        least = max((found[n] + 1 for n in bits(below[number])), default=first)
        free = (value for value in range(least, most[number] + 1) if value not in taken)
        found[number] = fixed[number] if number in fixed else next(free, least)
        taken.add(found[number])
    return [sign * found[n] for n in numbers]


def _bring_together(closure: Closure, numbers: list[int], low: int, high: int) -> None:
    """Move what stands between two classes out of the way."""
    first, last = numbers.index(low), numbers.index(high)
    between = numbers[first + 1 : last]
    after = [n for n in between if closure.above[low] >> n & 1]
    before = [n for n in between if n not in after]
    numbers[first : last + 1] = [*before, low, high, *after]


def _chains(query: Modified) -> Iterator[set[int]]:
    """For each node the classes that a total order of it has to do with: its attributes' and constants'."""
    class_of = query.closure.class_of
    fixed: dict[Domain, set[int]] = defaultdict(set)
    for term in class_of:
        if not isinstance(term, Attr):
            fixed[term.domain.family].add(class_of[term])
    own: dict[tuple[int, Domain], set[int]] = defaultdict(set)
    for term in compared(query):
        if isinstance(term, Attr) and term.stream in query.node_of and term.domain is not Domain.TIME:
            own[query.node_of[term.stream], term.domain.family].add(class_of[term])
    for (_, family), numbers in own.items():
        yield numbers | fixed[family]
