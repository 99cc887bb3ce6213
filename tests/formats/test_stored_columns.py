"""Rows of a database are the same whether they are read as columns or one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws.formats.rows import RowReader, typed_rows
from skws.formats.stored_columns import typed_batches
from skws_schema.errors import SourceError
from skws_schema.model import Attribute, AttributeType, Relation, Schema
from tests.formats.test_bare_columns import TEXTS, USUAL
from tests.strategies import examples

KINDS = tuple(AttributeType)
SCHEMA = Schema("s", (Relation("a", tuple(Attribute(k.value, k) for k in KINDS), table=True),), ())
NUMBERS: list[Any] = [0, 1, 2, -7, 2**62, 2**53 + 1, 2**63, 0.5, 2.0, float("inf"), float("nan"), True]
STORED = ["2024-01-02 03:04:05+01", "2024-01-02 03:04:05.5+05:30", "2024-01-02", "12:00", "t", "\ud800"]


@st.composite
def tables(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """Rows whose columns mostly hold values of the same kind."""
    size = draw(st.integers(1, 6))
    columns = []
    for kind in KINDS:
        odd_values: list[Any] = [*TEXTS[kind], *NUMBERS, *STORED, None]
        kinds_of_values: list[list[Any]] = [
            [USUAL[kind]],
            [USUAL[kind], None, ""],
            [1, 0, None],
            [1.5, 2.0],
            TEXTS[kind],
            odd_values,
        ]
        values = draw(
            st.sampled_from(
                [*kinds_of_values, draw(st.lists(st.sampled_from(odd_values), min_size=1, max_size=2))]
            )
        )
        columns.append(draw(st.lists(st.sampled_from(values), min_size=size, max_size=size)))
    return list(zip(*columns, strict=True))


@given(tables(), st.integers(1, 7))
@examples(2000)
def test_stored_columns_equal_stored_rows(rows: list[tuple[Any, ...]], batch_rows: int) -> None:
    readers = RowReader(SCHEMA, 0), RowReader(SCHEMA, 0)
    expected: Any
    actual: Any
    try:
        expected = [repr(row) for row in typed_rows("d", readers[0], iter(rows))]
    except SourceError as error:
        expected = str(error)
    try:
        batches = typed_batches("d", readers[1], iter(rows), batch_rows)
        actual = [repr(tuple(row.values())) for batch in batches for row in batch.to_pylist()]
    except SourceError as error:
        actual = str(error)
    except UnicodeError:  # which no index can contain
        assert "\\ud800" in repr(rows)
        return
    assert actual == expected
    if not isinstance(expected, str):
        assert readers[0].passed_over == readers[1].passed_over


def test_a_bad_stored_value_has_its_row_number() -> None:
    rows = [(None,) * len(KINDS)] * 5 + [(None, None, "x", None, None, None)]
    reordered = [tuple(dict(zip(TEXTS, row, strict=True))[kind] for kind in KINDS) for row in rows]
    with pytest.raises(SourceError, match=r"^d: row 6: a.integer: expected an integer, got 'x'$"):
        list(typed_batches("d", RowReader(SCHEMA, 0), iter(reordered), 4))
