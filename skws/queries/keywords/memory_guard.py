"""Refuses keyword queries that no window and no theorem keeps from growing, and tells what would help."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations, islice
from typing import Final

from skws.keywords.plan import Plan
from skws.queries.keywords.bounded_networks import ends, has_bounded_key
from skws.queries.keywords.memory_verdict import Memory, memory_of
from skws_bounds.normal_form import Domain
from skws_bounds.repairs import WINDOW
from skws_schema.errors import QueryError, UsageError
from skws_schema.model import Attribute, Relation
from skws_windows.window import Unbounded

FORCE: Final = "--force-unbounded"
_MOST_CHANGES: Final = 3
_MOST_OFFERED: Final = 6
_MOST_TRIED: Final = 60


@dataclass(frozen=True, slots=True)
class Change:
    """One change to a plan, and how it is told to a user."""

    text: str
    apply: Callable[[Plan], Plan]


def refuse_unbounded(plan: Plan) -> None:
    """Raises UsageError for a query over endless streams that no constant memory is known to do for."""
    if not isinstance(plan.window, Unbounded):
        return
    memory = memory_of(plan)
    if not memory.bounded:
        raise UsageError("\n".join(_refusal(plan, memory)))


def repairs(plan: Plan) -> tuple[str, ...]:
    """The fewest changes after which all networks of a query are bounded; each has been tried."""
    changes = tuple(_changes(plan))
    tried = 0
    for size in range(1, _MOST_CHANGES + 1):
        found: list[str] = []
        for chosen in combinations(changes, size):
            tried += 1
            if tried > _MOST_TRIED or len(found) == _MOST_OFFERED:
                break
            if _helps(plan, chosen):
                found.append(", and ".join(change.text for change in chosen))
        if found:
            return tuple(found)
    return ()


def _refusal(plan: Plan, memory: Memory) -> Iterator[str]:
    why = "it would need more and more memory:"
    if not memory.faults:
        why = f"it has too many networks to tell what it would keep (more than {memory.looked_at:,})"
    yield f"query {plan.query.text!r}: without a window nothing expires, and {why}"
    yield from (f"  {fault.network}: {fault.reason}" for fault in memory.faults)
    yield "any of these would make it bounded:"
    yield from (f"  - {repair}" for repair in repairs(plan))
    yield f"  - {WINDOW} (--window '20 minutes')"
    yield f"{FORCE} keeps all tuples for as long as there is memory"


def _helps(plan: Plan, chosen: tuple[Change, ...]) -> bool:
    """Whether a changed plan is bounded, and still has networks."""
    try:
        for change in chosen:
            plan = change.apply(plan)
    except QueryError:
        return False
    return bool(memory_of(plan).bounded) and any(True for _ in plan.generator().networks())


def _changes(plan: Plan) -> Iterator[Change]:
    """Changes to what stands in the networks at fault, the mildest first."""
    at_fault = _at_fault(plan)
    keyed = [r for r in at_fault if r.key]
    endless = [r for r in at_fault if not ends(r)]
    yield from (_bound(r) for r in keyed if not has_bounded_key(r) and _boundable(r))
    yield from (_keyless(some) for some in _each_and_all(keyed))
    yield from (_finite(some) for some in _each_and_all(endless))
    smaller = map(_of_size, range(plan.max_size - 1, 0, -1))
    yield from islice((change for change in smaller if _helps(plan, (change,))), 1)


def _at_fault(plan: Plan) -> list[Relation]:
    numbers = dict.fromkeys(n for fault in memory_of(plan).faults for n in fault.relations)
    return [r for r in map(plan.schema.relations.__getitem__, numbers) if not r.table]


def _of_size(size: int) -> Change:
    return Change(f"look for smaller results (--max-size {size})", lambda plan: replace(plan, max_size=size))


def _each_and_all(relations: list[Relation]) -> Iterator[list[Relation]]:
    yield from ([relation] for relation in relations)
    if len(relations) > 1:
        yield relations


def _bound(relation: Relation) -> Change:
    text = f"bound the key of {relation.name} by a min and a max"
    return _change(text, [relation], lambda r: _bounding(r, r.key))


def _keyless(relations: list[Relation]) -> Change:
    text = f"leave out the key of {_names(relations)}, whose rows then replace nothing"
    return _change(text, relations, lambda r: replace(r, key=()))


def _finite(relations: list[Relation]) -> Change:
    whose = "its time" if len(relations) == 1 else "their times"
    told = f" with a max of {whose}" if any(r.time for r in relations) else ""
    text = f"declare {_names(relations)} finite{told}, where the stream ends"
    return _change(text, relations, lambda r: replace(_bounding(r, (r.time or "",)), finite=True))


def _change(text: str, relations: list[Relation], change: Callable[[Relation], Relation]) -> Change:
    names = {relation.name for relation in relations}

    def apply(plan: Plan) -> Plan:
        changed = tuple(change(r) if r.name in names else r for r in plan.schema.relations)
        return plan.over(replace(plan.schema, relations=changed))

    return Change(text, apply)


def _names(relations: list[Relation]) -> str:
    return " and ".join(r.name for r in relations)


def _boundable(relation: Relation) -> bool:
    return all(Domain.of(relation.attributes[c].type).discrete for c in relation.key_columns)


def _bounding(relation: Relation, names: tuple[str, ...]) -> Relation:
    """Some attributes between bounds, whichever they are."""

    def bounded(attribute: Attribute) -> Attribute:
        if attribute.name not in names or Domain.of(attribute.type) is Domain.BOOLEAN:
            return attribute
        return replace(attribute, min=0, max=1)

    return replace(relation, attributes=tuple(map(bounded, relation.attributes)))
