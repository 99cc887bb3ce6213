"""Whether the results of a candidate network can be given for ever in constant memory.

A network is a query whose results show whole tuples. A whole tuple has an
identity that nothing bounds, so a tuple of a later result is remembered
whatever its attributes are; bounded are only tuples that no later one can
join. The paper's monotonic queries know no rows that replace others by their
key: a relation with finitely many keys has finitely many live tuples, and any
other key makes a network unbounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from skws_bounds.maxref import Failure
from skws_bounds.names import attribute_of, promises, stream_of
from skws_bounds.normal_form import Atom, Attr, Domain, Kind, Query, Stream, Union
from skws_bounds.verdict import Verdict, check
from skws_mesh.networks import CandidateNetwork
from skws_schema.comparison import Op
from skws_schema.model import Relation, Schema

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
