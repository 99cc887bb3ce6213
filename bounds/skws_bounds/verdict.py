"""The verdict on a query: whether it needs only constant memory, and if not, why.

A query fails for a join only if the join is not redundant: neither a constant nor an attribute of its nodes
is between its ends. So the search for a locally totally ordered query that fails considers only orders in
which both ends are between the same two constants, and first tries total orders in which nothing is between
the ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, pairwise

from skws_bounds.closure import Closure, bits
from skws_bounds.lto import Criterion, compared_terms, forests, pair_orders
from skws_bounds.maxref import Failure, Inequality, keep_failures
from skws_bounds.modified import MOST_STEPS, Modified, conjunctions, modified
from skws_bounds.normal_form import Atom, Attr, Constant, Domain, SpjQuery, Term, Union
from skws_bounds.theorems import theorem_1, theorem_2
from skws_schema.budgets import OverBudgetError, StepBudget
from skws_schema.model import Op

Joins = tuple[Inequality, ...]
Order = tuple[Atom, ...]


@dataclass(frozen=True, slots=True)
class Blame:
    """A condition that must fail for all of some joins."""

    condition: str
    joins: Joins

    def matching(self, failures: Iterable[Failure]) -> tuple[Failure, ...]:
        return tuple(f for f in failures if f.condition == self.condition and set(self.joins) <= set(f.joins))


def failing_case(query: Modified, criterion: Criterion, blame: Blame, budget: StepBudget) -> Modified | None:
    """A case that fails for the blamed joins however it is split; None if there is none.

    Raises OverBudgetError.
    """
    budget.spend()
    failures = blame.matching(criterion(query))
    if not failures:
        return None
    orders: Iterable[Order] = _gaps(query.closure, blame.joins)
    if not orders:
        for guess in filter(None, map(query.refine, _guesses(query, blame.joins))):
            budget.spend()
            if blame.matching(criterion(guess)):
                return guess
        orders = pair_orders(query, failures)
        if not orders:  # it is locally totally ordered
            return query
    cases = filter(None, map(query.refine, orders))
    return next(filter(None, (failing_case(case, criterion, blame, budget) for case in cases)), None)


def _gaps(closure: Closure, joins: Joins) -> list[Order]:
    """The possible positions of a join's ends among constants; empty if they are determined for all joins."""
    for low, high in ((j.low, j.high) for j in joins):
        constants = [t for t in closure.class_of if not isinstance(t, Attr)]
        constants = [t for t in constants if t.domain.family is low.domain.family]
        ends = [_above(low, t) for t in constants if closure.less(t, high) and not closure.less(t, low)]
        ends += [_below(high, t) for t in constants if closure.less(low, t) and not closure.less(high, t)]
        free = [t for t in constants if isinstance(t, Constant) and not _is_decided(closure, t, low, high)]
        if ends or free:
            free.sort(key=lambda t: t.value)  # type: ignore[arg-type, return-value]
            floors = [(), *((_above(low, t),) for t in free)]
            ceilings = [*((_below(high, t),) for t in free), ()]
            return [(*ends, *floor, *ceiling) for floor, ceiling in zip(floors, ceilings, strict=True)]
    return []


def _is_decided(closure: Closure, constant: Constant, low: Term, high: Term) -> bool:
    return closure.is_ordered(low, constant) or closure.is_ordered(high, constant)


def _above(term: Term, bound: Term) -> Atom:
    return Atom(term, Op.GREATER, bound, case=True)


def _below(term: Term, bound: Term) -> Atom:
    return Atom(term, Op.LESS, bound, case=True)


def _guesses(query: Modified, joins: Joins) -> Iterator[Order]:
    """Total orders in which most terms are small, then large; some may be contradictory."""
    closure = query.closure
    chains = list(_chains(query))
    for values in (
        _values(closure, closure.below, closure.above, 1),
        _values(closure, closure.above, closure.below, -1),
    ):
        numbers = sorted(range(len(values)), key=values.__getitem__)
        for join in joins:
            _bring_together(closure, numbers, closure.class_of[join.low], closure.class_of[join.high])
        rank = {number: position for position, number in enumerate(numbers)}
        sorted_chains = (sorted(chain, key=rank.__getitem__) for chain in chains)
        yield tuple(
            Atom(
                closure.members[first][0],
                Op.LESS if values[first] != values[second] else Op.EQUAL,
                closure.members[second][0],
                case=True,
            )
            for chain in sorted_chains
            for first, second in pairwise(chain)
            if not closure.above[first] >> second & 1
        )


