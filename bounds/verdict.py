"""The verdict on a query: whether it needs only constant memory, and if not, why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from bounds import theorem1, theorem2
from bounds.failure import Failure
from bounds.kept import unkeepable
from bounds.modified import Modified
from bounds.query import Query, Union
from bounds.refine import Budget, Criterion, TooManyCasesError, cases
from bounds.split import conjunctions


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
    try:
        found = tuple(
            _merged(f for query in union.queries for f in _failures(query, distinct=union.distinct))
        )
    except TooManyCasesError:
        failure = Failure("orders", "there are too many orders of attributes to tell apart", necessary=False)
        return Verdict(None, union.distinct, (failure,), certain=False)
    necessary = any(f.necessary for f in found)
    if not found:
        return Verdict(True, union.distinct, ())
    if union.distinct:
        # Theorem 2 is sufficient only; but what is put out once has to be remembered for ever.
        remembered = any(f.condition == "C1" for f in found) and not _repeats(union)
        return Verdict(False if remembered else None, True, found, certain=remembered)
    return Verdict(False, False, found, certain=necessary and not _repeats(union))


def keepable(query: Modified, *, distinct: bool) -> tuple[Failure, ...]:
    """The criterion that the synopses rest on: what a forest of nodes keeps is bounded."""
    return unkeepable(query, distinct=distinct)


def _failures(query: Query, *, distinct: bool) -> Iterator[Failure]:
    told: set[object] = set()
    budget = Budget()
    for conjunction in conjunctions(query):
        theorem = theorem2.failures if distinct else theorem1.failures
        found = tuple(_lasting(conjunction, theorem, told, budget))
        yield from found
        if distinct and not found:
            criterion = partial(keepable, distinct=True)
            yield from _lasting(conjunction, criterion, told, budget, times=True)


def _lasting(
    query: Query, criterion: Criterion, told: set[object], budget: Budget, *, times: bool = False
) -> Iterator[Failure]:
    """For what a query fails at once, and for what in the first case that is split to the end.

    What has been told of another query of the union is not looked for again.
    """

    def at_once(modified: Modified) -> tuple[Failure, ...]:
        return tuple(f for f in criterion(modified) if not f.joins)

    def later(modified: Modified) -> tuple[Failure, ...]:
        return tuple(f for f in criterion(modified) if f.joins and _key(f) not in told)

    for part in (at_once, later):
        for case in cases(query, part, budget, times=times):
            if case.failures:
                yield from (f.explained(case.query.closure) for f in case.failures)
                told.update(map(_key, case.failures))
                break


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
