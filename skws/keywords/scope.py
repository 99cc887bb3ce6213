"""Resolves names in a query by the schema, and makes conditions on the attributes that they name.

Before a colon: ``actor``, ``actor.name`` or ``name``. Before a comparison: ``movie.year`` or ``year``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from itertools import chain
from math import ceil, floor
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from skws.data.blocks import Block
from skws.data.value_conversion import TEXT_CONVERSIONS, MalformedError, number_of_text, refusal
from skws.data.versions import EXPECTED, known_key
from skws.keywords.keyword_query import Condition, Interval, Scope, Test, Versus
from skws_schema.errors import QueryError, nearest, shown
from skws_schema.model import (
    COMPARED,
    AttributeType,
    Op,
    Relation,
    Row,
    Schema,
    Value,
    VersionOrder,
    match_name,
)


class ComparedAttribute(NamedTuple):
    """An attribute whose values are compared, by position of its relation and in a row."""

    relation: int
    column: int


def resolve(name: str, schema: Schema) -> tuple[Scope, ...] | ComparedAttribute:
    """The scopes of a name: one, or one for each relation that searches such an attribute.

    An attribute that is not a text is compared, if no relation searches an attribute of that name. Raises
    ``QueryError`` if there is no such relation or attribute, if it is not searched, or if several could be
    compared.
    """
    relation = match_name(name, schema.index)
    if relation is not None:
        return (_whole_relation(schema, relation),)
    head, dot, tail = name.rpartition(".")
    owner = match_name(head, schema.index) if dot else None
    if owner is not None:
        return _one_column(schema, owner, tail)
    return _every_column(name, schema)


_SHORT_NAME: Final = 3
"""The length up to which names resemble too many others, such as ``std`` in ``std::vector``."""


def is_near_name(name: str, schema: Schema) -> bool:
    """True if a text before a colon is the name of a relation or attribute, or, if long, resembles one."""
    name = name.removeprefix("!")
    head, _, _ = name.rpartition(".")
    names = [*schema.index, *(a.name for r in schema.relations for a in r.attributes)]
    # Exact names first: comparing spellings takes a hundred times as long.
    if match_name(name, names) or match_name(head, names):
        return True
    return any(len(each) > _SHORT_NAME and nearest(each, names) for each in (name, head))


def compared(name: str, schema: Schema) -> ComparedAttribute:
    """The attribute of a name in a comparison.

    Raises ``QueryError`` if there is none, or if there are several.
    """
    head, dot, tail = name.rpartition(".")
    relations = _present(schema)
    owner = match_name(head, [relation.name for relation in relations]) if dot else None
    if owner is not None:
        return ComparedAttribute(schema.index[owner], _column(schema.relation(owner), tail))
    attribute = match_name(name, list(dict.fromkeys(a.name for r in relations for a in r.attributes)))
    if attribute is None:
        hint = nearest(name, [a.name for r in relations for a in r.attributes])
        hint = hint or "; to search for the text itself, put quotes around it"
        raise QueryError(f"no attribute {shown(name)} to compare with{hint}")
    return _only(schema, attribute, [relation for relation in relations if attribute in relation.columns])


def other_attribute(attribute: ComparedAttribute, value: str, schema: Schema) -> ComparedAttribute | None:
    """The attribute of the same relation named by a value without quotes; None for a value.

    ``relation.attribute`` is always an attribute, a bare name if the relation has one with a comparable type.
    Raises QueryError for an attribute of another relation, or one whose values cannot be compared.
    """
    head, _, tail = value.rpartition(".")
    relation = schema.relations[attribute.relation]
    owner = match_name(head, schema.index) if head else None
    definition = relation.attributes[attribute.column]
    if owner is None and not head:
        comparable_names = [
            each.name for each in relation.attributes if each.type.family is definition.type.family
        ]
        attribute_name = match_name(value, comparable_names)
    else:
        attribute_name = match_name(tail, schema.relation(owner).columns) if owner is not None else None
    if attribute_name is None:
        return None
    name = f"{relation.name}.{definition.name}"
    if owner is not None and owner != relation.name:
        raise QueryError(
            f"{shown(value)} is an attribute of another relation: a condition compares {name} with a value"
            f' or another attribute of the same row; write "{value}" for the text'
        )
    other_definition = relation.attributes[relation.columns[attribute_name]]
    if other_definition.type.family is not definition.type.family:
        raise QueryError(
            f"{name} is of type {definition.type},"
            f" and {other_definition.name} of type {other_definition.type}"
        )
    if other_definition.order is not definition.order:
        orders = " and ".join(
            str(each.order or "letter by letter") for each in (definition, other_definition)
        )
        raise QueryError(f"{name} and {other_definition.name} are compared in different orders: {orders}")
    return ComparedAttribute(attribute.relation, relation.columns[attribute_name])


def versus(attribute: ComparedAttribute, sign: str, other: ComparedAttribute, schema: Schema) -> Condition:
    """The condition that compares two values of a row. Raises QueryError for a sign that does not fit."""
    op = _operator(attribute, sign, schema)
    order = _order(attribute, schema)
    test = Versus(op, other.column, order)
    return Condition(((attribute.column, test),), scope=Scope(attribute.relation, None))


def _operator(attribute: ComparedAttribute, sign: str, schema: Schema) -> Op:
    if sign not in _SIGNS:
        raise QueryError(f"unknown comparison {shown(sign)}; expected one of {' '.join(_SIGNS)}")
    kind, name = _type_and_name(attribute, schema)
    if kind is AttributeType.BOOLEAN and sign not in {Op.EQUAL, Op.DIFFERENT}:
        raise QueryError(f"{name} is a boolean, which has no order; expected = or !=")
    return Op(sign)


def _order(attribute: ComparedAttribute, schema: Schema) -> VersionOrder | None:
    return schema.relations[attribute.relation].attributes[attribute.column].order


def comparable(schema: Schema) -> tuple[str, ...]:
    """The shortest unambiguous names of the attributes that are not texts, for conditions."""
    owners: dict[str, list[str]] = {}
    for relation in _present(schema):
        for attribute in relation.attributes:
            owners.setdefault(attribute.name, []).append(relation.name)
    return tuple(
        attribute.name if len(owners[attribute.name]) == 1 else f"{relation.name}.{attribute.name}"
        for relation in _present(schema)
        for attribute in relation.attributes
        if attribute.type is not AttributeType.TEXT
    )


def completable(schema: Schema) -> tuple[str, ...]:
    """The names that may precede a keyword, with their colon, and those that may begin a condition."""
    searched_relations = [relation for relation in _present(schema) if relation.search]
    relation_names = [relation.name for relation in searched_relations]
    attribute_names = [
        name for relation in searched_relations for name in relation.search if name not in schema.index
    ]
    full_names = [f"{relation.name}.{name}" for relation in searched_relations for name in relation.search]
    before_colon = [f"{name}:" for name in dict.fromkeys((*relation_names, *attribute_names))]
    names = (*before_colon, *comparable(schema), *(f"{name}:" for name in full_names))
    return tuple(name for name in names if all(map(_NAME.fullmatch, name.removesuffix(":").split("."))))


def _only(schema: Schema, attribute: str, owners: list[Relation]) -> ComparedAttribute:
    if len(owners) > 1:
        names = ", ".join(f"{relation.name}.{attribute}" for relation in owners)
        raise QueryError(f"{shown(attribute)} is in {len(owners)} relations; write one of {names}")
    return ComparedAttribute(schema.index[owners[0].name], owners[0].columns[attribute])


def _present(schema: Schema) -> list[Relation]:
    removed_relations = schema.evolution.removed_relations
    return [relation for number, relation in enumerate(schema.relations) if number not in removed_relations]


class OmittedParts(NamedTuple):
    """The relation or the joins that a query leaves out, by position."""

    relation: int | None
    joins: frozenset[int] = frozenset()


def left_out(name: str, schema: Schema) -> OmittedParts:
    """The parts that ``-name:`` leaves out: a relation, a join, or the joins that compare an attribute.

    Raises ``QueryError`` if there are none, or if the name is ambiguous.
    """
    relations = [relation.name for relation in _present(schema)]
    relation = match_name(name, relations)
    if relation is not None:
        return OmittedParts(schema.index[relation])
    removed_joins = schema.evolution.removed_joins
    joins = {number: join for number, join in enumerate(schema.joins) if number not in removed_joins}
    join_name = match_name(name, [join.name for join in joins.values()])
    if join_name is not None:
        return OmittedParts(
            None, frozenset(number for number, join in joins.items() if join.name == join_name)
        )
    joins_by_attribute: dict[str, set[int]] = {}
    for number, join in joins.items():
        for owner, attribute in chain.from_iterable(
            ((join.left, left), (join.right, right)) for left, right in join.on
        ):
            joins_by_attribute.setdefault(f"{owner}.{attribute}", set()).add(number)
    exact_name = match_name(name, joins_by_attribute)
    bare_name = match_name(name, list(dict.fromkeys(map(_attribute_of, joins_by_attribute))))
    attributes = (
        [exact_name]
        if exact_name
        else [each for each in joins_by_attribute if _attribute_of(each) == bare_name]
    )
    if len({frozenset(joins_by_attribute[each]) for each in attributes}) > 1:
        raise QueryError(f"{shown(name)} is in several joins; write one of {', '.join(sorted(attributes))}")
    if attributes:
        return OmittedParts(None, frozenset(joins_by_attribute[attributes[0]]))
    hint = (
        nearest(name, [*relations, *(join.name for join in joins.values()), *joins_by_attribute])
        or f"; relations are {', '.join(relations)}"
    )
    raise QueryError(
        f"'-{name}:' leaves out nothing: {shown(name)} is not a relation, a join or an attribute of a"
        f" join{hint}"
        " (to exclude the word, leave out the colon)"
    )


def _attribute_of(name: str) -> str:
    return name.rpartition(".")[2]


def _whole_relation(schema: Schema, name: str) -> Scope:
    if not schema.relation(name).search:
        raise QueryError(f"relation {shown(name)} has no searched attribute")
    return Scope(schema.index[name], None)


def _one_column(schema: Schema, owner: str, name: str) -> tuple[Scope] | ComparedAttribute:
    relation = schema.relation(owner)
    column = _column(relation, name)
    attribute = relation.attributes[column]
    if column in relation.search_columns:
        return (Scope(schema.index[owner], column),)
    if attribute.type is AttributeType.TEXT:
        raise QueryError(
            f"attribute {owner}.{attribute.name} is not searched; {_searched(relation)} "
            f"(to compare the whole text, write {owner}.{attribute.name}=...)"
        )
    return ComparedAttribute(schema.index[owner], column)


def _column(relation: Relation, name: str) -> int:
    attribute = match_name(name, relation.columns)
    if attribute is None:
        raise QueryError(
            f"relation {shown(relation.name)} has no attribute {shown(name)}{nearest(name, relation.columns)}"
        )
    return relation.columns[attribute]


def _searched(relation: Relation) -> str:
    names = ", ".join(f"{relation.name}.{name}" for name in relation.search)
    return f"searched: {names}" if names else f"no attribute of {shown(relation.name)} is"


def _every_column(name: str, schema: Schema) -> tuple[Scope, ...] | ComparedAttribute:
    attribute = match_name(name, list(dict.fromkeys(a.name for r in schema.relations for a in r.attributes)))
    owners = [relation for relation in schema.relations if attribute in relation.columns]
    if attribute is None:
        hint = nearest(name, _names(schema)) or "; if the colon is part of the text, put quotes around it"
        raise QueryError(f"no relation or attribute {shown(name)}{hint}")
    scopes = tuple(
        Scope(schema.index[owner.name], owner.columns[attribute])
        for owner in owners
        if attribute in owner.search
    )
    if scopes:
        return scopes
    owners = [relation for relation in owners if relation in _present(schema)]
    comparable_owners = [
        r for r in owners if r.attributes[r.columns[attribute]].type is not AttributeType.TEXT
    ]
    if comparable_owners:
        return _only(schema, attribute, owners)
    raise QueryError(
        f"attribute {shown(attribute)} is searched in no relation"
        f" (it is in {', '.join(relation.name for relation in owners)});"
        f" to compare the whole text, write {attribute}=..."
    )


def _names(schema: Schema) -> list[str]:
    """The names that may precede a colon."""
    attributes = [
        (r.name, a.name)
        for r in schema.relations
        for a in r.attributes
        if a.name in r.search or a.type is not AttributeType.TEXT
    ]
    return [*schema.index, *(a for _, a in attributes), *(f"{r}.{a}" for r, a in attributes)]


_NAME: Final = re.compile(r"[^\W-][^\s!-,./:-@\[-^`{-~]*")


def with_left_out(text: str, names: Iterable[str]) -> str:
    """The query that also leaves out some relations or joins. Raises QueryError for an invalid name."""
    for name in names:
        if not all(map(_NAME.fullmatch, name.split(".", 1))):
            raise QueryError(f"{shown(name)}: expected the name of a relation or a join to leave out")
        text += f" -{name}:"
    return text


_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_DAY: Final = timedelta(days=1) // timedelta(microseconds=1)
_SIGNS: Final = [sign.value for sign in Op]


class _Span(NamedTuple):
    """The values that a text in a query denotes: from ``low`` to ``high``, including ``high`` if closed."""

    low: Any
    high: Any
    closed: bool = True


def compare(attribute: ComparedAttribute, sign: str, text: str, schema: Schema) -> Condition:
    """The condition of a comparison with the value ``text``.

    A date denotes its whole day. Raises QueryError for a sign or value that does not fit the type.
    """
    op = _operator(attribute, sign, schema)
    order = _order(attribute, schema)
    span = _read(*_type_and_name(attribute, schema), text, op, order)
    match op:
        case Op.LESS:
            interval = Interval(None, span.low, high_open=True)
        case Op.AT_MOST:
            interval = Interval(None, span.high, high_open=not span.closed)
        case Op.AT_LEAST:
            interval = Interval(span.low, None)
        case Op.GREATER:
            interval = Interval(span.high, None, low_open=span.closed)
        case Op.EQUAL | Op.DIFFERENT:
            interval = Interval(span.low, span.high, high_open=not span.closed, outside=op is Op.DIFFERENT)
    return _condition(attribute, interval._replace(order=order))


def type_of_text(condition: Condition, schema: Schema) -> str:
    """The attribute that a condition compares, with its type; empty if that is no text, or has versions."""
    assert condition.scope is not None  # noqa: S101 - as in every condition
    relation = schema.relations[condition.scope.relation]
    attribute = relation.attributes[condition.tests[0][0]]
    is_text = attribute.type.family is AttributeType.TEXT and attribute.order is None
    return f"{relation.name}.{attribute.name} is of type {attribute.type}" if is_text else ""


def in_range(attribute: ComparedAttribute, low: str, high: str, schema: Schema) -> Condition:
    """The condition that a value is in a range, ends included; an empty text is an open end.

    Raises QueryError for ends that do not fit the type, or in the wrong order.
    """
    kind, name = _type_and_name(attribute, schema)
    if kind is AttributeType.BOOLEAN:
        raise QueryError(f"{name} is a boolean, which has no range")
    order = _order(attribute, schema)
    low_span = _read(kind, name, low, Op.AT_LEAST, order) if low else None
    high_span = _read(kind, name, high, Op.AT_MOST, order) if high else None
    if (
        low_span
        and high_span
        and (low_span.low > high_span.high or (low_span.low == high_span.high and not high_span.closed))
    ):
        raise QueryError(f"the range {low}..{high} ends before it begins")
    return _condition(
        attribute,
        Interval(
            low_span.low if low_span else None,
            high_span.high if high_span else None,
            high_open=bool(high_span and not high_span.closed),
            order=order,
        ),
    )


def _type_and_name(attribute: ComparedAttribute, schema: Schema) -> tuple[AttributeType, str]:
    relation = schema.relations[attribute.relation]
    definition = relation.attributes[attribute.column]
    return definition.type, f"{relation.name}.{definition.name}"


def _condition(attribute: ComparedAttribute, interval: Interval) -> Condition:
    return Condition(((attribute.column, interval),), scope=Scope(attribute.relation, None))


def _read(kind: AttributeType, name: str, text: str, op: Op, order: VersionOrder | None) -> _Span:
    if order is not None:
        key = known_key(order, text)
        if key is None:
            expected = f"expected {EXPECTED[order]}, got {shown(text)}"
            raise QueryError(f"{name} is compared in {order} order: {expected}")
        return _Span(key, key)
    try:
        if kind is AttributeType.TIMESTAMP and _DATE.fullmatch(text):
            midnight: Any = TEXT_CONVERSIONS[kind](text)
            return _Span(midnight, midnight + _DAY, closed=False)
        value = _integer(text, op) if kind is AttributeType.INTEGER else TEXT_CONVERSIONS[kind](text)
    except MalformedError as error:
        raise QueryError(f"{name} is of type {kind}: {error}") from None
    return _Span(value, value)


_ROUNDING: Final[dict[Op, Callable[[Decimal], int]]] = {
    Op.LESS: ceil,
    Op.AT_LEAST: ceil,
    Op.AT_MOST: floor,
    Op.GREATER: floor,
}
"""Replaces a fraction in a comparison by an integer; no integer lies in between."""


def _integer(text: str, op: Op) -> Value:
    try:
        return TEXT_CONVERSIONS[AttributeType.INTEGER](text)
    except MalformedError:
        number_of_text(text)
    try:
        number = Decimal(text)  # a double would be rounded beyond 2**53
    except InvalidOperation:  # an exponent of 20 digits
        raise refusal(AttributeType.INTEGER, text) from None
    integer = _ROUNDING.get(op, int)(number)
    if op not in _ROUNDING and integer != number:
        raise refusal(AttributeType.INTEGER, text)
    if not _SMALLEST <= integer <= _LARGEST:
        raise MalformedError(f"expected an integer of 64 bits, got {shown(text)}")
    return integer


Flags = npt.NDArray[np.bool_]
_SMALLEST: Final = -(2**63)
_LARGEST: Final = 2**63 - 1


def satisfied(condition: Condition, row: Row) -> bool:
    """True if a row of the condition's relation satisfies it."""
    passes = any(_passes(test, row, column) for column, test in condition.tests)
    return passes != condition.failing


