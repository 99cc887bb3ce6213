"""Finds the smallest changes that make a query bounded; each is verified before it is offered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations

from skws_bounds.maxref import Failure
from skws_bounds.modified import MOST_STEPS, conjunctions, modified
from skws_bounds.normal_form import Atom, Attr, Extreme, Kind, SpjQuery, SpjStream, Union
from skws_bounds.verdict import Verdict, is_bounded
from skws_schema.budgets import OverBudgetError, StepBudget
from skws_schema.model import Op

MOST_TRIED = 200
MOST_OFFERED = 6
_MOST_CHANGES = 3

WINDOW = "give the streams a window, so that old tuples expire"
"""A repair that always helps, but changes the meaning of the query."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change to a query, and its text for the user; ``bounds``: the attribute that it bounds."""

    text: str
    apply: Callable[[Union], Union]
    bounds: Attr | None = None


@dataclass(frozen=True, slots=True)
class Repair:
    """Changes that together make a query bounded: attributes to bound, and texts of other changes."""

    bounds: tuple[Attr, ...]
    others: tuple[str, ...]

    def __str__(self) -> str:
        return ", and ".join((*self._bounds(), *self.others))

    def _bounds(self) -> Iterator[str]:
        if not self.bounds:
            return
        first, pronoun = self.bounds[0], "it" if len(self.bounds) == 1 else "each"
        conditions = f"{first} > ... AND {first} < ..." + (" and so on" if len(self.bounds) > 1 else "")
        names = " and ".join(map(str, self.bounds))
        yield f"bound {names}: give {pronoun} a min and a max in the schema, or add {conditions}"


def repairs(union: Union, verdict: Verdict) -> tuple[Repair, ...]:
    """The repairs with the fewest changes, at most ``MOST_OFFERED``; none if more changes are needed."""
    with StepBudget(MOST_STEPS, "looking for repairs") as budget:
        return _smallest_repairs(union, tuple(_changes(union, verdict.failures)), budget)


def _smallest_repairs(union: Union, changes: tuple[Change, ...], budget: StepBudget) -> tuple[Repair, ...]:
    count = 0
    for size in range(1, _MOST_CHANGES + 1):
        repairs_of_size: list[Repair] = []
        for combination in combinations(changes, size):
            count += 1
            if count > MOST_TRIED or len(repairs_of_size) == MOST_OFFERED:
                break
            if _helps(_apply_all(union, combination), budget):
                bounds = tuple(c.bounds for c in combination if c.bounds)
                repairs_of_size.append(Repair(bounds, tuple(c.text for c in combination if not c.bounds)))
        if repairs_of_size:
            return tuple(repairs_of_size)
    return ()


def _helps(union: Union, budget: StepBudget) -> bool:
    """True if a changed query is bounded and can have results; False if the check takes too long."""
    try:
        possible = all(any(map(modified, conjunctions(query, budget))) for query in union.queries)
    except OverBudgetError:
        return False
    return possible and is_bounded(union, budget)


def _apply_all(union: Union, changes: Iterable[Change]) -> Union:
    for change in changes:
        union = change.apply(union)
    return union


def _changes(union: Union, failures: tuple[Failure, ...]) -> Iterator[Change]:
    """Changes to the parts of the query at fault, the mildest first."""
    attrs = list(dict.fromkeys(a for f in failures for a in (*f.attributes, *_join_attributes(f))))
    streams = list(dict.fromkeys(s for f in failures for s in f.streams))
    yield from map(_bound_change, _unequal(union, [a for a in attrs if a.domain.discrete]))
    kinds = {s.alias: s for q in union.queries for s in q.streams}
    infinite = [kinds[s] for s in streams if kinds[s].kind is Kind.INFINITE]
    other_streams = [s for s in kinds.values() if s.kind is Kind.INFINITE and s not in infinite]
    for first, second in combinations([*infinite, *other_streams], 2):
        yield from (_order(first, second), _order(second, first))
    # All queries of a union have the same number of columns.
    yield from (_project_away(a) for a in attrs if all(a in q.output for q in union.queries))
    yield from (_leave_out(a) for a in {a.place: a for f in failures for a in f.atoms}.values() if a.place)
    if union.distinct:
        yield Change("keep duplicates (drop DISTINCT)", lambda u: replace(u, distinct=False))


def _join_attributes(failure: Failure) -> Iterator[Attr]:
    for join in failure.joins:
        yield from (join.low, join.high)


def _unequal(union: Union, attrs: Iterable[Attr]) -> list[Attr]:
    """One of several attributes that are joined by equality: its bounds hold for the others."""
    pairs = {
        frozenset((a.left, a.right))
        for q in union.queries
        for a in q.atoms
        if a.op is Op.EQUAL and isinstance(a.left, Attr) and isinstance(a.right, Attr)
    }
    representatives: list[Attr] = []
    for attr in attrs:
        if not any(frozenset((attr, other)) in pairs for other in representatives):
            representatives.append(attr)
    return representatives


def _bound_change(attr: Attr) -> Change:
    atoms = tuple(
        Atom(attr, op, Extreme(attr, low), assumed=True) for op, low in ((Op.GREATER, True), (Op.LESS, False))
    )
    return Change(
        f"bound {attr}",
        lambda union: _map_queries(union, attr.stream, lambda query: query.with_atoms(*atoms)),
        attr,
    )


def _order(later: SpjStream, earlier: SpjStream) -> Change:
    atom = Atom(later.clock, Op.GREATER, earlier.clock)

    def apply(query: SpjQuery) -> SpjQuery:
        aliases = {s.alias for s in query.streams}
        return query.with_atoms(atom) if {later.alias, earlier.alias} <= aliases else query

    return Change(f"add a time order: {atom}", lambda union: _map_queries(union, later.alias, apply))


def _project_away(attr: Attr) -> Change:
    def apply(query: SpjQuery) -> SpjQuery:
        columns = [i for i, term in enumerate(query.output) if term != attr]
        return replace(
            query,
            output=tuple(query.output[i] for i in columns),
            names=tuple(query.names[i] for i in columns),
            places=tuple(query.places[i] for i in columns if query.places),
        )

    return Change(f"project {attr} away", lambda union: _map_queries(union, attr.stream, apply))


def _leave_out(atom: Atom) -> Change:
    def apply(union: Union) -> Union:
        atoms = (
            replace(q, atoms=tuple(a for a in q.atoms if (a.text, a.place) != (atom.text, atom.place)))
            for q in union.queries
        )
        return replace(union, queries=tuple(atoms))

    return Change(f"leave out the condition {atom}", apply)


def _map_queries(union: Union, alias: str, apply: Callable[[SpjQuery], SpjQuery]) -> Union:
    queries = (apply(q) if alias in {s.alias for s in q.streams} else q for q in union.queries)
    return replace(union, queries=tuple(queries))
