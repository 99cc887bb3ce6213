"""Hypothesis strategies for guards, expressions and words, and window expressions by brute force."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from hypothesis import strategies as st

from skws_schema.model import Attribute, AttributeType, Relation, Schema
from skws_windows.automata import regular as r
from skws_windows.automata.k_sla import LookbackAutomaton, automaton, trim
from skws_windows.automata.regular import Limits, Selection, WindowExpression
from skws_windows.guards import guard as g
from skws_windows.guards.alphabet import Alphabet, StreamRecord, holds
from skws_windows.window import ExpressionWindow

SCHEMA: Final = Schema(
    "readings",
    (
        Relation(
            "m",
            (
                Attribute("x", AttributeType.INTEGER),
                Attribute("y", AttributeType.NUMBER),
                Attribute("s", AttributeType.TEXT),
            ),
            search=("s",),
        ),
        Relation("n", (Attribute("x", AttributeType.INTEGER), Attribute("b", AttributeType.BOOLEAN))),
    ),
    (),
)
ALPHABET: Final = Alphabet(SCHEMA)
WORDS: Final = ("red", "green")
LIMITS: Final = (
    "", "", "", "at most 3 records", "at least 2 records", "within 2 us", "at most 5 records within 7 us",
)  # fmt: skip


def fields(names: Sequence[str], k: int) -> st.SearchStrategy[g.Field]:
    return st.builds(g.Field, st.sampled_from(names), st.integers(0, k))


def numeric(k: int) -> st.SearchStrategy[g.Term]:
    field = fields(("x", "y", "m.x", "n.x", "time"), k)
    number = st.one_of(st.integers(-1, 3), st.sampled_from((0.5, 1.5, 2.0)))
    linear = st.builds(
        lambda a, f, b, h, c: g.add_scaled(g.Sum(((a, f),)), g.Sum(((b, h),), c)),
        st.sampled_from((1, 2, -1, 0.5)),
        field,
        st.sampled_from((1, -1)),
        field,
        st.integers(-1, 1),
    )
    return st.one_of(field, field, linear, st.builds(g.GuardConstant, number))


def guard_atoms(k: int) -> st.SearchStrategy[g.Guard]:
    text = st.one_of(fields(("s",), k), st.builds(g.GuardConstant, st.sampled_from(("red", "red green", ""))))
    truth = st.one_of(fields(("b",), k), st.builds(g.GuardConstant, st.booleans()))
    equal = st.sampled_from(("=", "!="))
    return st.one_of(
        st.builds(g.Compare, st.sampled_from(g.OPERATORS), numeric(k), numeric(k)),
        st.builds(g.Compare, equal, text, text),
        st.builds(g.Compare, equal, truth, truth),
        st.builds(g.Contains, fields(("s", "m.s"), k), st.sampled_from(WORDS)),
        st.builds(g.OfRelation, st.sampled_from(("m", "n")), st.integers(0, k)),
        st.builds(g.IsNull, fields(("x", "y", "s", "b", "n.x"), k)),
        st.sampled_from((g.TOP, g.BOTTOM)),
    )


def guards(k: int) -> st.SearchStrategy[g.Guard]:
    return st.recursive(
        guard_atoms(k),
        lambda inner: st.one_of(
            st.builds(g.negation, inner),
            st.builds(g.conjunction, st.lists(inner, min_size=1, max_size=3)),
            st.builds(g.disjunction, st.lists(inner, min_size=1, max_size=3)),
        ),
        max_leaves=4,
    )


def simple_guards(k: int) -> st.SearchStrategy[g.Guard]:
    """Guards that hold about half of the time, over few values."""
    above = st.builds(
        lambda back, c: g.Compare("<", g.GuardConstant(c), g.Field("x", back)),
        st.integers(0, k),
        st.integers(0, 1),
    )
    rising = st.just(g.Compare("<", g.Field("x", k), g.Field("x")))
    return st.one_of(
        above,
        above.map(g.negation),
        *([rising] if k else []),
        st.just(g.TOP),
        st.builds(g.OfRelation, st.just("n"), st.integers(0, k)),
    )


def regulars(k: int, leaves: int = 5) -> st.SearchStrategy[r.Regular]:
    return st.recursive(
        st.one_of(st.builds(r.LetterBlock, simple_guards(k)), st.just(r.IDENTITY)),
        lambda inner: st.one_of(
            st.builds(r.Either, inner, inner), st.builds(r.Then, inner, inner), st.builds(r.Repetition, inner)
        ),
        max_leaves=leaves,
    )


@st.composite
def expression_texts(draw: st.DrawFn, conditions: Sequence[str], keys: Sequence[str]) -> str:
    """Window expressions in the user's language."""
    a, b, c = (draw(st.sampled_from(conditions)) for _ in range(3))
    form = draw(
        st.sampled_from(
            (
                f"open when {a} close when {b}",
                f"after {a} until {b}",
                f"match [{a}] .* [{b}]",
                f"match [{a}]+",
                f"match [{a}] [{b}]* [{c}]",
                f"match ([{a}] [{b}])+ | [{c}] . after .* [{b}]",
            )
        )
    )
    per = draw(st.sampled_from(keys))
    parts = (draw(st.sampled_from(("", "every", "first", "longest"))), form, draw(st.sampled_from(LIMITS)))
    return " ".join([*parts, f"per {per}" if per else ""])