def text_satisfies(condition: Condition, column: int, kind: AttributeType, text: str) -> bool:
    """True if a value of a column, as text, satisfies the condition on its own."""
    try:
        value = TEXT_CONVERSIONS[kind](text)
    except MalformedError:
        return False
    intervals = [
        each
        for tested_column, each in condition.tests
        if tested_column == column and isinstance(each, Interval)
    ]
    return not condition.failing and any(_holds(interval, value) for interval in intervals)


def satisfying(condition: Condition, block: Block) -> Flags:
    """A flag for each row of a block that satisfies the condition."""
    flags = np.zeros(len(block), dtype=bool)
    for column, test in condition.tests:
        flags |= _condition_column(block, column, test)
    return ~flags if condition.failing else flags


def _passes(test: Test, row: Row, column: int) -> bool:
    if isinstance(test, Interval):
        return _holds(test, row[column])
    return _compares(test, row[column], row[test.column])


def _compares(test: Versus, value: Value, other: Value) -> bool:
    if value is None or other is None:
        return False
    if test.order is None:
        return bool(COMPARED[test.sign](value, other))
    keys = known_key(test.order, str(value)), known_key(test.order, str(other))
    return None not in keys and bool(COMPARED[test.sign](*keys))


def _holds(interval: Interval, value: Value) -> bool:
    if value is None:
        return False
    operand = value if interval.order is None else known_key(interval.order, str(value))
    return operand is not None and bool(_between(interval, operand) != interval.outside)


