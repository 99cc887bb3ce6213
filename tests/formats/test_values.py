"""Typed values from JSON values, texts and numbers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws.data.values import TEXT_CONVERSIONS, MalformedError, conversion, timestamp
from skws_schema.model import AttributeType as T
from skws_schema.model import Value

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NAIVE = (datetime(1000, 1, 2), datetime(9990, 1, 1))  # noqa: DTZ001 - texts without an offset are tested
REFUSED: list[tuple[T, list[Any]]] = [
    (T.INTEGER, ["abc", "1_0", " 1", "١", "1e3", "12.5", "", True, 12.5, 2**63, 2.0**60]),
    (T.INTEGER, ["9223372036854775808", "1" * 5000, [1]]),
    (T.NUMBER, ["nan", "inf", "1e999", "1_0", "0x1", "", ".", True, float("nan")]),
    (T.BOOLEAN, ["maybe", "", 2, 1.0]),
    (T.TEXT, [1.5, True, [], {}]),
    (T.TIMESTAMP, ["2026-02-30", "2026-01-01x10:00", "soon", "", True, float("inf"), {}]),
    (T.TIMESTAMP, [1_767_225_600_000, "99999999999999", "2026-W01-1", "2026-01-01T25:00"]),
]


@pytest.mark.parametrize(
    ("kind", "given_", "value"),
    [
        (T.INTEGER, 12.0, 12),
        (T.INTEGER, "12", 12),
        (T.INTEGER, "-12.0", -12),
        (T.INTEGER, "-9223372036854775808", -(2**63)),
        (T.NUMBER, 7, 7.0),
        (T.NUMBER, "-.5e1", -5.0),
        (T.BOOLEAN, "YES", True),
        (T.BOOLEAN, "f", False),
        (T.BOOLEAN, 0, False),
        (T.TEXT, 12, "12"),
        (T.STRING, "", ""),
        (T.TEXT, None, None),
        (T.TIMESTAMP, "1970-01-02", 86_400_000_000),
        (T.TIMESTAMP, "1970-01-01 00:00:01.5+00", 1_500_000),
        (T.TIMESTAMP, "1970-01-01T01:00:00.1234569+01:00", 123_456),
        (T.TIMESTAMP, "1969-12-31T23:59:59.999999Z", -1),
        (T.TIMESTAMP, 1767225600.123456, 1_767_225_600_123_456),
        (T.TIMESTAMP, "1767225600.123456", 1_767_225_600_123_456),
        (T.TIMESTAMP, -1, -1_000_000),
    ],
)
def test_accepted(kind: T, given_: Any, value: Value) -> None:
    got = conversion(kind, type(given_))(given_)
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(("kind", "given_"), [(kind, v) for kind, values in REFUSED for v in values])
def test_refused(kind: T, given_: Any) -> None:
    with pytest.raises(MalformedError, match="expected"):
        conversion(kind, type(given_))(given_)


@given(
    st.datetimes(*NAIVE),
    st.integers(-1439, 1439),
    st.sampled_from("T "),
)
def test_timestamps_are_exact_to_the_microsecond(moment: datetime, minutes: int, separator: str) -> None:
    aware = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    assert timestamp(aware.isoformat(separator)) == (aware - EPOCH) // timedelta(microseconds=1)
    naive = (moment.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
    assert timestamp(moment.isoformat(separator)) == naive


@given(st.integers(-2_000_000_000_000_000, 4_000_000_000_000_000))
def test_seconds_with_six_digits_are_exact(micros: int) -> None:
    sign, (whole, part) = "-" * (micros < 0), divmod(abs(micros), 1_000_000)
    text = f"{sign}{whole}.{part:06d}"
    assert timestamp(text) == timestamp(float(text)) == micros


@given(st.sampled_from(list(T)), st.text(max_size=12))
def test_any_text_is_a_value_or_refused(kind: T, text: str) -> None:
    try:
        value = TEXT_CONVERSIONS[kind](text)
    except MalformedError:
        return
    assert value is not None
