"""Window expressions, and S-MSO formulas."""

from __future__ import annotations

from random import Random
from typing import Final

from hypothesis import strategies as st

from skws_schema.errors import UsageError
from skws_windows.automata import regular as r
from skws_windows.automata.regular import Selection
from skws_windows.automata.smso import guards_of
from skws_windows.guards import guard as g
from skws_windows.guards.alphabet import StreamRecord
from skws_windows.language.window_grammar import parse, tree
from skws_windows.language.window_parser import (
    formula_expression,
    parse_expression,
    parse_formula,
    parse_regular,
)
from skws_windows.processor.stream_processor import Processor
from tests.fuzz.fuzzing import ODD_TEXTS, Language, check_rejection, words_and_signs
from tests.oracles.formulas import satisfied
from tests.window_streams import ALPHABET, first_of, selected, windows_by_definition

_FIELDS: Final = ("x", "y", "m.x", "n.x", "x[-1]", "y[-1]", "`x`", "x[-2]")
_FIELD: Final = st.sampled_from(_FIELDS)
_NUMBER: Final = st.sampled_from(("0", "1", "2", "1.5", "-1", "1e0"))
_COMPARISON: Final = st.sampled_from(("<", "<=", ">", ">=", "=", "!=", "<>", "=="))


def joined_by_blanks(*parts: st.SearchStrategy[str] | str) -> st.SearchStrategy[str]:
    return st.tuples(*(st.just(p) if isinstance(p, str) else p for p in parts)).map(" ".join)


_ATOM: Final = st.one_of(
    joined_by_blanks(_FIELD, _COMPARISON, _NUMBER),
    joined_by_blanks(_NUMBER, _COMPARISON, _FIELD),
    joined_by_blanks(_FIELD, _COMPARISON, _FIELD),
    joined_by_blanks(_NUMBER, "*", _FIELD, "+ 1", _COMPARISON, _FIELD, "- y / 2"),
    joined_by_blanks(_FIELD, st.sampled_from(("is null", "is not null", "in (0, 1)", "in (1, 2, 2.5)"))),
    st.sampled_from(("s = 'red'", 's != "blue"', "s:red", "m.s:'red'", "'red'", "s contains 'red'", "b")),
    st.sampled_from(("b = true", "m", "n", "m[-1]", "n[-1]", "true", "false", "s in ('red', 'green')")),
    st.sampled_from(("time - time[-1] > 1 us", "time >= '1970-01-01T00:00:00Z'", "time < time[-1] + 1 s")),
)


def combined_conditions(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        joined_by_blanks("not", inner),
        joined_by_blanks(inner, st.sampled_from(("and", "or", "AND")), inner),
        inner.map("({})".format),
    )