@st.composite
def expression_windows(draw: st.DrawFn, conditions: Sequence[str], keys: Sequence[str]) -> ExpressionWindow:
    """The windows of ``expression_texts``, and equally often windows that hold many records."""
    a, b = (draw(st.sampled_from(conditions)) for _ in range(2))
    key = draw(st.sampled_from(keys))
    per = f" per {key}" if key else ""
    wide = (f"longest match [{a}] .* [{b}]{per}", f"every match .* [{b}] at most 7 records{per}")
    return ExpressionWindow(draw(st.one_of(st.sampled_from(wide), expression_texts(conditions, keys))))


def records() -> st.SearchStrategy[StreamRecord]:
    integer = st.one_of(st.integers(0, 2), st.none())
    number = st.one_of(st.sampled_from((0.0, 0.5, 1.0, 1.5, 2.0)), st.none())
    text = st.one_of(st.sampled_from(("red", "green red", "blue", "")), st.none())
    m = st.builds(lambda x, y, s: (0, (x, y, s)), integer, number, text)
    n = st.builds(lambda x, b: (1, (x, b)), integer, st.one_of(st.booleans(), st.none()))
    return st.builds(lambda pair: StreamRecord(pair[0], 0, pair[1]), st.one_of(m, m, n))


@st.composite
def words(draw: st.DrawFn, max_size: int = 9, min_size: int = 0) -> list[StreamRecord]:
    """Records in time order, with ties."""
    time, word = 0, []
    for record in draw(st.lists(records(), min_size=min_size, max_size=max_size)):
        time += draw(st.sampled_from((0, 1, 1, 3)))
        word.append(record._replace(time=time))
    return word


def accepted(
    automaton: LookbackAutomaton, word: Sequence[StreamRecord], alphabet: Alphabet = ALPHABET
) -> bool:
    if len(word) < automaton.k:
        return False
    states = {automaton.initial}
    for i in range(automaton.k, len(word)):
        block = word[i - automaton.k : i + 1]
        states = {
            q for p in states for guard, q in automaton.outgoing.get(p, ()) if holds(guard, block, alphabet)
        }
    return bool(states & automaton.final)


def matches(regular: r.Regular, word: Sequence[StreamRecord], k: int) -> bool:
    """Membership by Definition 3, without an automaton."""
    return len(word) >= k and (k, len(word)) in span_set(regular, word, k)


def span_set(regular: r.Regular, word: Sequence[StreamRecord], k: int) -> set[tuple[int, int]]:
    """The (i, j) such that word[i-k:j] is in the language."""
    positions = range(k, len(word) + 1)
    match regular:
        case r.Nothing():
            return set()
        case r.FixedLength():
            return {(i, i) for i in positions}
        case r.LetterBlock(guard):
            return {
                (i, i + 1) for i in positions if i < len(word) and holds(guard, word[i - k : i + 1], ALPHABET)
            }
        case r.Either(a, b):
            return span_set(a, word, k) | span_set(b, word, k)
        case r.Then(a, b):
            second = span_set(b, word, k)
            return {(i, m) for i, j in span_set(a, word, k) for h, m in second if h == j}
        case r.Repetition(inner):
            spans, step = {(i, i) for i in positions}, span_set(inner, word, k)
            while True:
                extended = spans | {(i, m) for i, j in spans for h, m in step if h == j}
                if extended == spans:
                    return spans
                spans = extended


