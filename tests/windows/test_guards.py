"""Guards by columns and by record, compared with z3."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws_windows.automata.k_sla import minterm
from skws_windows.guards import guard as g
from skws_windows.guards.alphabet import StreamRecord, holds
from skws_windows.guards.letters import Letters, RecordColumns, RowSource
from skws_windows.guards.satisfiability import Satisfiability
from tests.strategies import examples
from tests.window_streams import ALPHABET, guards, words

K = 2
THEORY = Satisfiability(ALPHABET)


def columns_of(word: list[StreamRecord]) -> RecordColumns:
    return RecordColumns(ALPHABET, RowSource.of(word))


@examples(300)
@given(st.lists(guards(K), min_size=1, max_size=4), words(min_size=1))
def test_guards_by_columns_equal_guards_by_record(
    sample_guards: list[g.Guard], word: list[StreamRecord]
) -> None:
    columns = columns_of(word)
    for guard in sample_guards:
        flags = columns.holds(guard).tolist()
        for i in range(K, len(word)):
            assert flags[i] == holds(guard, word[i - K : i + 1], ALPHABET), (str(guard), i)


def test_whole_numbers_beyond_doubles_are_compared_exactly() -> None:
    large = 2**53
    word = [StreamRecord(0, 0, (x, None, None)) for x in (large, large + 1, large + 2, -(2**63), None)]
    equals_successor = g.Compare("=", g.Field("x"), g.GuardConstant(large + 1))
    is_rising = g.Compare("<", g.Sum(((3000, g.Field("x", 1)),)), g.Sum(((3000, g.Field("x")),)))
    assert columns_of(word).holds(equals_successor).tolist() == [False, True, False, False, False]
    assert columns_of(word).holds(is_rising).tolist()[1:] == [True, True, False, False]


def test_a_missing_number_is_compared_with_a_large_integer_without_a_warning() -> None:
    records = [StreamRecord(0, 0, (1 << 62, None, None)), StreamRecord(0, 0, (1 << 62, 1.0, None))]
    columns = RecordColumns(ALPHABET, RowSource.of(records))
    assert columns.holds(g.Compare("<", g.Field("y"), g.Field("x"))).tolist() == [False, True]


@pytest.mark.check
@examples(100)
@given(st.lists(guards(1), min_size=1, max_size=3), words(min_size=2, max_size=5))
def test_occurring_combinations_are_possible_and_samples_true(
    sample_guards: list[g.Guard], word: list[StreamRecord]
) -> None:
    cells = {cell.signs: cell.sample for cell in THEORY.cells(sample_guards)}
    combinations = {
        tuple(holds(guard, word[i - 1 : i + 1], ALPHABET) for guard in sample_guards)
        for i in range(1, len(word))
    }
    assert combinations <= cells.keys()
    for signs, sample in cells.items():
        if sample is not None:
            assert tuple(holds(guard, sample, ALPHABET) for guard in sample_guards) == signs
    for signs in product((False, True), repeat=len(sample_guards)):
        assert THEORY.is_possible(minterm(sample_guards, signs)) == (signs in cells)


X, BEFORE = g.Field("x"), g.Field("x", 1)
IMPOSSIBLE = (
    g.conjunction([g.Compare("<", X, BEFORE), g.Compare("<", BEFORE, X)]),
    g.conjunction([g.Compare("<", g.GuardConstant(1), X), g.Compare("<", X, g.GuardConstant(2))]),
    g.conjunction([g.OfRelation("m"), g.OfRelation("n")]),
    g.conjunction([g.OfRelation("m"), g.negation(g.IsNull(g.Field("n.x")))]),
    g.conjunction([g.OfRelation("n"), g.Contains(g.Field("s"), "red")]),
    g.conjunction(
        [
            g.Compare("=", g.Field("s"), g.GuardConstant("green red")),
            g.negation(g.Contains(g.Field("s"), "red")),
        ]
    ),
    g.conjunction([g.Compare("=", X, X), g.IsNull(X)]),
    g.Compare("<", g.Field("time"), g.Field("time", 1)),
    g.Compare("<", g.add_scaled(g.Sum(((1, X),)), g.Sum(((1, BEFORE),)), -1), g.Sum(((1, X), (-1, BEFORE)))),
)


def test_impossible_guards_are_recognized() -> None:
    assert [str(guard) for guard in IMPOSSIBLE if THEORY.is_possible(guard)] == []
    contradiction = g.conjunction(
        [g.Compare("<", g.GuardConstant(1), g.Field("y")), g.Compare("<", g.Field("y"), g.GuardConstant(2))]
    )
    assert THEORY.is_possible(contradiction)


def test_promises_limit_what_is_possible() -> None:
    theory = Satisfiability(ALPHABET, [g.disjunction([g.IsNull(X), g.Compare("<=", X, g.GuardConstant(5))])])
    is_above = g.Compare("<", g.GuardConstant(5), BEFORE)
    assert THEORY.is_possible(is_above)
    assert not theory.is_possible(is_above)


def test_letters_distinguish_all_combinations_of_any_number_of_guards() -> None:
    word = [StreamRecord(0, 0, (x % 7, None, None)) for x in range(40)]
    for count in (3, 20, 70):
        guards_of_letters = [g.Compare("<", X, g.GuardConstant(i % 9)) for i in range(count)]
        letters = Letters(guards_of_letters)
        numbers = letters.of(columns_of(word)).tolist()
        for record, number in zip(word, numbers, strict=True):
            assert letters.signs[number] == tuple(
                holds(guard, [record], ALPHABET) for guard in guards_of_letters
            )
        assert len(letters) == min(count, 7)
        assert letters.of(columns_of(word)).tolist() == numbers


def test_fields_of_several_relations() -> None:
    assert {"x", "m.x", "n.x", "y", "b", "time"} <= ALPHABET.fields.keys()
    assert ALPHABET.fields["n.x"].variable == "x"
    record = StreamRecord(1, 7, (3, True))
    assert [ALPHABET.value(name, record) for name in ("x", "n.x", "m.x", "b", "time")] == [
        3,
        3,
        None,
        True,
        7,
    ]
