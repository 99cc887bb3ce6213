"""Candidate networks as queries, and whether each can be answered for ever in constant memory.

A result shows whole tuples and names them, so a network is the query that puts
out all attributes of its nodes and, of each, an identity that nothing bounds.
Rows that replace others by their key are not part of the paper's monotonic
queries: a relation whose keys are finitely many has finitely many live tuples,
and any other key is held against a network.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from bounds.failure import Failure
from bounds.names import attribute_of, promises, stream_of
from bounds.query import Atom, Attr, Constant, Domain, Kind, Op, Query, Stream, Union
from bounds.verdict import Verdict, check
from mesh.network import CandidateNetwork
from schema.model import Relation, Schema

IDENTITY: Final = "identity of the tuple"
"""What results name a tuple by; no name of an attribute in a schema has blanks."""


def lasting(relation: Relation) -> bool:
    """True if only finitely many tuples of a relation can ever be alive together."""
    return relation.table or ends(relation) or has_bounded_key(relation)


def ends(relation: Relation) -> bool:
    """True for a finite stream, by declaration or by a bound of its time."""
    return relation.finite or end_of(relation) is not None


def has_bounded_key(relation: Relation) -> bool:
    """True if rows replace each other by a key that has finitely many values."""
    attributes = [relation.attributes[c] for c in relation.key_columns]
    return bool(attributes) and all(
        Domain.of(a.type) is Domain.BOOLEAN
        or (Domain.of(a.type).discrete and a.min is not None and a.max is not None)
        for a in attributes
    )


def end_of(relation: Relation) -> int | None:
    """The time from which on a stream has no tuples, in microseconds; None if the schema does not tell."""
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
    shown: tuple[Attr | Constant, ...] = tuple(t for s in streams for t in _shown(schema, s))
    joined = (*atoms, *promises(schema, streams))
    return Union((Query(tuple(streams), joined, shown, tuple(map(str, shown))),), distinct=False)


def _shown(schema: Schema, stream: Stream) -> Iterator[Attr]:
    """What a result shows of a tuple; the application time is part of its identity."""
    if stream.kind is Kind.INFINITE:
        yield Attr(stream.alias, IDENTITY, Domain.INTEGER)
    for attribute in schema.relation(stream.relation).attributes:
        attr = attribute_of(schema, stream, attribute.name)
        if attr.domain is not Domain.TIME:
            yield attr


def network_verdict(network: CandidateNetwork, schema: Schema) -> Verdict:
    """Whether a candidate network can be answered in constant memory with no window at all.

    By Theorem 1, and conditions ``key`` (no row takes back results that
    would have to be remembered) and ``end`` (when a finite stream ends is told).
    """
    relations = tuple(dict.fromkeys(schema.relations[r] for r in network.relations))
    if all(map(lasting, relations)):
        return Verdict(True, distinct=False, failures=())
    found = check(network_query(network, schema))
    failures = (*_named(found.failures), *_replaced(relations), *_endless(relations))
    return Verdict(not failures, distinct=False, failures=failures)


def _named(failures: tuple[Failure, ...]) -> Iterator[Failure]:
    """Of each stream whose tuples are to be remembered that alone: its attributes are part of it."""
    whole = {f.streams for f in failures for a in f.attributes if a.name == IDENTITY}
    for failure in failures:
        if any(a.name == IDENTITY for a in failure.attributes):
            (stream,) = failure.streams
            message = f"each {stream} tuple may be joined at any time to come, and results show it whole"
            yield replace(failure, message=message, attributes=(), columns=())
        elif failure.condition != "C3" or failure.streams not in whole:
            yield failure


def _replaced(relations: tuple[Relation, ...]) -> Iterator[Failure]:
    endless = [r for r in relations if not lasting(r)]
    for relation in endless:
        if relation.key:
            keys = ", ".join(relation.key)
            message = f"rows of {relation.name} replace others by a key that is not bounded: {keys}"
            yield Failure("key", message, streams=(relation.name,))
    for relation in relations:
        if has_bounded_key(relation) and not (relation.table or ends(relation)):
            message = f"each {endless[0].name} is joined anew when a row of {relation.name} replaces another"
            yield Failure("key", message, streams=(relation.name,))


def _endless(relations: tuple[Relation, ...]) -> Iterator[Failure]:
    for relation in relations:
        if relation.finite and not relation.table and end_of(relation) is None:
            message = f"{relation.name} is finite, but no max of its time tells when it ends"
            yield Failure("end", message, streams=(relation.name,))