def windows_by_definition(
    pairs: Sequence[tuple[r.Regular, r.Regular]], k: int, word: Sequence[StreamRecord]
) -> list[tuple[int, int]]:
    """Definition 7 literally, ordered by end and start."""
    windows = set()
    for before, window in pairs:
        starts = [i for i in range(k, len(word)) if matches(before, word[:i], k)]
        spans = span_set(window, word, k)
        windows |= {(i, j - 1) for i in starts for h, j in spans if h == i and j > i}
    return sorted(windows, key=lambda w: (w[1], w[0]))


def selected(
    expression: WindowExpression, windows: Sequence[tuple[int, int]], word: Sequence[StreamRecord]
) -> list[tuple[int, int]]:
    """The windows that remain after limits and selection; for ``first``, only after the limits."""
    within_limits = [w for w in windows if is_within(expression.limits, w, word)]
    if expression.selection is Selection.LONGEST:
        return [min(w for w in within_limits if w[1] == end) for end in sorted({w[1] for w in within_limits})]
    return within_limits


def is_within(limits: Limits, window: tuple[int, int], word: Sequence[StreamRecord]) -> bool:
    size, span = window[1] - window[0] + 1, word[window[1]].time - word[window[0]].time
    return (
        size >= limits.least
        and (limits.most is None or size <= limits.most)
        and (limits.within is None or span <= limits.within)
    )


def first_of(
    expression: WindowExpression,
    windows: Sequence[tuple[int, int]],
    word: Sequence[StreamRecord],
    alphabet: Alphabet = ALPHABET,
) -> list[tuple[int, int]]:
    """The windows that ``first`` selects, record by record: one at a time, which ends as soon as it can."""
    selected_windows: list[tuple[int, int]] = []
    open_start: int | None = None
    for i in range(expression.k, len(word)):
        if open_start is not None and not can_end(expression, open_start, i, word, alphabet):
            open_start = None
        if open_start is None and can_end(expression, i, i, word, alphabet):
            open_start = i
        if open_start is not None and (open_start, i) in windows:
            selected_windows.append((open_start, i))
            open_start = None
    return selected_windows


def can_end(
    expression: WindowExpression,
    first: int,
    now: int,
    word: Sequence[StreamRecord],
    alphabet: Alphabet = ALPHABET,
) -> bool:
    """True if a window from ``first`` can end at ``now`` or later, by the graphs of the automata."""
    limits = expression.limits
    size, span = now - first + 1, word[now].time - word[first].time
    if (limits.most is not None and size > limits.most) or (
        limits.within is not None and span > limits.within
    ):
        return False
    return reaches_state(
        expression, first, word[: now + 1], alphabet, lambda a: range(a.states) if a.final else ()
    )


def can_go_on(
    expression: WindowExpression, first: int, word: Sequence[StreamRecord], alphabet: Alphabet = ALPHABET
) -> bool:
    """True if a window from ``first`` can end after a word, apart from limits."""
    return reaches_state(expression, first, word, alphabet, lambda a: {p for p, _, _ in a.transitions})


def reaches_state(
    expression: WindowExpression,
    first: int,
    word: Sequence[StreamRecord],
    alphabet: Alphabet,
    target_states: Callable[[LookbackAutomaton], Iterable[int]],
) -> bool:
    """True if a window that begins at ``first`` has led its automaton to a target state."""
    for pair in expression.pairs:
        if accepted(pair.before, word[:first], alphabet):
            # Every state of a trimmed automaton except the initial one leads to the end.
            window = trim(pair.window)
            live = automaton(
                expression.k, window.states, window.initial, target_states(window), window.transitions
            )
            if accepted(live, word[first - expression.k :], alphabet):
                return True
    return False
