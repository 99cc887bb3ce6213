"""Conditions on the values of attributes: which rows satisfy them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from skws.data.blocks import Block
from skws.data.values import TEXT_CONVERSIONS, MalformedError
from skws.keywords.query import Condition, Interval
from skws_schema.model import AttributeType, Row, Value

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
