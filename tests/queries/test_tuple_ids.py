"""Ids of tuples without a key have their exact start."""

from __future__ import annotations

from fractions import Fraction

import pytest

from skws.data.value_conversion import timestamp
from skws.results.names import TupleNames
from skws_schema.yaml.load import parse_schema


@pytest.mark.parametrize("year", [1, 1600, 1698, 1969, 1970, 2026, 2242, 2243, 9999])
def test_ids_of_equal_rows_a_microsecond_apart_differ(year: int) -> None:
    schema = parse_schema("relations: {note: {attributes: {text: text}}}")
    names = TupleNames(schema, None)
    start = timestamp(f"{year:04}-06-01T00:00:00Z")
    starts = [start + offset for offset in range(-20, 21)]
    texts = [names.version(0, ("a",), each).id.partition("@")[2] for each in starts]
    assert [Fraction(text) * 1_000_000 for text in texts] == starts
    assert texts[20] == f"{start // 1_000_000}.0"
