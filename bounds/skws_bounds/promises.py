"""Resolves a query's names in a schema: streams, attributes, application times; checks promised bounds."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, floor
from typing import Any

from skws_bounds.normal_form import Atom, Attr, Constant, Domain, Kind, SpjStream
from skws_schema.errors import BadRecordsError, nearest
from skws_schema.model import Attribute, AttributeType, Op, Relation, Schema, Value, iso, match_name

PSEUDO_TIME = "time"
"""Names the time of the record, the application time of a stream whose relation names no attribute for it."""


class UnknownNameError(Exception):
    """A name is unknown or ambiguous; the message lists the candidates."""


def stream_of(schema: Schema, name: str, alias: str) -> SpjStream:
    """The stream of a relation. Raises UnknownNameError."""
    names = [r.name for r in schema.relations if r.attributes]  # removed relations have no attributes
    relation = schema.relation(_match_name(name, names, "relation"))
    kind = Kind.STATIC if relation.table else Kind.FINITE if relation.finite else Kind.INFINITE
    if relation.table:
        return SpjStream(alias, relation.name, kind)
    return SpjStream(alias, relation.name, kind, Attr(alias, _clock_name(relation), Domain.TIME))


def _clock_name(relation: Relation) -> str:
    """The name of the application time: ``record_time`` if ``time`` is another attribute."""
    name = relation.time or PSEUDO_TIME
    while relation.time is None and name in relation.columns:
        name = f"record_{name}"
    return name


def attribute_of(schema: Schema, stream: SpjStream, name: str) -> Attr:
    """An attribute of a stream, or its application time. Raises UnknownNameError."""
    relation = schema.relation(stream.relation)
    names = [a.name for a in relation.attributes]
    if stream.time is not None and stream.time.name not in names:
        names.append(stream.time.name)
    name_in_schema = _match_name(name, names, "attribute", f" in {stream.relation}")
    if stream.time is not None and name_in_schema == stream.time.name:
        return stream.time
    return Attr(stream.alias, name_in_schema, Domain.of(_attribute(relation, name_in_schema).type))


def resolve(schema: Schema, streams: list[SpjStream], qualifier: str, name: str) -> Attr:
    """``qualifier.name``, or the only attribute called ``name``. Raises UnknownNameError."""
    if qualifier:
        alias = _match_name(qualifier, [s.alias for s in streams], "stream of this query")
        return attribute_of(schema, next(s for s in streams if s.alias == alias), name)
    attributes = []
    for stream in streams:
        try:
            attributes.append(attribute_of(schema, stream, name))
        except UnknownNameError:
            continue
    if len(attributes) > 1:
        raise UnknownNameError(f"{name!r} is ambiguous: write {' or '.join(map(str, attributes))}")
    if not attributes:
        names = [a.name for s in streams for a in schema.relation(s.relation).attributes]
        raise UnknownNameError(f"no stream of this query has an attribute {name!r}{nearest(name, names)}")
    return attributes[0]


def promises(schema: Schema, streams: list[SpjStream]) -> tuple[Atom, ...]:
    """The bounds that the schema gives to attributes, as assumed atoms."""
    return tuple(
        atom
        for stream in streams
        if stream.kind is not Kind.STATIC
        for attribute in schema.relation(stream.relation).attributes
        for atom in _bound_atoms(attribute_of(schema, stream, attribute.name), attribute)
    )


def _bound_atoms(attr: Attr, attribute: Attribute) -> list[Atom]:
    low, high = attribute.min, attribute.max
    if attr.domain is Domain.BOOLEAN:
        low, high = 0, 1
    text = f"{attr.stream}: {attribute.name} in the schema"
    ends = ((Op.AT_LEAST, low, "min"), (Op.AT_MOST, high, "max"))
    return [
        Atom(
            attr,
            *_bound(attr.domain, op, value),
            f"{text} ({end} {_value_text(attribute, value)})",
            assumed=True,
        )
        for op, value, end in ends
        if value is not None
    ]


def _bound(domain: Domain, op: Op, value: float) -> tuple[Op, Constant]:
    """A bound as an operator and a constant.

    The bound of a fraction is moved to the next integer past it: it is then strict, so that it does not split
    into two cases, and as useful where the fraction equals an integer.
    """
    if domain is not Domain.NUMBER:
        return op, Constant(value, domain)
    if op is Op.AT_MOST:
        return Op.LESS, Constant(floor(value) + 1, domain)
    return Op.GREATER, Constant(ceil(value) - 1, domain)


def _match_name(name: str, names: list[str], what: str, where: str = "") -> str:
    """The name as spelled, or the only one that differs by case alone."""
    name_of = match_name(name, names)
    if name_of is not None:
        return name_of
    raise UnknownNameError(f"no {what} {name!r}{where}: there are {', '.join(names)}{nearest(name, names)}")


def _attribute(relation: Relation, name: str) -> Attribute:
    return relation.attributes[relation.columns[name]]


class Promises:
    """Checks rows against the bounds that a schema promises, on which bounded memory depends.

    ``columns``: the bounded columns of each relation, by its name.
    """

    def __init__(self, schema: Schema) -> None:
        self.columns = {
            r.name: tuple((r.columns[a.name], a) for a in r.attributes if _has_bounds(a))
            for r in schema.relations
            if not r.table
        }

    def check(self, relation: str, attribute: Attribute, values: Iterable[Value]) -> None:
        """Raises BadRecordsError if a value breaks a bound."""
        low, high = attribute.min, attribute.max
        for value in values:
            if _outside(value, low, high):
                value_text, range_text = _value_text(attribute, value), _range_text(attribute)
                raise BadRecordsError(
                    f"{relation}.{attribute.name} is {value_text}, but the schema promises {range_text}; "
                    "the memory of this query is bounded only if that holds"
                )


def _range_text(attribute: Attribute) -> str:
    low, high = (_value_text(attribute, bound) for bound in (attribute.min, attribute.max))
    if attribute.min is None:
        return f"at most {high}"
    return f"at least {low}" if attribute.max is None else f"{low} to {high}"


def _value_text(attribute: Attribute, value: Value) -> str:
    if attribute.type is AttributeType.TIMESTAMP and isinstance(value, int):
        return iso(value)
    return repr(value)


def _has_bounds(attribute: Attribute) -> bool:
    return attribute.min is not None or attribute.max is not None


def _outside(value: Any, low: float | None, high: float | None) -> bool:
    return value is not None and ((low is not None and value < low) or (high is not None and value > high))
