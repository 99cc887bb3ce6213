"""What a query's names mean in a schema: streams, attributes and application times, with their bounds."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, floor
from typing import Any

from skws_bounds.normal_form import Atom, Attr, Constant, Domain, Kind, QueryStream
from skws_schema.errors import BadRecordsError, nearest
from skws_schema.model import Attribute, Op, Relation, Schema, Value, meant

PSEUDO_TIME = "time"
"""The application time of a stream whose relation names no attribute for it: the time of the record."""


class UnknownNameError(Exception):
    """A name is unknown or ambiguous; the text says what was expected."""


def stream_of(schema: Schema, name: str, alias: str) -> QueryStream:
    """The stream of a relation. Raises UnknownNameError."""
    there = [r.name for r in schema.relations if r.attributes]  # what a change removed has none left
    relation = schema.relation(_meant(name, there, "relation"))
    kind = Kind.STATIC if relation.table else Kind.FINITE if relation.finite else Kind.INFINITE
    if relation.table:
        return QueryStream(alias, relation.name, kind)
    return QueryStream(alias, relation.name, kind, Attr(alias, relation.time or PSEUDO_TIME, Domain.TIME))


def attribute_of(schema: Schema, stream: QueryStream, name: str) -> Attr:
    """An attribute of a stream, or its application time. Raises UnknownNameError."""
    relation = schema.relation(stream.relation)
    known = [a.name for a in relation.attributes]
    if stream.time is not None and stream.time.name not in known:
        known.append(stream.time.name)
    found = _meant(name, known, "attribute", f" in {stream.relation}")
    if stream.time is not None and found == stream.time.name:
        return stream.time
    return Attr(stream.alias, found, Domain.of(_attribute(relation, found).type))


def resolve(schema: Schema, streams: list[QueryStream], qualifier: str, name: str) -> Attr:
    """``qualifier.name``, or the only attribute called ``name``. Raises UnknownNameError."""
    if qualifier:
        alias = _meant(qualifier, [s.alias for s in streams], "stream of this query")
        return attribute_of(schema, next(s for s in streams if s.alias == alias), name)
    found = []
    for stream in streams:
        try:
            found.append(attribute_of(schema, stream, name))
        except UnknownNameError:
            continue
    if len(found) > 1:
        raise UnknownNameError(f"{name!r} is ambiguous: write {' or '.join(map(str, found))}")
    if not found:
        known = [a.name for s in streams for a in schema.relation(s.relation).attributes]
        raise UnknownNameError(f"no stream of this query has an attribute {name!r}{nearest(name, known)}")
    return found[0]


def promises(schema: Schema, streams: list[QueryStream]) -> tuple[Atom, ...]:
    """The bounds that the schema gives to attributes, as assumed atoms."""
    return tuple(
        atom
        for stream in streams
        if stream.kind is not Kind.STATIC
        for attribute in schema.relation(stream.relation).attributes
        for atom in _promised(attribute_of(schema, stream, attribute.name), attribute)
    )


def _promised(attr: Attr, attribute: Attribute) -> list[Atom]:
    low, high = attribute.min, attribute.max
    if attr.domain is Domain.BOOLEAN:
        low, high = 0, 1
    written = f"{attr.stream}: {attribute.name} in the schema"
    ends = ((Op.AT_LEAST, low, "min"), (Op.AT_MOST, high, "max"))
    return [
        Atom(attr, *_implied(attr.domain, op, value), f"{written} ({end} {value})", assumed=True)
        for op, value, end in ends
        if value is not None
    ]


def _implied(domain: Domain, op: Op, value: float) -> tuple[Op, Constant]:
    """A bound as an operation and a constant.

    The bound of a fraction is moved to the next integer past it: strict, so that it is not split into
    two cases, and as good where it matters, which is where the fraction equals an integer.
    """
    if domain is not Domain.NUMBER:
        return op, Constant(value, domain)
    if op is Op.AT_MOST:
        return Op.LESS, Constant(floor(value) + 1, domain)
    return Op.GREATER, Constant(ceil(value) - 1, domain)


def _meant(name: str, known: list[str], what: str, where: str = "") -> str:
    """The known name as written, or the only one that differs in case alone."""
    found = meant(name, known)
    if found is not None:
        return found
    raise UnknownNameError(f"no {what} {name!r}{where}: there are {', '.join(known)}{nearest(name, known)}")


def _attribute(relation: Relation, name: str) -> Attribute:
    return relation.attributes[relation.columns[name]]


class Promises:
    """The bounds that a schema promises, on which bounded memory rests, checked against rows.

    ``columns``: the bounded columns of each relation, by its name.
    """

    def __init__(self, schema: Schema) -> None:
        self.columns = {
            r.name: tuple((r.columns[a.name], a) for a in r.attributes if _has_bounds(a))
            for r in schema.relations
            if not r.table
        }

    def check(self, relation: str, attribute: Attribute, values: Iterable[Value]) -> None:
        """Raises BadRecordsError where a value breaks a bound."""
        low, high = attribute.min, attribute.max
        for value in values:
            if _outside(value, low, high):
                raise BadRecordsError(
                    f"{relation}.{attribute.name} is {value!r}, but the schema promises {low} to {high}; "
                    "the memory of this query is bounded only if that holds"
                )


def _has_bounds(attribute: Attribute) -> bool:
    return attribute.min is not None or attribute.max is not None


def _outside(value: Any, low: float | None, high: float | None) -> bool:
    return value is not None and ((low is not None and value < low) or (high is not None and value > high))