def _between(interval: Interval, value: Any) -> Any:
    """True if a value, or element by element for an array, is between the ends, which have its type."""
    low: Any = interval.low
    high: Any = interval.high
    is_inside = True
    if low is not None:
        is_inside = value > low if interval.low_open else value >= low
    if high is not None:
        is_below = value < high if interval.high_open else value <= high
        is_inside = is_below if is_inside is True else is_inside & is_below
    return is_inside


def _condition_column(block: Block, column: int, test: Test) -> Flags:
    if isinstance(test, Versus):
        pairs = zip(block.values(column), block.values(test.column), strict=True)
        return np.fromiter((_compares(test, *pair) for pair in pairs), bool, len(block))
    ends = [end for end in (test.low, test.high) if end is not None]
    if all(isinstance(end, int) and _SMALLEST <= end <= _LARGEST for end in ends):
        integers = block.integers(column)
        if integers is not None:
            return np.asarray(_between(test, integers) != test.outside, dtype=bool)
    if not any(isinstance(end, str | tuple) for end in ends):
        numbers = block.numbers(column)
        if numbers is not None:
            values, present = numbers
            return np.asarray(_between(test, values) != test.outside, dtype=bool) & present
    return np.fromiter((_holds(test, value) for value in block.values(column)), bool, len(block))