def _values(closure: Closure, below: list[int], above: list[int], sign: int) -> list[int]:
    """Possible integer values of the classes: those of constants, else small unused ones."""
    numbers = range(len(closure.members))
    constants = {
        n: sign * int(t.value)
        for n in numbers
        for t in closure.members[n]
        if isinstance(t, Constant) and isinstance(t.value, int | float)
    }
    room = 2 * len(numbers)
    first, last = min(constants.values(), default=0) - room, max(constants.values(), default=0) + room
    upper_bounds: dict[int, int] = {}
    for number in sorted(numbers, key=lambda n: above[n].bit_count()):
        upper_bounds[number] = constants.get(
            number, min((upper_bounds[n] - 1 for n in bits(above[number])), default=last)
        )
    values: dict[int, int] = {}
    used_values = set(constants.values())
    for number in sorted(numbers, key=lambda n: below[n].bit_count()):
        lower_bound = max((values[n] + 1 for n in bits(below[number])), default=first)
        free = (value for value in range(lower_bound, upper_bounds[number] + 1) if value not in used_values)
        values[number] = constants[number] if number in constants else next(free, lower_bound)
        used_values.add(values[number])
    return [sign * values[n] for n in numbers]


def _bring_together(closure: Closure, numbers: list[int], low: int, high: int) -> None:
    """Move the classes between two classes before or after them."""
    first, last = numbers.index(low), numbers.index(high)
    middle = numbers[first + 1 : last]
    greater = [n for n in middle if closure.above[low] >> n & 1]
    lesser = [n for n in middle if n not in greater]
    numbers[first : last + 1] = [*lesser, low, high, *greater]


def _chains(query: Modified) -> Iterator[set[int]]:
    """For each node the classes in a total order of it: of its attributes and of constants."""
    class_of = query.closure.class_of
    constants: dict[Domain, set[int]] = defaultdict(set)
    for term in class_of:
        if not isinstance(term, Attr):
            constants[term.domain.family].add(class_of[term])
    node_classes: dict[tuple[int, Domain], set[int]] = defaultdict(set)
    for term in compared_terms(query):
        if isinstance(term, Attr) and term.stream in query.node_of and term.domain is not Domain.TIME:
            node_classes[query.node_of[term.stream], term.domain.family].add(class_of[term])
    for (_, family), numbers in node_classes.items():
        yield numbers | constants[family]


