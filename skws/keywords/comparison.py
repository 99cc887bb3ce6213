"""Reads the values of conditions: ``price<500``, ``released:2024-01-01..2024-03-31``, ``active:true``."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from math import ceil, floor
from typing import Any, Final, NamedTuple

from skws.data.values import TEXT_CONVERSIONS, MalformedError, integer_of_int, number_of_text, refusal
from skws.keywords.query import Condition, Interval, Scope
from skws.keywords.scope import Compared
from skws_schema.comparison import Op
from skws_schema.errors import QueryError
from skws_schema.model import AttributeType, Schema, Value

_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_DAY: Final = timedelta(days=1) // timedelta(microseconds=1)
_SIGNS: Final = [sign.value for sign in Op]


class _Span(NamedTuple):
    """The values that a written one stands for: those from ``low`` to ``high``, with ``high`` if closed."""

    low: Any
    high: Any
    closed: bool = True


def compare(attribute: Compared, sign: str, text: str, schema: Schema) -> Condition:
    """The condition that a value satisfies a comparison with the value written ``text``.

    A date stands for its whole day. Raises QueryError for a sign or value that does not fit the type.
    """
    if sign not in _SIGNS:
        raise QueryError(f"no comparison {sign!r}; expected one of {' '.join(_SIGNS)}")
    kind, name = _described(attribute, schema)
    op = Op(sign)
    if kind is AttributeType.BOOLEAN and op not in {Op.EQUAL, Op.DIFFERENT}:
        raise QueryError(f"{name} is true or false, which has no order; expected = or !=")
    span = _read(kind, name, text, op)
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
    return _condition(attribute, interval)


def in_range(attribute: Compared, low: str, high: str, schema: Schema) -> Condition:
    """The condition that a value is in a range, both ends included; an empty text is no end.

    Raises QueryError for ends that do not fit the type, or that come in the other order.
    """
    kind, name = _described(attribute, schema)
    if kind is AttributeType.BOOLEAN:
        raise QueryError(f"{name} is true or false, which has no range")
    first = _read(kind, name, low, Op.AT_LEAST) if low else None
    last = _read(kind, name, high, Op.AT_MOST) if high else None
    if first and last and (first.low > last.high or (first.low == last.high and not last.closed)):
        raise QueryError(f"the range {low}..{high} ends before it begins")
    return _condition(
        attribute,
        Interval(
            first.low if first else None,
            last.high if last else None,
            high_open=bool(last and not last.closed),
        ),
    )


def _described(attribute: Compared, schema: Schema) -> tuple[AttributeType, str]:
    relation = schema.relations[attribute.relation]
    described = relation.attributes[attribute.column]
    return described.type, f"{relation.name}.{described.name}"


def _condition(attribute: Compared, interval: Interval) -> Condition:
    return Condition(((attribute.column, interval),), scope=Scope(attribute.relation, None))


def _read(kind: AttributeType, name: str, text: str, op: Op) -> _Span:
    try:
        if kind is AttributeType.TIMESTAMP and _DATE.fullmatch(text):
            midnight: Any = TEXT_CONVERSIONS[kind](text)
            return _Span(midnight, midnight + _DAY, closed=False)
        value = _integer(text, op) if kind is AttributeType.INTEGER else TEXT_CONVERSIONS[kind](text)
    except MalformedError as error:
        raise QueryError(f"{name} is of type {kind}: {error}") from None
    return _Span(value, value)


_ROUNDED: Final[dict[Op, Callable[[float], int]]] = {
    Op.LESS: ceil,
    Op.AT_LEAST: ceil,
    Op.AT_MOST: floor,
    Op.GREATER: floor,
}
"""The integer that stands for a fraction: no integer is between the two."""


def _integer(text: str, op: Op) -> Value:
    try:
        return TEXT_CONVERSIONS[AttributeType.INTEGER](text)
    except MalformedError:
        number = number_of_text(text)
    rounded = _ROUNDED.get(op)
    if rounded is None and not number.is_integer():
        raise refusal(AttributeType.INTEGER, text)
    return integer_of_int(rounded(number) if rounded else int(number))
