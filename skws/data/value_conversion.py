"""Conversion of JSON values, CSV texts and seconds to typed values.

Conversion is strict, so that a stream has the same values in every format: a text is
only accepted for another type if it parses exactly; an integer is accepted
for a text (as its digits), a fraction or a boolean is not (its spelling is
lost). Integers have 64 bits, numbers are finite doubles. Digits finer than a
microsecond are dropped from texts; a fraction of seconds is rounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from math import isfinite
from typing import Any, Final, TypeAlias

from skws_schema.errors import shown
from skws_schema.model import AttributeType, Value
from skws_schema.number_texts import NOT_FINITE_TEXT, digits

Convert: TypeAlias = Callable[[Any], Value]


class MalformedError(ValueError):
    """A malformed value, row or record; the text is the reason shown to the user."""


class MissingError(MalformedError):
    """A value that the source can hold but no attribute can, such as NaN: it becomes NULL, its row stays.

    The text says what is missing, without the value. For an array, ``missing`` is the number of such
    elements, and ``value`` that of the others.
    """

    def __init__(self, reason: str, value: Value = None, missing: int = 1) -> None:
        super().__init__(reason)
        self.value = value
        self.missing = missing


class Micros(int):
    """A timestamp in microseconds since the epoch."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A value that Python cannot hold, such as a date after the year 9999; it becomes a missing value."""

    text: str

    def __repr__(self) -> str:
        return self.text


LARGEST: Final = 2**63 - 1
SMALLEST: Final = -(2**63)
EXACT: Final = 2**53
LONGEST: Final = 150_000
"""The most digits of a decimal, as in PostgreSQL."""
EARLIEST: Final = -62_135_596_800_000_000
LATEST: Final = 253_402_300_799_999_999

