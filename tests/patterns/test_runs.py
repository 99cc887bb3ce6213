"""Numbers of keys by column: equal keys have equal numbers, from batch to batch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from skws_patterns.evaluation.runs import NONE, Column, Numbers
from skws_schema.model import Value

INTEGERS = st.sampled_from([0, 1, -1, 7, 2**40, -(2**62), 2**62, 2**63 - 1, -(2**63), 2**70])
VALUES: st.SearchStrategy[Value] = INTEGERS | st.sampled_from([None, True, False, 1.0, 0.5, "1", "é", ""])
DENSE = st.integers(-2, 2)
KEYS = st.tuples(VALUES, VALUES) | st.tuples(INTEGERS, INTEGERS)
PAIRS = st.lists(st.tuples(DENSE, DENSE), max_size=9) | st.lists(st.tuples(INTEGERS, DENSE), max_size=9)
BATCHES = st.lists(PAIRS | st.lists(KEYS, max_size=9), max_size=4)


@given(BATCHES)
def test_two_keys_have_one_number_if_and_only_if_they_are_equal(
    batches: list[list[tuple[Value, Value]]],
) -> None:
    numbers = Numbers()
    told: dict[tuple[Value, Value], int] = {}
    for batch in batches:
        columns = [Column.of(key[0] for key in batch), Column.of(key[1] for key in batch)]
        for key, number in zip(batch, numbers.of(columns, len(batch)).tolist(), strict=True):
            if None in key:
                assert number == NONE
            else:
                assert told.setdefault(key, number) == number
    assert len(set(told.values())) == len(told)


@given(st.lists(st.lists(VALUES, max_size=9) | st.lists(INTEGERS, max_size=9), max_size=4))
def test_the_same_of_keys_of_one_column(batches: list[list[Value]]) -> None:
    numbers = Numbers()
    told: dict[Value, int] = {}
    for batch in batches:
        for value, number in zip(batch, numbers.of([Column.of(batch)], len(batch)).tolist(), strict=True):
            assert number == (NONE if value is None else told.setdefault(value, number))
    assert len(set(told.values())) == len(told)