MOST_CASES_CHECKED = 800
"""The most cases of one query checked for a verdict: about half a second."""
_CASE_STEPS = 10
"""The steps charged for each conjunction, and for each case of it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """``bounded``: None if unknown, since Theorem 2 does not decide or there are too many cases.

    ``failures``: each failing condition of each stream, once. ``certain``: False if the query fails only
    because of the shape of the paper's synopses (see ``Failure.necessary``); other synopses might do.
    """

    bounded: bool | None
    distinct: bool
    failures: tuple[Failure, ...]
    certain: bool = True

    @property
    def projection(self) -> str:
        return "eliminating" if self.distinct else "preserving"


def check(union: Union) -> Verdict:
    """Theorem 1 or Theorem 2 for all queries of a union (a union is bounded if all its queries are)."""
    failures: list[Failure] = []
    is_complete = True
    try:
        with StepBudget(MOST_STEPS, "checking memory") as budget:
            failures.extend(_failures(union, budget))
    except OverBudgetError:
        is_complete = False
    if not failures and not is_complete:
        return Verdict(None, union.distinct, (_too_many(union),), certain=False)
    distinct_failures = tuple(_merge(failures))
    necessary = any(f.necessary for f in distinct_failures)
    if not distinct_failures:
        return Verdict(True, union.distinct, ())
    if union.distinct:
        # Theorem 2 is only sufficient; but distinct results must be remembered forever.
        must_remember = any(f.condition == "C1" for f in distinct_failures) and not _repeats(union)
        return Verdict(False if must_remember else None, True, distinct_failures, certain=must_remember)
    return Verdict(False, False, distinct_failures, certain=necessary and not _repeats(union))


def _too_many(union: Union) -> Failure:
    """The failure of a query with too many cases to check."""
    count = max(sum(a.op in (Op.DIFFERENT, Op.AT_MOST, Op.AT_LEAST) for a in q.atoms) for q in union.queries)
    message = "there are too many orders of attributes to distinguish"
    if count:
        message += f": each of {count} comparisons by <>, <= or >= doubles them; compare by <, > or ="
    return Failure("orders", message, necessary=False)


def is_bounded(union: Union, budget: StepBudget) -> bool:
    """True if a union is bounded; faster than a verdict with reasons."""
    try:
        return next(_failures(union, budget), None) is None
    except OverBudgetError:
        return False


def _failures(union: Union, budget: StepBudget) -> Iterator[Failure]:
    for query in union.queries:
        yield from _query_failures(query, budget, distinct=union.distinct)


def _query_failures(query: SpjQuery, steps: StepBudget, *, distinct: bool) -> Iterator[Failure]:
    reported: set[object] = set()
    budget = StepBudget(MOST_CASES_CHECKED, steps.stage)
    for conjunction in conjunctions(query, steps):
        steps.spend(_CASE_STEPS)
        modified_query = modified(conjunction)
        if modified_query is None:
            continue
        theorem = theorem_2 if distinct else theorem_1
        yield from persistent_failures(modified_query, theorem, reported, budget)
        if distinct and not reported:
            criterion = partial(keep_failures, distinct=True)
            forest_failures = (
                tuple(persistent_failures(f, criterion, reported, budget))
                for f in forests(conjunction, budget)
            )
            yield from next(filter(None, forest_failures), ())
    steps.spend(_CASE_STEPS * budget.spent)


def persistent_failures(
    query: Modified, criterion: Criterion, reported: set[object], budget: StepBudget
) -> Iterator[Failure]:
    """The failures without joins, and those of the first case that fails however it is split.

    Failures in ``reported``, of other queries of the union, are skipped.
    """
    case_failures = sorted(criterion(query), key=lambda f: not f.necessary)
    yield from _explain((f for f in case_failures if not f.joins), query, reported)
    for failure in case_failures:
        for blame in _blames(query, failure):
            case = _key(failure) not in reported and failing_case(query, criterion, blame, budget)
            if case:
                remaining = (f for f in criterion(case) if f.joins and _key(f) not in reported)
                yield from _explain(remaining, case, reported)
                return


def _explain(failures: Iterable[Failure], query: Modified, reported: set[object]) -> Iterator[Failure]:
    for failure in failures:
        reported.add(_key(failure))
        yield failure.explain(query.closure)


def _blames(query: Modified, failure: Failure) -> Iterator[Blame]:
    """The joins for which one case must fail: one, or two if a stream must keep several values."""
    pairs = {(query.closure.class_of[j.low], query.closure.class_of[j.high]): j for j in failure.joins}
    for joins in combinations(pairs.values(), 2) if len(pairs) > 1 else ((j,) for j in pairs.values()):
        yield Blame(failure.condition, joins)


def _key(failure: Failure) -> object:
    return failure.condition, failure.streams, failure.attributes


def _merge(failures: Iterable[Failure]) -> Iterator[Failure]:
    """Each condition once for the same attributes, with all atoms at fault."""
    by_key: dict[object, Failure] = {}
    for failure in failures:
        key = _key(failure)
        if key in by_key:
            atoms = {str(a): a for a in (*by_key[key].atoms, *failure.atoms)}
            by_key[key] = replace(by_key[key], atoms=tuple(atoms.values()))
        else:
            by_key[key] = failure
    yield from sorted(by_key.values(), key=lambda f: f.condition)


def _repeats(union: Union) -> bool:
    """True if some query names a stream twice, which the paper excludes."""
    for query in union.queries:
        names = [(s.relation, s.keywords) for s in query.streams if s.time is not None]
        if len(set(names)) < len(names):
            return True
    return False
