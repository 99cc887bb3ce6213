"""The processor compared with Definition 7 by brute force."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skws_windows.automata import regular as r
from skws_windows.automata.regular import Limits, Selection, WindowExpression, expression
from skws_windows.guards import guard as g
from skws_windows.guards.alphabet import StreamRecord
from skws_windows.processor.stream_processor import Processor
from tests.growth.measurements import reachable_objects
from tests.strategies import examples
from tests.window_streams import ALPHABET, first_of, regulars, selected, windows_by_definition, words

LIMITS = st.builds(
    Limits,
    st.integers(1, 3),
    st.one_of(st.none(), st.integers(1, 4)),
    st.one_of(st.none(), st.integers(0, 4)),
)


def windows_of(processor: Processor, word: list[StreamRecord], cuts: Sequence[int]) -> list[tuple[int, int]]:
    """The windows of a word that arrives in batches."""
    bounds = [0, *sorted(min(c, len(word)) for c in cuts), len(word)]
    batches = [word[a:b] for a, b in pairwise(bounds)]
    return [(w.first, w.last) for batch in batches for w in processor.process(batch)]


def letter(low: int, high: int = 9) -> r.Regular:
    field = g.Field("x")
    return r.LetterBlock(
        g.conjunction(
            [g.Compare("<=", g.GuardConstant(low), field), g.Compare("<=", field, g.GuardConstant(high))]
        )
    )


Pairs = list[tuple[r.Regular, r.Regular]]
ONE_AT_A_TIME: Pairs = [
    (r.EVERYTHING, r.sequence([letter(0, 1), r.star(letter(0)), letter(2)])),
    (r.EVERYTHING, r.sequence([letter(1), r.star(letter(0, 1)), letter(2)])),
    (r.EVERYTHING, r.sequence([letter(0), letter(1), letter(2)])),
    (r.star(r.then(letter(0), letter(0))), r.then(r.star(letter(1)), letter(0, 0))),
]
"""Expressions of which another window could begin while one is open."""


@st.composite
def cases(draw: st.DrawFn) -> tuple[WindowExpression, Pairs, list[StreamRecord]]:
    """An expression, its parts, and a word."""
    limits = draw(st.one_of(st.just(Limits()), LIMITS))
    selection = draw(st.sampled_from(Selection))
    if draw(st.integers(0, 3)) == 0:
        pair = draw(st.sampled_from(ONE_AT_A_TIME))
        values = draw(st.lists(st.sampled_from((0, 1, 2, 2)), min_size=10, max_size=14))
        word = [StreamRecord(0, i, (value, None, None)) for i, value in enumerate(values)]
        return expression([pair], 0, selection, limits), [pair], word
    k = draw(st.integers(0, 2))
    pairs = draw(st.lists(st.tuples(regulars(k), regulars(k)), min_size=1, max_size=3))
    return expression(pairs, k, selection, limits), pairs, draw(words())


CUTS = st.lists(st.integers(0, 12), max_size=3)


@examples(340)
@given(cases(), CUTS)
def test_every_window_of_the_definition_is_found(
    case: tuple[WindowExpression, Pairs, list[StreamRecord]], cuts: list[int]
) -> None:
    window_expression, pairs, word = case
    windows = windows_of(Processor(window_expression, ALPHABET), word, cuts)
    expected = selected(window_expression, windows_by_definition(pairs, window_expression.k, word), word)
    if window_expression.selection is Selection.FIRST:
        assert windows == first_of(window_expression, expected, word)
        assert all(a[1] < b[0] for a, b in pairwise(windows))
    else:
        assert windows == expected


@examples(180)
@given(cases(), st.sampled_from((0, 3, 9, 100_000)))
def test_skipped_records_and_forgotten_macrostates_change_nothing(
    case: tuple[WindowExpression, Pairs, list[StreamRecord]], remembered: int
) -> None:
    """Records without effect are skipped; larger batches skip more of them."""
    window_expression, _, word = case
    long_word = [record._replace(time=3 * i // 4) for i, record in enumerate(word * 12)]
    expected = windows_of(Processor(window_expression, ALPHABET), long_word, [])
    forgetful = Processor(window_expression, ALPHABET, cache_size=remembered)
    assert windows_of(forgetful, long_word, range(0, len(long_word), 9)) == expected


@pytest.mark.parametrize("limits", [Limits(most=5), Limits(within=4)])
def test_records_without_effect_count_after_a_window_is_too_long(limits: Limits) -> None:
    """While a window is open, a record that could begin another has no effect; afterwards it has."""
    any_number = r.LetterBlock(g.Compare("<", g.GuardConstant(-1), g.Field("x")))
    end = r.LetterBlock(g.Compare("=", g.Field("x"), g.GuardConstant(2)))
    pair = (r.EVERYTHING, r.then(r.then(any_number, r.star(any_number)), end))
    word = [StreamRecord(0, i, (2 if i in (24, 72, 140) else 0, None, None)) for i in range(160)]
    processor = Processor(expression([pair], 0, Selection.FIRST, limits), ALPHABET)
    # Every fifth record begins a window, until one ends; the next record then begins another.
    assert windows_of(processor, word, []) == [(20, 24), (70, 72), (138, 140)]


@pytest.mark.parametrize("selection", [Selection.EVERY, Selection.LONGEST])
@pytest.mark.parametrize("limits", [Limits(most=5), Limits(within=4)])
def test_starts_that_are_too_old_are_dropped(selection: Selection, limits: Limits) -> None:
    """New starts join one group; all groups end up in another one, to which no start is added."""
    below_two = r.LetterBlock(g.Compare("<", g.Field("x"), g.GuardConstant(2)))
    pair = (r.EVERYTHING, r.then(r.then(below_two, r.star(below_two)), letter(2)))
    word = [StreamRecord(0, i, (2 if i in (3, 400, 801) else 0, None, None)) for i in range(2_000)]
    window_expression = expression([pair], 0, selection, limits)
    processor = Processor(window_expression, ALPHABET)
    expected = [(end - length, end) for end in (3, 400, 801) for length in (4, 3, 2, 1) if length <= end]
    if selection is Selection.LONGEST:
        expected = [(0, 3), (396, 400), (797, 801)]
    assert windows_of(processor, word[:1_950], range(0, 1_950, 70)) == expected
    assert processor.open_starts < 100
    assert windows_of(processor, word[1_950:], [10]) == []


@pytest.mark.check
@examples(100)
@given(cases(), CUTS, words(12), st.sampled_from((("n.b", "x"), ("x",))))
def test_each_key_has_a_separate_stream(
    case: tuple[WindowExpression, Pairs, list[StreamRecord]],
    cuts: list[int],
    word: list[StreamRecord],
    per: tuple[str, ...],
) -> None:
    keyless = replace(case[0], limits=Limits())
    expected = []
    keys = [tuple(ALPHABET.value(name, record) for name in per) for record in word]
    for key in set(keys):
        positions = [i for i, record_key in enumerate(keys) if record_key == key]
        if None not in key:
            windows = Processor(keyless, ALPHABET).process([word[i] for i in positions])
            expected += [(positions[w.last], w.first, w._replace(key=key)) for w in windows]
    by_key = Processor(replace(keyless, per=per), ALPHABET)
    bounds = [0, *sorted(min(c, len(word)) for c in cuts), len(word)]
    batches = [word[a:b] for a, b in pairwise(bounds)]
    all_windows = [w for batch in batches for w in by_key.process(batch)]
    assert all_windows == [w for *_, w in sorted(expected, key=lambda e: e[:2])]


LONG = r.sequence(
    [r.EVERYTHING, r.LetterBlock(g.Compare("<", g.GuardConstant(1), g.Field("x"))), *[r.ANY] * 70]
)


def random_records(count: int) -> list[StreamRecord]:
    rng = random.Random(7)
    return [StreamRecord(0, i, (rng.choice((0, 2)), 1.0, "")) for i in range(count)]


def test_macrostates_are_not_kept_forever() -> None:
    """Any of the last seventy records may matter: 2^70 macrostates, and a new one with every record."""
    long_expression = expression([(r.EVERYTHING, LONG)], 0, Selection.LONGEST)
    processor = Processor(long_expression, ALPHABET, cache_size=50)
    sizes = []
    for record in random_records(300):
        list(processor.process([record]))
        sizes.append(reachable_objects(processor))
    assert max(sizes[100:200]) >= max(sizes[200:]) * 0.9


def test_a_state_with_many_bits_is_encoded() -> None:
    """It has more bits than an integer in JSON."""
    first_part, second_part = random_records(200)[:120], random_records(200)[120:]
    window_expression = expression([(LONG, LONG)], 0, Selection.EVERY)
    original, restored = Processor(window_expression, ALPHABET), Processor(window_expression, ALPHABET)
    list(original.process(first_part))
    restored.restore(orjson.loads(orjson.dumps(original.state())))
    assert list(restored.process(second_part)) == list(original.process(second_part)) != []