_CONDITION: Final = st.recursive(_ATOM, combined_conditions, max_leaves=3)
_LETTER: Final = st.one_of(_CONDITION.map("[{}]".format), st.just("."))
_REGULAR: Final = st.recursive(
    _LETTER,
    lambda inner: st.one_of(
        joined_by_blanks(inner, inner),
        joined_by_blanks("(", inner, "|", inner, ")"),
        st.tuples(inner, st.sampled_from(("*", "+", "?", "{2}", "{1,2}", "{0,}"))).map(
            lambda pair: f"({pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=3,
)
_FORM: Final = st.one_of(
    joined_by_blanks("open when", _CONDITION, "close when", _CONDITION),
    joined_by_blanks("after", _CONDITION, "until", _CONDITION),
    joined_by_blanks("match", _REGULAR),
    joined_by_blanks("match", _REGULAR, "after", _REGULAR),
)
_EXPRESSION: Final = joined_by_blanks(
    st.sampled_from(("", "", "every", "first", "longest", "FIRST")),
    _FORM,
    st.sampled_from(("", "", "at most 3 records", "at least 2 records", "within 2 us", "within 1h 30 m")),
    st.sampled_from(("", "", "", "per x", "per s, x")),
)


# A caret, or an error of the whole text.
_ERRORS: Final = r"\n  .*\n *\^\Z|too large|nested too deeply|characters; this one has|no searched text"


def check_expression(text: str, random: Random) -> bool:
    """Windows follow the definition; an expression is shown as a text that has the same windows."""
    try:
        expression = parse_expression(text, ALPHABET)
    except UsageError as error:
        return check_rejection(str(error), _ERRORS)
    word = _word(random, 6)
    windows = [(w.first, w.last) for w in Processor(expression, ALPHABET).process(word)]
    regulars = _pair(text)
    if expression.per or expression.k > 2:
        return True
    all_windows = windows_by_definition([regulars], expression.k, word)
    # Times are shown as microseconds, which is not the syntax of expressions.
    if not any("time" in str(part) for part in regulars):
        before, window = (parse_regular(str(part), ALPHABET) for part in regulars)
        assert windows_by_definition([(before, window)], expression.k, word) == all_windows, (text, word)
    candidates = selected(expression, all_windows, word)
    expected = (
        candidates if expression.selection is not Selection.FIRST else first_of(expression, candidates, word)
    )
    assert windows == expected, (text, word)
    return True


def _pair(text: str) -> tuple[r.Regular, r.Regular]:
    """The context before a window, and the window, as the documentation defines the forms of expressions."""
    parts = parse(text, "window").children
    form = next(tree(part) for part in parts if tree(part).data in ("open_close", "after_until", "match"))
    texts = [text[tree(part).meta.start_pos : tree(part).meta.end_pos] for part in form.children]
    if form.data == "match":
        window, *before = (parse_regular(part, ALPHABET) for part in texts)
        return before[0] if before else r.EVERYTHING, window
    first, last = map(_guard, texts)
    until = r.Then(r.Repetition(r.LetterBlock(g.negation(last))), r.LetterBlock(last))
    if form.data == "open_close":
        return r.EVERYTHING, r.Then(r.LetterBlock(first), until)
    return r.Then(r.EVERYTHING, r.LetterBlock(first)), until


def _guard(text: str) -> g.Guard:
    letter = parse_regular(f"[{text}]", ALPHABET)
    assert isinstance(letter, r.LetterBlock)
    return letter.guard


def _word(random: Random, longest: int) -> list[StreamRecord]:
    """Records in time order, with ties."""
    time, word = 0, []
    for _ in range(random.randint(longest - 3, longest)):
        time += random.choice([0, 1, 1, 3])
        x, y = random.choice([0, 1, 2, None]), random.choice([0.0, 0.5, 1.0, 2.0, None])
        row = (x, y, random.choice(["red", "green red", "blue", "", None]))
        word.append(
            StreamRecord(0, time, row)
            if random.random() < 0.7
            else StreamRecord(1, time, (x, random.choice([True, False, None])))
        )
    return word


class _Formula:
    """Writes a formula whose free variables are b and e."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def _one_of(self, *choices: str) -> str:
        return self._draw(st.sampled_from(choices))

    def text(self, depth: int, records: tuple[str, ...] = ("b", "e"), sets: tuple[str, ...] = ()) -> str:
        kinds = ["condition", "condition", "order", *(["member"] if sets else [])]
        kinds += ["not", "joined", "joined", "record", "set"] if depth else []
        match self._one_of(*kinds):
            case "condition":
                guard = self._one_of("x > 0", "x > x[-1]", "n", "true", "y < 1 or m")
                return f"[{guard}]({self._one_of(*records)})"
            case "order":
                chain = self._one_of("{} < {}", "{} <= {}", "{} = {}", "{} != {}", "{} > {}", "{} < {} <= {}")
                return chain.format(*(self._one_of(*records) for _ in range(3)))
            case "member":
                return f"{self._one_of(*sets)}({self._one_of(*records)})"
            case "not":
                return f"not ({self.text(depth - 1, records, sets)})"
            case "joined":
                parts = [self.text(depth - 1, records, sets) for _ in range(2)]
                return f"({self._one_of(' and ', ' or ', ' -> ', ' AND ').join(parts)})"
            case "record":
                body = self.text(depth - 1, (*records, "y", "y"), sets)
                return f"({self._one_of('exists', 'forall')} y: {body})"
        body = self.text(depth - 1, records, (*sets, "S"))
        return f"({self._one_of('exists', 'forall', 'EXISTS')} S: {body})"


@st.composite
def _formulas(draw: st.DrawFn) -> str:
    return _Formula(draw).text(draw(st.integers(1, 3)))


def check_formula(text: str, random: Random) -> bool:
    """Windows are those of the formula by brute force."""
    try:
        formula = parse_formula(text, ALPHABET)
        expression = formula_expression(text, ALPHABET)
    except UsageError as error:
        return check_rejection(str(error), _ERRORS)
    k = max(map(g.lookback, guards_of(formula)), default=0)
    if text.lower().count("exists") + text.lower().count("forall") > 3 or k > 1:
        return True
    word = _word(random, 5)
    assert [(w.first, w.last) for w in Processor(expression, ALPHABET).process(word)] == [
        (first, last)
        for last in range(k, len(word))
        for first in range(k, last + 1)
        if satisfied(formula, word[: last + 1], {"b": first, "e": last}, k, ALPHABET)
    ], (text, word)
    return True


WINDOWS: Final = Language("windows", _EXPRESSION, check_expression, words_and_signs, ODD_TEXTS)
FORMULAS: Final = Language("formulas", _formulas(), check_formula, words_and_signs, ODD_TEXTS)
