"""The verdict on a query: whether it needs only constant memory, and if not, why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

from bounds import theorem1, theorem2
from bounds.failure import Failure
from bounds.kept import unkeepable
from bounds.modified import Modified, modified
from bounds.query import Op, Query, Union
from bounds.refine import Criterion, forests
from bounds.search import Blame, failing
from bounds.split import MOST_STEPS, conjunctions
from schema.budget import Budget, OverBudgetError

MOST_LOOKED_AT = 800
"""Cases of one query that are looked at for a verdict: about half a second."""
_LOOK = 10
"""Steps that a conjunction costs, or a case of one."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """``bounded`` is None if Theorem 2 does not apply and nothing is known.

    ``failures``: each failing condition of each stream, once. ``certain``:
    False if the query fails only for the shape of the paper's synopses (see
    ``Failure.necessary``), so that other ways of keeping tuples might do.
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
    told_all = True
    try:
        with Budget(MOST_STEPS, "checking memory") as budget:
            failures.extend(_failures(union, budget))
    except OverBudgetError:
        told_all = False
    if not failures and not told_all:
        return Verdict(None, union.distinct, (_too_many(union),), certain=False)
    found = tuple(_merged(failures))
    necessary = any(f.necessary for f in found)
    if not found:
        return Verdict(True, union.distinct, ())
    if union.distinct:
        # Theorem 2 is sufficient only; but what is put out once has to be remembered for ever.
        remembered = any(f.condition == "C1" for f in found) and not _repeats(union)
        return Verdict(False if remembered else None, True, found, certain=remembered)
    return Verdict(False, False, found, certain=necessary and not _repeats(union))


def _too_many(union: Union) -> Failure:
    """What is told where the cases are more than can be looked at."""
    split = max(sum(a.op in (Op.DIFFERENT, Op.AT_MOST, Op.AT_LEAST) for a in q.atoms) for q in union.queries)
    message = "there are too many orders of attributes to tell apart"
    if split:
        message += f": each of {split} comparisons by <>, <= or >= doubles them; compare by <, > or ="
    return Failure("orders", message, necessary=False)


def is_bounded(union: Union, budget: Budget) -> bool:
    """Whether the verdict is that a union is bounded; sooner told than why not."""
    try:
        return next(_failures(union, budget), None) is None
    except OverBudgetError:
        return False


def _failures(union: Union, budget: Budget) -> Iterator[Failure]:
    for query in union.queries:
        yield from _query_failures(query, budget, distinct=union.distinct)


def _query_failures(query: Query, steps: Budget, *, distinct: bool) -> Iterator[Failure]:
    told: set[object] = set()
    budget = Budget(MOST_LOOKED_AT, steps.stage)
    for conjunction in conjunctions(query, steps):
        steps.spend(_LOOK)
        plain = modified(conjunction)
        if plain is None:
            continue
        theorem = theorem2.failures if distinct else theorem1.failures
        yield from lasting(plain, theorem, told, budget)
        if distinct and not told:
            criterion = partial(unkeepable, distinct=True)
            of_forests = (tuple(lasting(f, criterion, told, budget)) for f in forests(conjunction, budget))
            yield from next(filter(None, of_forests), ())
    steps.spend(_LOOK * budget.spent)


def lasting(query: Modified, criterion: Criterion, told: set[object], budget: Budget) -> Iterator[Failure]:
    """For what a query fails at once, and for what in the first case found that fails for good.

    What has been told of another query of the union is not looked for again.
    """
    found = sorted(criterion(query), key=lambda f: not f.necessary)
    yield from _explained((f for f in found if not f.joins), query, told)
    for failure in found:
        for blame in _blames(query, failure):
            case = _key(failure) not in told and failing(query, criterion, blame, budget)
            if case:
                remaining = (f for f in criterion(case) if f.joins and _key(f) not in told)
                yield from _explained(remaining, case, told)
                return


def _explained(failures: Iterable[Failure], query: Modified, told: set[object]) -> Iterator[Failure]:
    for failure in failures:
        told.add(_key(failure))
        yield failure.explained(query.closure)


def _blames(query: Modified, failure: Failure) -> Iterator[Blame]:
    """What one failing case needs: a join, or two of them where a stream has to keep several values."""
    pairs = {(query.closure.class_of[j.low], query.closure.class_of[j.high]): j for j in failure.joins}
    for joins in combinations(pairs.values(), 2) if len(pairs) > 1 else ((j,) for j in pairs.values()):
        yield Blame(failure.condition, joins)


def _key(failure: Failure) -> object:
    return failure.condition, failure.streams, failure.attributes


def _merged(failures: Iterable[Failure]) -> Iterator[Failure]:
    """Each condition once for the same attributes, with all atoms to blame."""
    found: dict[object, Failure] = {}
    for failure in failures:
        key = _key(failure)
        if key in found:
            atoms = {str(a): a for a in (*found[key].atoms, *failure.atoms)}
            found[key] = replace(found[key], atoms=tuple(atoms.values()))
        else:
            found[key] = failure
    yield from sorted(found.values(), key=lambda f: f.condition)


def _repeats(union: Union) -> bool:
    """True if some query names a stream twice, which the paper excludes."""
    for query in union.queries:
        names = [(s.relation, s.keywords) for s in query.streams if s.time is not None]
        if len(set(names)) < len(names):
            return True
    return False
