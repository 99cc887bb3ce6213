"""Window expressions from texts: in the language, in the formal form, and as S-MSO formulas.

S-MSO (window paper, Definitions 4 and 6): ``b`` and ``e`` stand for a window's first and last record. Other
variables are bound by quantifiers, which range over the records up to ``e``: a name that begins with a
capital letter is a set of records, any other a record.

    [temp > 38](b) and [temp < 38](e) and forall x: b < x and x < e -> not [temp < 38](x)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from skws_schema.budgets import OverBudgetError
from skws_schema.errors import UsageError, nearest
from skws_windows.automata import regular as r
from skws_windows.automata import smso as m
from skws_windows.automata.regular import NO_LIMITS, Limits, Selection, WindowExpression, expression
from skws_windows.automata.smso import MOST_ENTRIES, MOST_LETTERS, window_expression
from skws_windows.guards import guard as g
from skws_windows.guards.alphabet import Alphabet
from skws_windows.guards.satisfiability import Satisfiability, TooManyCellsError
from skws_windows.language.conditions import ConditionReader
from skws_windows.language.window_grammar import fault, integer, parse, position, shallow, tree
from skws_windows.language.window_grammar import tree as as_tree

if TYPE_CHECKING:
    from lark import Token, Tree

    from skws_windows.language.window_grammar import Node

MAX_REPEATS: Final = 200
MAX_RECORDS: Final = 10**18
MAX_LETTERS: Final = 500
"""The most letters of an expression; its automaton may have the square of this number of transitions."""


def parse_expression(text: str, alphabet: Alphabet) -> WindowExpression:
    """A window in the language, such as ``open when temp > 90 close when temp < 70``. Raises UsageError."""
    with shallow():
        return _WindowReader(alphabet, text).window(parse(text, "window"))


def former_spellings(text: str, start: str = "window") -> tuple[str, ...]:
    """A note for each part of a text in a former spelling, which is still accepted. Raises UsageError."""
    notes = []
    for kind in ("formerly_contains", "formerly_contains_anywhere"):
        for node in parse(text, start).find_data(kind):
            spelling = ":".join(_text_of(text, part) for part in node.children)
            notes.append(f"{_text_of(text, node)} is now written {spelling}; later versions accept only that")
    return tuple(dict.fromkeys(notes))


def _text_of(text: str, node: Tree[Token] | Token) -> str:
    span: Any = getattr(node, "meta", node)
    return text[span.start_pos : span.end_pos]


def parse_regular(text: str, alphabet: Alphabet) -> r.Regular:
    """A regular expression such as ``[x > 3]* [x > x[-1]]``. Raises UsageError with a caret."""
    with shallow():
        return _WindowReader(alphabet, text).regular(parse(text, "regular"))


def parse_pairs(
    pairs: Sequence[tuple[str, str]],
    alphabet: Alphabet,
    *,
    lookback: int = 0,
    selection: Selection = Selection.EVERY,
    per: tuple[str, ...] = (),
) -> WindowExpression:
    """A window expression of pairs (R, R'); ``lookback`` may exceed that of the guards. Raises UsageError."""
    regulars = [
        (parse_regular(before, alphabet), parse_regular(window, alphabet)) for before, window in pairs
    ]
    return expression(regulars, lookback, selection, NO_LIMITS, per)


class _WindowReader:
    """Reads one text."""

    def __init__(self, alphabet: Alphabet, text: str) -> None:
        self._conditions = ConditionReader(alphabet, text)
        self._text = text
        self._letters = 0

    def window(self, tree: Tree[Token]) -> WindowExpression:
        parts = {str(part.data): part for part in map(as_tree, tree.children)}
        forms = {"open_close": self._open_close, "after_until": self._after_until, "match": self._match}
        form = next(kind for kind in forms if kind in parts)
        # Users expect one window at a time from "open when", and all windows from a regular expression.
        default = Selection.EVERY if form == "match" else Selection.FIRST
        selection_node = parts.get("selection")
        selection = default if selection_node is None else Selection(str(selection_node.children[0]).lower())
        per = parts.get("per")
        fields = () if per is None else tuple(self._conditions.known_field(as_tree(n)) for n in per.children)
        limits = self._limits(tree.children)
        return expression([forms[form](parts[form])], None, selection, limits, fields)

    def regular(self, tree: Tree[Token]) -> r.Regular:  # noqa: PLR0911 - one case each
        match str(tree.data):
            case "either":
                return _union([self.regular(as_tree(part)) for part in tree.children])
            case "sequence":
                return r.sequence([self.regular(as_tree(part)) for part in tree.children])
            case "letter":
                return self._letter(self._conditions.guard(as_tree(tree.children[0])), tree)
            case "any":
                return self._letter(g.TOP, tree)
            case "identity":
                return r.IDENTITY
            case "star":
                return r.star(self.regular(as_tree(tree.children[0])))
            case "plus":
                return self._repetition(tree, 1, None)
            case "optional":
                return self._repetition(tree, 0, 1)
            case "times":
                count = integer(tree.children[1], MAX_REPEATS)
                return self._repetition(tree, count, count)
        least, *most = (integer(token, MAX_REPEATS) for token in tree.children[1:])
        return self._repetition(tree, least, most[0] if most else None)

    def _repetition(self, tree: Tree[Token], least: int, most: int | None) -> r.Regular:
        if max(least, most or 0) > MAX_REPEATS:
            raise self._fault(
                f"more than {MAX_REPEATS} repetitions; use a limit such as 'at most N records'", tree
            )
        if most is not None and most < least:
            raise self._fault(f"expected at least {least} as the second number", tree)
        letters_before = self._letters
        inner = self.regular(as_tree(tree.children[0]))
        copies = (
            least + 1 if most is None else max(most, 1)
        )  # under a star, one repetition more stands for any number
        self._count((self._letters - letters_before) * (copies - 1), tree)
        return r.repeat(inner, least, most)

    def _letter(self, guard: g.Guard, tree: Tree[Token]) -> r.Regular:
        self._count(1, tree)
        return r.LetterBlock(guard)

    def _count(self, count: int, tree: Tree[Token]) -> None:
        self._letters += count
        if self._letters > MAX_LETTERS:
            raise self._fault(f"an expression of more than {MAX_LETTERS:,} letters", tree)

    def _open_close(self, tree: Tree[Token]) -> tuple[r.Regular, r.Regular]:
        """Windows from a record that opens them to the next record that closes them."""
        opening, closing = (self._conditions.guard(as_tree(part)) for part in tree.children)
        return r.EVERYTHING, r.then(r.LetterBlock(opening), _until(closing))

    def _after_until(self, tree: Tree[Token]) -> tuple[r.Regular, r.Regular]:
        """Windows from the record after one with the first condition to the next with the second."""
        first, last = (self._conditions.guard(as_tree(part)) for part in tree.children)
        return r.then(r.EVERYTHING, r.LetterBlock(first)), _until(last)

    def _match(self, tree: Tree[Token]) -> tuple[r.Regular, r.Regular]:
        window, *prefix = (self.regular(as_tree(part)) for part in tree.children)
        return prefix[0] if prefix else r.EVERYTHING, window

    def _limits(self, parts: Sequence[Tree[Token] | Token]) -> Limits:
        least, most, within = 1, None, None
        kinds: set[str] = set()
        for part in map(as_tree, parts):
            value = part.children[0] if part.children else None
            if part.data in kinds & {"at_most", "at_least", "within"}:
                raise self._fault("a limit of this kind is given twice", part)
            kinds.add(str(part.data))
            if part.data == "at_most":
                most = self._positive(value)
            elif part.data == "at_least":
                least = self._positive(value)
            elif part.data == "within":
                within = self._conditions.duration(as_tree(value))
            if most is not None and most < least:
                raise self._fault(f"no window has at least {least:,} and at most {most:,} records", part)
        return Limits(least, most, within)

    def _positive(self, token: object) -> int:
        number = integer(token, MAX_RECORDS)
        if not 1 <= number <= MAX_RECORDS:
            position = getattr(token, "start_pos", None) or 0
            raise fault("expected a number of records from 1 to 10^18", self._text, position)
        return number

    def _fault(self, message: str, tree: Tree[Token]) -> Exception:
        return fault(message, self._text, tree.meta.start_pos)


def _until(last: g.Guard) -> r.Regular:
    return r.then(r.star(r.LetterBlock(g.negation(last))), r.LetterBlock(last))


def _union(parts: list[r.Regular]) -> r.Regular:
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return r.either(_union(parts[:middle]), _union(parts[middle:]))


_BOUNDS: Final = frozenset({m.BEGIN, m.END})


def parse_formula(text: str, alphabet: Alphabet) -> m.Formula:
    """The formula of a text, with no free variables but b and e. Raises UsageError with a caret."""
    with shallow():
        return _FormulaReader(alphabet, text).formula(parse(text, "formula"), _BOUNDS)


def formula_expression(
    text: str,
    alphabet: Alphabet,
    *,
    lookback: int = 0,
    selection: Selection = Selection.EVERY,
    per: tuple[str, ...] = (),
) -> WindowExpression:
    """The windows that a formula defines; ``lookback`` may exceed that of its guards (Lemma 5).

    Raises UsageError for a formula that cannot be read, or is too large to be compiled.
    """
    formula = parse_formula(text, alphabet)
    guards = m.guards_of(formula)
    k = max([lookback, *map(g.lookback, guards)])
    try:
        with shallow():
            expression = window_expression(formula, k, Satisfiability(alphabet))
    except TooManyCellsError:
        raise UsageError(
            f"the formula is too large: its {len(guards)} conditions have more than "
            f"{MOST_LETTERS} combinations, or take too long to check; use fewer conditions"
        ) from None
    except OverBudgetError:
        raise UsageError(
            f"the formula is too large: its automata need more than {MOST_ENTRIES:,} steps; each quantifier "
            "can make them exponentially larger, so use fewer quantifiers, or nest them less"
        ) from None
    return WindowExpression(expression.pairs, selection, per=per)


class _FormulaReader:
    """Reads one text. ``scope`` has the variables that are bound at a part of it."""

    def __init__(self, alphabet: Alphabet, text: str) -> None:
        self._conditions = ConditionReader(alphabet, text)
        self._text = text

    def formula(self, node: Node, scope: frozenset[str]) -> m.Formula:  # noqa: PLR0911 - one case each
        parts = tree(node).children
        match str(tree(node).data):
            case "implication":
                return m.implies(self.formula(parts[0], scope), self.formula(parts[1], scope))
            case "some_formula":
                return m.any_of(self.formula(part, scope) for part in parts)
            case "every_formula":
                return m.all_of(self.formula(part, scope) for part in parts)
            case "no_formula":
                return m.Negation(self.formula(parts[0], scope))
            case "satisfies":
                return m.Satisfies(self._conditions.guard(tree(parts[0])), self._position(parts[1], scope))
            case "member":
                return m.Member(self._set(parts[0], scope), self._position(parts[1], scope))
            case "ordered":
                return self._order(tree(node), scope)
        return self._quantification(tree(node), scope)

    def _quantification(self, node: Tree[Token], scope: frozenset[str]) -> m.Formula:
        quantifier, *names, body = node.children
        for name in names:
            if str(name) in _BOUNDS:
                raise self._fault(f"{name} is a record of the window; give the variable another name", name)
        inner = self.formula(body, scope | {str(name) for name in names})
        every = str(quantifier).lower() == "forall"

        def bound(formula: m.Formula, name: str) -> m.Formula:
            return m.SomeSet(name, formula) if _is_set(name) else m.SomePosition(name, formula)

        bound_formula = reduce(bound, map(str, reversed(names)), m.Negation(inner) if every else inner)
        return m.Negation(bound_formula) if every else bound_formula

    def _order(self, node: Tree[Token], scope: frozenset[str]) -> m.Formula:
        """``b <= x < e``: each name compared with the next."""
        names = [self._position(name, scope) for name in node.children[::2]]
        operators = map(str, node.children[1::2])
        return m.all_of(map(_comparison, operators, names, names[1:]))

    def _position(self, token: Node, scope: frozenset[str]) -> str:
        if _is_set(str(token)):
            raise self._fault(f"expected a record, found the set {token}", token)
        return self._bound_name(token, scope)

    def _set(self, token: Node, scope: frozenset[str]) -> str:
        if not _is_set(str(token)):
            message = f"expected a set, found the record {token}; names of sets begin with a capital letter"
            raise self._fault(message, token)
        return self._bound_name(token, scope)

    def _bound_name(self, token: Node, scope: frozenset[str]) -> str:
        name = str(token)
        if name not in scope:
            candidates = [other for other in scope - _BOUNDS if _is_set(other) == _is_set(name)]
            hint = nearest(name, candidates) or f"; bind it by 'exists {name}:' or 'forall {name}:'"
            raise self._fault(f"no variable {name!r}{hint}", token)
        return name

    def _fault(self, message: str, node: Node) -> UsageError:
        return fault(message, self._text, position(node))


def _is_set(name: str) -> bool:
    return name[0].isupper()


def _comparison(operator: str, x: str, y: str) -> m.Formula:
    """Two records by their order in the stream."""
    match operator:
        case "<":
            return m.Precedes(x, y)
        case ">":
            return m.Precedes(y, x)
        case "<=":
            return m.at_most(x, y)
        case ">=":
            return m.at_most(y, x)
    equal = m.Conjunction(m.at_most(x, y), m.at_most(y, x))
    return equal if operator in ("=", "==") else m.Negation(equal)