_NAIVE_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - times without an offset are UTC by definition
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOT_FINITE: Final = "NaN and infinity are not numbers, so they are missing"
_INTEGER = re.compile(r"([+-]?[0-9]{1,19})(?:\.0*)?", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_TRUTH: Final = {
    **dict.fromkeys(("true", "t", "1", "yes"), True),
    **dict.fromkeys(("false", "f", "0", "no"), False),
}
EXPECTED: Final = {
    AttributeType.TEXT: "a text",
    AttributeType.STRING: "a text",
    AttributeType.INTEGER: "an integer",
    AttributeType.NUMBER: "a number",
    AttributeType.BOOLEAN: "a boolean (true or false)",
    AttributeType.TIMESTAMP: "a timestamp (ISO 8601, or seconds since the epoch)",
}


def refusal(kind: AttributeType, value: object) -> MalformedError:
    return MalformedError(f"expected {EXPECTED[kind]}, got {shown(value)}")


def integer_of_int(value: int) -> int:
    if SMALLEST <= value <= LARGEST:
        return value
    raise MalformedError(f"expected an integer of 64 bits, got {shown(value)}")


def integer_of_float(value: float) -> int:
    # Beyond 2**53 a double no longer distinguishes neighbouring integers (JSON parsers
    # give doubles for integers of more than 64 bits).
    if value.is_integer() and abs(value) <= EXACT:
        return int(value)
    if not isfinite(value):
        raise MissingError(NOT_FINITE)
    raise refusal(AttributeType.INTEGER, value)


def integer_of_text(text: str) -> int:
    match = _INTEGER.fullmatch(text)
    if match is not None:
        return integer_of_int(int(match[1]))
    raise (
        MissingError(NOT_FINITE) if NOT_FINITE_TEXT.fullmatch(text) else refusal(AttributeType.INTEGER, text)
    )


def number_of_int(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        raise refusal(AttributeType.NUMBER, value) from None


def text_of_int(value: int) -> str:
    """The digits of an integer."""
    try:
        return str(value)
    except ValueError:  # of more than 4,300 digits
        raise MalformedError(f"expected a text, got {shown(value)}") from None


def text_of_decimal(value: Decimal, kind: AttributeType) -> str:
    """The digits of a decimal, for an attribute of type ``kind``; the same for equal decimals."""
    if not value.is_finite():
        raise MissingError(NOT_FINITE)
    if abs(value.adjusted()) > LONGEST:
        raise refusal(kind, value)
    return digits(value)


def _decimal_conversion(kind: AttributeType) -> Convert:
    """A conversion of decimals by their digits: no double is made unless the result is one."""
    convert = JSON_CONVERSIONS[kind][str]
    return lambda value: convert(text_of_decimal(value, kind))


def number_of_float(value: float) -> float:
    if isfinite(value):
        return value
    raise MissingError(NOT_FINITE)


def number_of_text(text: str) -> float:
    if _NUMBER.fullmatch(text):
        number = float(text)
        if isfinite(number):
            return number
    elif NOT_FINITE_TEXT.fullmatch(text):
        raise MissingError(NOT_FINITE)
    raise refusal(AttributeType.NUMBER, text)


def boolean_of_int(value: int) -> bool:
    if value in (0, 1):
        return value == 1
    raise refusal(AttributeType.BOOLEAN, value)


def boolean_of_text(text: str) -> bool:
    truth = _TRUTH.get(text.lower())
    if truth is None:
        raise refusal(AttributeType.BOOLEAN, text)
    return truth


def timestamp_of_int(seconds: int) -> int:
    """Microseconds since the epoch, exactly."""
    return within_calendar(seconds * 1_000_000, seconds)


def timestamp_of_float(seconds: float) -> int:
    """The nearest microsecond since the epoch."""
    if not isfinite(seconds):
        raise MissingError(_OUT_OF_CALENDAR)
    micros = seconds * 1e6
    return within_calendar(round(micros) if isfinite(micros) else LATEST + 1, seconds)


# Times outside the years 1 to 9999, as databases write them.
_OUTSIDE: Final = re.compile(r"[-+]?infinity|\d{4,}-\d\d-\d\d([ T].*)? BC|\d{5,}-\d\d-\d\d([ T].*)?", re.I)
_OUT_OF_CALENDAR: Final = "times outside of the years 1 to 9999, and infinity, are missing"


def timestamp_of_text(text: str) -> int:
    """Microseconds since the epoch of an ISO 8601 text, or of seconds written as a number."""
    if len(text) < 10 or text[4] != "-" or text[7] != "-" or (len(text) > 10 and text[10] not in "T t"):
        return _seconds_of_text(text)
    try:
        instant = datetime.fromisoformat(text)
        difference = instant - (_NAIVE_EPOCH if instant.tzinfo is None else _EPOCH)
    except (ValueError, OverflowError):
        if _OUTSIDE.fullmatch(text):
            raise MissingError(_OUT_OF_CALENDAR) from None
        raise refusal(AttributeType.TIMESTAMP, text) from None
    micros = (difference.days * 86_400 + difference.seconds) * 1_000_000 + difference.microseconds
    if not EARLIEST <= micros <= LATEST:  # by its offset
        raise MalformedError(f"expected a timestamp within the years 1 to 9999 of UTC, got {shown(text)}")
    return micros


def _seconds_of_text(text: str) -> int:
    match = _INTEGER.fullmatch(text)
    if match is not None:
        return timestamp_of_int(int(match[1]))
    if _NUMBER.fullmatch(text):
        return timestamp_of_float(float(text))
    if _OUTSIDE.fullmatch(text):
        raise MissingError(_OUT_OF_CALENDAR)
    raise refusal(AttributeType.TIMESTAMP, text)


def timestamp_of_micros(micros: Micros) -> int:
    return of_calendar(int(micros))


def of_calendar(micros: int) -> int:
    """``micros`` from a source that knows the unit. Raises MissingError if no attribute can hold them."""
    if EARLIEST <= micros <= LATEST:
        return micros
    raise MissingError(_OUT_OF_CALENDAR)


def within_calendar(micros: int, source_value: object) -> int:
    """``micros`` if in the years 1 to 9999, as other dates cannot be shown. Raises MalformedError."""
    if EARLIEST <= micros <= LATEST:
        return micros
    raise MalformedError(
        f"expected seconds since the epoch within the years 1 to 9999, got {shown(source_value)}"
        " (milliseconds or microseconds?)"
    )


def unchanged(value: Any) -> Value:
    return value  # type: ignore[no-any-return]  # the caller has checked the type


# How JSON values are converted, by the attribute's type and the value's; other types are refused.
JSON_CONVERSIONS: Final[dict[AttributeType, dict[type, Convert]]] = {
    AttributeType.TEXT: {str: unchanged, int: text_of_int},
    AttributeType.STRING: {str: unchanged, int: text_of_int},
    AttributeType.INTEGER: {int: integer_of_int, float: integer_of_float, str: integer_of_text},
    AttributeType.NUMBER: {float: number_of_float, int: number_of_int, str: number_of_text},
    AttributeType.BOOLEAN: {bool: unchanged, int: boolean_of_int, str: boolean_of_text},
    AttributeType.TIMESTAMP: {
        str: timestamp_of_text,
        int: timestamp_of_int,
        float: timestamp_of_float,
        Micros: timestamp_of_micros,
        Unreadable: lambda value: timestamp_of_text(value.text),
    },
}

for _kind, _conversions in JSON_CONVERSIONS.items():
    _conversions[Decimal] = _decimal_conversion(_kind)

# Conversions of the texts of CSV fields that are not empty.
TEXT_CONVERSIONS: Final[dict[AttributeType, Convert]] = {
    kind: conversions[str] for kind, conversions in JSON_CONVERSIONS.items()
}


def _or_null(convert: Convert) -> Convert:
    """A conversion of texts that are not texts of the attribute: an empty one is NULL, as in CSV."""
    return lambda text: None if text == "" else convert(text)


for _kind, _conversions in JSON_CONVERSIONS.items():
    if _kind.family is not AttributeType.TEXT:
        _conversions[str] = _or_null(_conversions[str])


def conversion(kind: AttributeType, source_type: type) -> Convert:
    """The conversion of values of type ``source_type`` to ``kind``; one that raises if there is none."""
    if source_type is type(None):
        return unchanged

    def refuse(value: Any) -> Value:
        if value in ([], {}):  # many programs write [] for an empty object, or {} for an empty array
            return None
        raise refusal(kind, value)

    return JSON_CONVERSIONS[kind].get(source_type, refuse)


def timestamp(value: Any) -> int:
    """The time of a record in microseconds since the epoch, from a text or a number of seconds.

    Raises MalformedError for anything else.
    """
    kind = type(value)
    if kind is str:
        return timestamp_of_text(value)
    if kind is int:
        return timestamp_of_int(value)
    if kind is float:
        return timestamp_of_float(value)
    if kind is Decimal:
        return timestamp_of_text(text_of_decimal(value, AttributeType.TIMESTAMP))
    raise refusal(AttributeType.TIMESTAMP, value)
