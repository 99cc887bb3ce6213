"""Conditions on the values of attributes (``price<500``): how they are read, and which rows satisfy them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from math import ceil, floor
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from skws.data.blocks import Block
from skws.data.values import TEXT_CONVERSIONS, MalformedError, integer_of_int, number_of_text, refusal
from skws.keywords.query import Condition, Interval, Scope
from skws.keywords.scope import Compared
from skws_schema.errors import QueryError
from skws_schema.model import AttributeType, Row, Schema, Value
from skws_schema.values import Op

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
        raise QueryError(f"{name} is a boolean, which has no order; expected = or !=")
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
        raise QueryError(f"{name} is a boolean, which has no range")
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


Flags = npt.NDArray[np.bool_]
_SMALLEST: Final = -(2**63)
_LARGEST: Final = 2**63 - 1


def satisfied(condition: Condition, row: Row) -> bool:
    """True if a row of the condition's relation satisfies it."""
    found = any(_holds(interval, row[column]) for column, interval in condition.tests)
    return found != condition.failing


def text_satisfies(condition: Condition, column: int, kind: AttributeType, text: str) -> bool:
    """True if a value of a column, shown as text, satisfies the condition by itself."""
    try:
        value = TEXT_CONVERSIONS[kind](text)
    except MalformedError:
        return False
    intervals = [interval for tested, interval in condition.tests if tested == column]
    return not condition.failing and any(_holds(interval, value) for interval in intervals)


def satisfying(condition: Condition, block: Block) -> Flags:
    """Which rows of a block of the condition's relation satisfy it."""
    found = np.zeros(len(block), dtype=bool)
    for column, interval in condition.tests:
        found |= _column(block, column, interval)
    return ~found if condition.failing else found


def _holds(interval: Interval, value: Value) -> bool:
    return value is not None and bool(_between(interval, value) != interval.outside)


def _between(interval: Interval, value: Any) -> Any:
    """For one value, or element by element for an array. Ends have the type of the values."""
    low, high, low_open, high_open, _ = interval
    found = True
    if low is not None:
        found = value > low if low_open else value >= low
    if high is not None:
        below = value < high if high_open else value <= high
        found = below if found is True else found & below
    return found


def _column(block: Block, column: int, interval: Interval) -> Flags:
    ends = [end for end in (interval.low, interval.high) if end is not None]
    if all(isinstance(end, int) and _SMALLEST <= end <= _LARGEST for end in ends):
        integers = block.integers(column)
        if integers is not None:
            return np.asarray(_between(interval, integers) != interval.outside, dtype=bool)
    if not any(isinstance(end, str) for end in ends):
        numbers = block.numbers(column)
        if numbers is not None:
            values, present = numbers
            return np.asarray(_between(interval, values) != interval.outside, dtype=bool) & present
    return np.fromiter((_holds(interval, value) for value in block.values(column)), bool, len(block))
