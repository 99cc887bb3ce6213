"""Patterns over window expressions: every match in a window once, at the end of its first window."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Final

import orjson
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from skws.data.batch import Record, RecordBatch
from skws.queries.patterns.result import PatternResult
from skws.queries.patterns.text import PatternQuery
from skws.queries.windowed.pattern import WindowedPattern
from skws.queries.windowed.plan import WindowPlan
from skws.queries.windowed.stream_windows import StreamWindows
from skws_patterns.language.compile import compile_pattern
from skws_patterns.language.parse import Pattern, parse_pattern
from skws_schema.errors import PatternError
from skws_schema.model import Row, Schema
from skws_windows.guards.alphabet import StreamRecord
from skws_windows.window import ExpressionWindow
from tests.oracles.windowed import windows_of
from tests.patterns import pattern_matches as written
from tests.patterns.pattern_matches import Match, contains
from tests.strategies import examples
from tests.window_streams import expression_texts

KEYED: Final = replace(written.SCHEMA.relations[1], key=("x",))
SCHEMA: Final = Schema("patterns", (written.SCHEMA.relations[0], KEYED, written.SCHEMA.relations[2]), ())
CONDITIONS: Final = ("x = 0", "A", "B", "not C", "A or B", "x is not null", "x = x[-1]", "not A[-1]")
KEYS: Final = ("", "", "x", "y, x", "A.x", "B.y", "x, A.y")
SIMPLE: Final = (
    "A a ; B b", "A a AND B b AND C c where a.x = b.x", "A a ; A b", "A a OR B b", "A a +",
    "B b ; B c ; C d where b.y = c.y", "B b ; (A a OR C c)",
)  # fmt: skip


def streams() -> st.SearchStrategy[list[Record]]:
    value = st.sampled_from((0, 0, 0, 1, None))
    step = st.tuples(
        st.integers(0, 2), st.sampled_from((0, 0, 1, 3)), st.tuples(value, value), st.integers(0, 7)
    )
    return st.lists(step, min_size=8, max_size=13).map(
        lambda steps: [
            Record(relation, time, row, chance == 0)
            for (relation, _, row, chance), time in zip(steps, accumulate(s[1] for s in steps), strict=True)
        ]
    )


@st.composite
def wide(draw: st.DrawFn) -> str:
    """Windows over much of the stream: most of the others hold a record or two."""
    a, b = (draw(st.sampled_from(CONDITIONS)) for _ in range(2))
    form = draw(st.sampled_from((f"match [{a}] .* [{b}]", f"open when {a} close when C and {b}")))
    per = draw(st.sampled_from(KEYS))
    return f"{draw(st.sampled_from(('every', 'longest', 'first')))} {form} {f'per {per}' if per else ''}"


def patterns() -> st.SearchStrategy[Pattern]:
    return st.one_of(
        st.sampled_from(SIMPLE).map(lambda text: parse_pattern(text, SCHEMA)), written.patterns(3)
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[PatternQuery, Pattern, ExpressionWindow, list[Record]]:
    pattern = draw(patterns())
    try:
        compiled = compile_pattern(pattern, SCHEMA, contains)
    except PatternError:
        assume(False)
        raise
    query = PatternQuery("P", compiled.pcea, None, compiled, {}, compiled.root)
    window = ExpressionWindow(draw(st.one_of(wide(), expression_texts(CONDITIONS, KEYS))))
    return query, pattern, window, draw(streams())


def by_definition(
    pattern: Pattern, window: ExpressionWindow, records: list[Record], schema: Schema = SCHEMA
) -> dict[Match, int]:
    """All matches that a window holds, with the end of the first that does."""
    request = WindowPlan.of_text(schema, window.text)
    expression, alphabet = request.compiled(), request.alphabet
    word = [StreamRecord(r.relation, r.time, r.row) for r in records if not r.delete]
    stream = [(letter.relation, letter.row) for letter in word]
    found = {match for end in range(len(word)) for match in written.matches(pattern, stream[: end + 1], 0)}
    keys = [tuple(alphabet.value(name, letter) for name in expression.per) for letter in word]
    lacking = [
        [alphabet.fields[name].columns[letter.relation] < 0 for name in expression.per] for letter in word
    ]
    told: dict[Match, int] = {}
    for key in set(keys):
        own = [place for place, other in enumerate(keys) if other == key and None not in key]
        for first, last in windows_of(expression, [word[place] for place in own], alphabet):
            inside = {
                place
                for place in range(own[first], own[last] + 1)
                if all(
                    lacks or value == wanted
                    for lacks, value, wanted in zip(lacking[place], keys[place], key, strict=True)
                )
            }
            for match in found:
                if {place for place, _ in match} <= inside:
                    told[match] = min(told.get(match, own[last]), own[last])
    return told


def match_of(result: PatternResult) -> Match:
    return frozenset((member.position, label) for member in result.tuples for label in member.labels)


class Windowed:
    """A pattern, and the windows that it is evaluated over."""

    def __init__(self, query: PatternQuery, window: ExpressionWindow) -> None:
        self.query, self.window = query, window
        self.windows = StreamWindows(SCHEMA, window)
        self.pattern = WindowedPattern(query, SCHEMA, window, self.windows)

    def ended(self, records: list[Record]) -> list[tuple[int, int, str, PatternResult]]:
        return self.pattern.ended(self.windows.feed(RecordBatch.of(records)))

    def fail(self) -> None:
        """Goes on from what is kept, as after a failure."""
        windows, pattern = orjson.loads(orjson.dumps([self.windows.tracker.state(), self.pattern.held()]))
        self.windows = StreamWindows(SCHEMA, self.window)
        self.pattern = WindowedPattern(self.query, SCHEMA, self.window, self.windows)
        self.windows.tracker.restore(windows)
        self.pattern.hold(pattern)


@given(cases())
@examples(60)
def test_every_match_of_every_window_is_told_once_at_its_first_end(
    case: tuple[PatternQuery, Pattern, ExpressionWindow, list[Record]],
) -> None:
    query, pattern, window, records = case
    evaluated = Windowed(query, window)
    found = [each for record in records for each in evaluated.ended([record])]
    expected = by_definition(pattern, window, records)
    assert {match_of(result): end for end, *_, result in found} == expected
    assert len(found) == len(expected)
    assert len({result.id for *_, result in found}) == len(expected)
    times = [record.time / 1e6 for record in records if not record.delete]
    for end, last, _, result in found:
        assert (result.start, result.end, result.tuples[-1].position) == (times[last], times[end], last)


@pytest.mark.parametrize(
    ("text", "window", "read"),
    [
        (
            "A a AND B b AND C c",
            "match [A] [x = 1]* [x = 0] per A.x",
            [(0, (0, 1)), (1, (1, 0)), (0, (1, 1)), (2, (1, 1)), (0, (0, 0)), (1, (0, 1))],
        ),
        (
            "A a AND B b AND C c where a.x = b.x",
            "match [A] [B]* [x = 0] per A.x",
            [(0, (1, 0)), (1, (0, 0)), (0, (0, 0)), (2, (0, 0)), (0, (1, 0)), (1, (0, 0)), (0, (0, 0))],
        ),
    ],
)
def test_a_match_waits_while_the_windows_of_other_keys_move_on(
    text: str, window: str, read: list[tuple[int, Row]]
) -> None:
    """Its first tuple is before all open windows, and no record of its own key has told so; it is kept."""
    pattern = parse_pattern(text, SCHEMA)
    compiled = compile_pattern(pattern, SCHEMA, contains)
    query = PatternQuery("P", compiled.pcea, None, compiled, {}, compiled.root)
    expression = ExpressionWindow(window)
    more = [(0, (0, 0)), (1, (1, 0)), (2, (0, 1)), (0, (1, 0)), (0, (1, 0))]
    records = [Record(relation, time, row, False) for time, (relation, row) in enumerate([*read, *more])]
    evaluated = Windowed(query, expression)
    found = []
    for record in records:
        found += evaluated.ended([record])
        evaluated.fail()
    assert {match_of(result): end for end, *_, result in found} == by_definition(pattern, expression, records)


@given(cases(), st.lists(st.integers(0, 40), max_size=3))
@examples(25)
def test_neither_batches_nor_failures_matter_to_patterns(
    case: tuple[PatternQuery, Pattern, ExpressionWindow, list[Record]], cuts: list[int]
) -> None:
    query, _, window, stream = case
    long = [r._replace(time=r.time + i // len(stream) * 20) for i, r in enumerate(stream * 3)]
    single, cut, whole = (Windowed(query, window) for _ in range(3))
    expected = [each for record in long for each in single.ended([record])]
    places = [0, *sorted(min(c, len(long)) for c in cuts), len(long)]
    found = []
    for a, b in pairwise(places):
        found += cut.ended(long[a:b])
        cut.fail()
    assert found == expected
    assert whole.ended(long) == expected
    assert single.pattern.live_tuples == whole.pattern.live_tuples == cut.pattern.live_tuples
