"""Conversion of JSON values, texts and numbers to typed values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws.data.arrow import flags, integers, of_integers, reader_of, texts_at
from skws.data.arrow_blocks import ArrowBlock
from skws.data.value_conversion import (
    EARLIEST,
    LATEST,
    TEXT_CONVERSIONS,
    MalformedError,
    Micros,
    MissingError,
    Unreadable,
    conversion,
    timestamp,
)
from skws_schema.model import AttributeType as T
from skws_schema.model import Value
from tests.commands import python

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NAIVE = (datetime(1000, 1, 2), datetime(9990, 1, 1))  # noqa: DTZ001 - texts without an offset are tested
_EMPTY: list[Any] = ["", [], {}]
NULL = [
    *((kind, raw, None) for kind in (T.INTEGER, T.NUMBER, T.BOOLEAN, T.TIMESTAMP) for raw in _EMPTY),
    *((kind, raw, None) for kind in (T.TEXT, T.STRING) for raw in _EMPTY[1:]),
]
MALFORMED: list[tuple[T, list[Any]]] = [
    (T.INTEGER, ["abc", "1_0", " 1", "١", "1e3", "12.5", True, 12.5, 2**63, 2.0**60]),
    (T.INTEGER, ["9223372036854775808", "1" * 5000, [1]]),
    (T.NUMBER, ["1e999", "1_0", "0x1", ".", True]),
    (T.BOOLEAN, ["maybe", 2, 1.0]),
    (T.TEXT, [1.5, True, [1], {"a": 1}]),
    (T.TIMESTAMP, ["2026-02-30", "2026-01-01x10:00", "soon", True, {"a": 1}]),
    (T.TIMESTAMP, [1_767_225_600_000, "99999999999999", "2026-W01-1", "2026-01-01T25:00"]),
    (T.TIMESTAMP, ["0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-05:00"]),
]


@pytest.mark.parametrize(
    "value",
    [
        *("infinity", "-infinity", "0044-03-15 BC", "0044-03-15 12:00:00+00 BC", "10000-01-01 00:00:00"),
        *(float("inf"), float("nan"), Micros(LATEST + 1), Micros(2**63 - 1), Unreadable("10000-01-01")),
    ],
)
def test_a_time_outside_years_1_to_9999_is_missing(value: Any) -> None:
    with pytest.raises(MissingError, match="outside of the years 1 to 9999"):
        conversion(T.TIMESTAMP, type(value))(value)


@pytest.mark.parametrize("kind", [T.INTEGER, T.NUMBER])
@pytest.mark.parametrize("value", ["NaN", "-Infinity", "inf", float("nan"), float("-inf")])
def test_nan_and_infinity_are_missing(kind: T, value: Any) -> None:
    with pytest.raises(MissingError, match="NaN and infinity"):
        conversion(kind, type(value))(value)


@pytest.mark.parametrize(
    ("kind", "raw", "value"),
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
        *NULL,
        (T.TIMESTAMP, "1970-01-02", 86_400_000_000),
        (T.TIMESTAMP, "1970-01-01 00:00:01.5+00", 1_500_000),
        (T.TIMESTAMP, "1970-01-01T01:00:00.1234569+01:00", 123_456),
        (T.TIMESTAMP, "1969-12-31T23:59:59.999999Z", -1),
        (T.TIMESTAMP, 1767225600.123456, 1_767_225_600_123_456),
        (T.TIMESTAMP, "1767225600.123456", 1_767_225_600_123_456),
        (T.TIMESTAMP, -1, -1_000_000),
        (T.TIMESTAMP, "0001-01-01T01:00:00+01:00", EARLIEST),
        (T.TIMESTAMP, "9999-12-31T23:59:59.999999Z", LATEST),
    ],
)
def test_values_are_converted(kind: T, raw: Any, value: Value) -> None:
    converted = conversion(kind, type(raw))(raw)
    assert converted == value
    assert type(converted) is type(value)


@pytest.mark.parametrize(("kind", "raw"), [(kind, v) for kind, values in MALFORMED for v in values])
def test_malformed_values_are_rejected(kind: T, raw: Any) -> None:
    with pytest.raises(MalformedError, match="expected"):
        conversion(kind, type(raw))(raw)


@pytest.mark.parametrize("kind", T)
def test_a_number_of_thousands_of_digits_is_rejected(kind: T) -> None:
    with pytest.raises(MalformedError, match=r"expected.* got a number with thousands of digits"):
        conversion(kind, int)(10**5000)


@given(
    st.datetimes(*NAIVE),
    st.integers(-1439, 1439),
    st.sampled_from("T "),
)
def test_timestamps_are_exact_to_the_microsecond(moment: datetime, minutes: int, separator: str) -> None:
    aware = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    assert timestamp(aware.isoformat(separator)) == (aware - EPOCH) // timedelta(microseconds=1)
    utc_micros = (moment.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
    assert timestamp(moment.isoformat(separator)) == utc_micros


@given(st.integers(-2_000_000_000_000_000, 4_000_000_000_000_000))
def test_seconds_with_six_digits_are_exact(micros: int) -> None:
    sign, (seconds, fraction) = "-" * (micros < 0), divmod(abs(micros), 1_000_000)
    text = f"{sign}{seconds}.{fraction:06d}"
    assert timestamp(text) == timestamp(float(text)) == micros


@given(st.sampled_from(list(T)), st.text(max_size=12))
def test_any_text_is_a_value_or_rejected(kind: T, text: str) -> None:
    try:
        value = TEXT_CONVERSIONS[kind](text)
    except MalformedError:
        return
    assert value is not None


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1)), st.data())
def test_integers_convert_to_arrow_and_back(values: list[int], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(values)))
    array = pa.array(values, pa.int64())
    assert integers(array.slice(first)).tolist() == values[first:]
    assert of_integers(integers(array)).equals(array)
    assert of_integers(np.repeat(integers(array), 2)[::2]).equals(array)


@given(st.lists(st.one_of(st.booleans(), st.none())), st.data())
def test_flags_are_true_where_the_array_is(values: list[bool | None], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(values)))
    values_read = flags(pa.array(values, pa.bool_()).slice(first))
    assert values_read.tolist() == [value is True for value in values[first:]]


@given(st.lists(st.one_of(st.booleans(), st.none())))
def test_booleans_are_numbers_or_absent(values: list[bool | None]) -> None:
    numbers = ArrowBlock(0, [pa.array(values, pa.bool_())]).numbers(0)
    assert numbers is not None
    assert [v if present else None for v, present in zip(*map(list, numbers), strict=True)] == values


def test_matching_columns_loads_no_pandas() -> None:
    code = """
