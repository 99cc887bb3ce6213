"""The memory that keyword queries need without a window: the verdict on all networks, and refusals.

A network is a query whose results show whole tuples. A whole tuple has an
identity that nothing bounds, so a tuple of a later result is remembered
whatever its attributes are; bounded are only tuples that no later one can
join. The paper's monotonic queries know no rows that replace others by their
key: a relation with finitely many keys has finitely many live tuples, and any
other key makes a network unbounded. A refusal lists the networks at fault and
changes that would make the query bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations, islice
from typing import Final

from skws.keywords.plan import Plan
from skws_bounds.maxref import Failure
from skws_bounds.names import attribute_of, promises, stream_of
from skws_bounds.normal_form import Atom, Attr, Domain, Kind, Query, Stream, Union
from skws_bounds.repairs import WINDOW
from skws_bounds.verdict import Verdict, check
from skws_mesh.networks import CandidateNetwork
from skws_schema.errors import QueryError, UsageError
from skws_schema.model import Attribute, Op, Relation, Schema
from skws_windows.window import Unbounded

WHOLE: Final = "(whole tuple)"
"""The identity of a tuple as an attribute; no attribute of a schema has this name."""


def whole_tuples(streams: Iterable[Stream], *, every: bool = False) -> tuple[Attr, ...]:
    """The identities of the tuples of endless streams, which results show; ``every``: of all streams."""
    shown = (s for s in streams if every or s.kind is Kind.INFINITE)
    return tuple(Attr(s.alias, WHOLE, Domain.NUMBER) for s in shown)


def described_whole(failures: Iterable[Failure]) -> Iterator[Failure]:
    """Failures, with those of whole tuples described by results."""
    for failure in failures:
        if any(a.name == WHOLE for a in failure.attributes):
            (stream,) = failure.streams
            message = f"results show each {stream} tuple whole, and more of them may come at any time"
            yield replace(failure, message=message, columns=())
        else:
            yield failure


def lasting(relation: Relation) -> bool:
    """True if only finitely many tuples of a relation can ever be alive together."""
    return relation.table or ends(relation) or has_bounded_key(relation)


def ends(relation: Relation) -> bool:
    """True for a finite stream, by declaration or by a bound of its time."""
    return relation.finite or end_of(relation) is not None


def lasts_by_key(relation: Relation) -> bool:
    """True if only finitely many tuples are alive together since each has a key of finitely many."""
    return has_bounded_key(relation) and not (relation.table or ends(relation))


def has_bounded_key(relation: Relation) -> bool:
    """True if rows replace others by a key with finitely many values."""
    attributes = [relation.attributes[c] for c in relation.key_columns]
    return bool(attributes) and all(
        Domain.of(a.type) is Domain.BOOLEAN
        or (Domain.of(a.type).discrete and a.min is not None and a.max is not None)
        for a in attributes
    )


def end_of(relation: Relation) -> int | None:
    """The time from which a stream has no tuples, in microseconds; None if the schema does not say."""
    if relation.time is None:
        return None
    last = relation.attributes[relation.columns[relation.time]].max
    return None if last is None else int(last) + 1


def network_query(network: CandidateNetwork, schema: Schema) -> Union:
    """A candidate network as a query in normal form: its nodes joined, whole tuples put out.

    Duplicates are preserved, as two equal results of different tuples are two.
    Nodes of one relation are streams of their own, as their tuples contain
    different keywords.
    """
    streams: list[Stream] = []
    for number, (relation, keywords) in enumerate(zip(network.relations, network.keywords, strict=True)):
        name = schema.relations[relation].name
        alias = name if name not in {s.alias for s in streams} else f"{name}_{number + 1}"
        stream = stream_of(schema, name, alias)
        streams.append(Stream(alias, name, stream.kind, stream.time, keywords))
    atoms = tuple(
        Atom(attribute_of(schema, streams[left], one), Op.EQUAL, attribute_of(schema, streams[right], other))
        for left, right, name in network.joins(schema)
        for one, other in next(j for j in schema.joins if j.name == name).on
    )
    shown = whole_tuples(streams)
    joined = (*atoms, *promises(schema, streams))
    return Union((Query(tuple(streams), joined, shown, tuple(map(str, shown))),), distinct=False)


def network_verdict(network: CandidateNetwork, schema: Schema) -> Verdict:
    """Whether a candidate network needs constant memory only without a window.

    By Theorem 1, and two conditions: ``key`` (no row retracts results that
    would have to be remembered) and ``end`` (the end of finite streams is known).
    """
    relations = tuple(dict.fromkeys(schema.relations[r] for r in network.relations))
    if all(map(lasting, relations)):
        return Verdict(True, distinct=False, failures=())
    found = check(network_query(network, schema))
    failures = (*described_whole(found.failures), *_replaced(relations), *_endless(relations))
    return Verdict(not failures, distinct=False, failures=failures)


def _replaced(relations: tuple[Relation, ...]) -> Iterator[Failure]:
    endless = [r for r in relations if not lasting(r)]
    for relation in endless:
        if relation.key:
            keys = ", ".join(relation.key)
            message = f"rows of {relation.name} replace others by a key that is not bounded: {keys}"
            yield Failure("key", message, streams=(relation.name,))
    for relation in relations:
        if lasts_by_key(relation):
            message = f"each {endless[0].name} is joined again when a row of {relation.name} replaces another"
            yield Failure("key", message, streams=(relation.name,))


def _endless(relations: tuple[Relation, ...]) -> Iterator[Failure]:
    for relation in relations:
        if relation.finite and not relation.table and end_of(relation) is None:
            message = f"{relation.name} is finite, but no max of its time says when it ends"
            yield Failure("end", message, streams=(relation.name,))


FORCE: Final = "--force-unbounded"
_MOST_CHANGES: Final = 3
_MOST_OFFERED: Final = 6
_MOST_TRIED: Final = 60
MOST_NETWORKS: Final = 20_000
"""The most networks checked for a query, which takes a few seconds."""
MOST_FAULTS: Final = 5


@dataclass(frozen=True, slots=True)
class Fault:
    """A network that is not bounded, by the name in results, with its relations and its verdict."""

    network: str
    relations: tuple[int, ...]
    verdict: Verdict

    @property
    def reason(self) -> str:
        return memory_in_words(self.verdict)


@dataclass(frozen=True, slots=True)
class Memory:
    """The verdict on a query.

    ``bounded``: None if there are too many networks to check. ``looked_at``:
    the number that was checked: all of a bounded query, else up to ``MOST_FAULTS`` at fault.
    ``passing``: relations whose tuples need not be kept after their instant
    from time ``until`` on (microseconds), when finite streams have ended.
    """

    bounded: bool | None
    looked_at: int = 0
    faults: tuple[Fault, ...] = ()
    passing: frozenset[int] = frozenset()
    until: int = 0


@lru_cache(maxsize=32)
def memory_of(plan: Plan) -> Memory:
    """Whether a query can be answered for ever in constant memory with no window."""
    schema = plan.schema
    passing = frozenset(n for n, r in enumerate(schema.relations) if not lasting(r))
    if not passing:
        return Memory(True)
    faults: list[Fault] = []
    until = looked_at = 0
    for looked_at, tree in enumerate(islice(plan.generator().networks(), MOST_NETWORKS + 1), start=1):
        if looked_at > MOST_NETWORKS:
            return Memory(False if faults else None, looked_at - 1, tuple(faults))
        found = passing.intersection(tree.relations)
        if not found:
            continue
        until = max(until, _end(schema, tree.relations))
        if not _plainly_bounded(schema, tree.relations, passing):
            faults += _faults(plan, CandidateNetwork.of(tree))
            if len(faults) == MOST_FAULTS:
                break
    return Memory(not faults, looked_at, tuple(faults), passing, until)


def memory_in_words(verdict: Verdict) -> str:
    """A verdict on a network in a few words."""
    if verdict.bounded:
        return "bounded"
    return f"not bounded, {verdict.failures[0].message} ({verdict.failures[0].condition})"


def _faults(plan: Plan, network: CandidateNetwork) -> Iterator[Fault]:
    verdict = network_verdict(network, plan.schema)
    if not verdict.bounded:
        yield Fault(network.text(plan.schema, plan.keywords), network.relations, verdict)


def _plainly_bounded(schema: Schema, relations: Iterable[int], passing: frozenset[int]) -> bool:
    """True for one stream among tables, as in most bounded networks: no theorem is needed."""
    streams = [r for r in relations if not schema.relations[r].table]
    return len(streams) == 1 and streams[0] in passing and not schema.relations[streams[0]].key


def _end(schema: Schema, relations: Iterable[int]) -> int:
    """The end of the last finite stream among some relations, in microseconds."""
    finite = (schema.relations[r] for r in relations if ends(schema.relations[r]))
    return max((end_of(r) or 0 for r in finite), default=0)


@dataclass(frozen=True, slots=True)
class Change:
    """A change to a plan, and its description for users."""

    text: str
    apply: Callable[[Plan], Plan]


def refuse_unbounded(plan: Plan) -> None:
    """Raises UsageError for a query over endless streams that is not known to need constant memory only."""
    if not isinstance(plan.window, Unbounded):
        return
    memory = memory_of(plan)
    if not memory.bounded:
        raise UsageError("\n".join(_refusal(plan, memory)))


def repairs(plan: Plan) -> tuple[str, ...]:
    """The smallest sets of changes after which all networks of a query are bounded; each has been tried."""
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
        why = f"it has too many networks to decide what it would keep (more than {memory.looked_at:,})"
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
    """Changes to the relations of networks at fault, the mildest first."""
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
    until = f" with a max of {whose}" if any(r.time for r in relations) else ""
    text = f"declare {_names(relations)} finite{until}, where the stream ends"
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
    """Give some attributes bounds; which ones does not matter."""

    def bounded(attribute: Attribute) -> Attribute:
        if attribute.name not in names or Domain.of(attribute.type) is Domain.BOOLEAN:
            return attribute
        return replace(attribute, min=0, max=1)

    return replace(relation, attributes=tuple(map(bounded, relation.attributes)))