import sys
from skws.keywords.parse import parse_query
from skws.keywords.match import Matcher
from skws.data.arrow_blocks import ArrowBlock
from skws.data.blocks import ColumnBlock
import numpy as np
import pyarrow as pa
from skws_schema.model import Attribute, AttributeType, Relation, Schema
schema = Schema("s", (Relation("r", (Attribute("t", AttributeType.TEXT),), search=("t",)),), ())
matcher = Matcher(parse_query("alpha beta", schema), schema)
texts = [b"an alpha", b"nothing", b"b\\xc3\\xa9ta Beta"]
ends = np.cumsum([0, *map(len, texts)]).astype(np.int32)
array = pa.Array.from_buffers(pa.string(), 3, [None, pa.py_buffer(ends), pa.py_buffer(b"".join(texts))])
blocks = ArrowBlock(0, [array]), ColumnBlock(0, [["beta", None, "alpha's"]])
print([bitmap.tolist() for bitmap in matcher.bitmaps_of(blocks)], "pandas" in sys.modules)
"""
    outcome = python("-c", code)
    assert (outcome.code, outcome.out.strip()) == (0, "[[1, 0, 2], [2, 0, 1]] False"), outcome.err


@given(
    st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)),
    st.integers(0, 3),
    st.lists(st.integers(0, 50)),
)
def test_texts_at_positions_equal_those_of_the_array(
    texts: list[str | None], first: int, numbers: list[int]
) -> None:
    array = pa.array(texts, pa.string()).slice(first)
    places = np.array([number % len(array) for number in numbers] if len(array) else [], dtype=np.int64)
    assert texts_at(array, places) == [texts[first + place] for place in places.tolist()]


@pytest.mark.parametrize("data", [b"", b"1,2\n"])
def test_arrow_reads_a_copy_of_the_bytes(data: bytes) -> None:
    reader = reader_of(data)
    assert reader.read() == data
    reader.seek(0)
    assert reader.read_buffer().address != pa.py_buffer(data).address
