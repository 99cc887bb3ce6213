"""S-MSO formulas as text (window paper, Definitions 4 and 6), and the window expressions they define.

``b`` and ``e`` stand for a window's first and last record. Other variables are
bound by quantifiers, which range over the records up to ``e``: a name that
begins with a capital letter is a set of records, any other a record.

    [temp > 38](b) and [temp < 38](e) and forall x: b < x and x < e -> not [temp < 38](x)
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final

from skws_schema.errors import UsageError, nearest
from skws_schema.memory import OverBudgetError
from skws_windows.automata import smso as m
from skws_windows.automata.smso import MOST_ENTRIES, MOST_LETTERS, window_expression
from skws_windows.guards import guard as g
from skws_windows.guards.alphabet import Alphabet
from skws_windows.guards.satisfiability import Satisfiability, TooManyCellsError
from skws_windows.language.conditions import Conditions
from skws_windows.language.expression import Selection, WindowExpression
from skws_windows.language.grammar import fault, parse, position, shallow, tree

if TYPE_CHECKING:
    from lark import Token, Tree

    from skws_windows.language.grammar import Node

_BOUNDS: Final = frozenset({m.BEGIN, m.END})


def parse_formula(text: str, alphabet: Alphabet) -> m.Formula:
    """The formula of a text, with no free variables but b and e. Raises UsageError with a caret."""
    with shallow():
        return _Reader(alphabet, text).formula(parse(text, "formula"), _BOUNDS)


def formula_expression(
    text: str,
    alphabet: Alphabet,
    *,
    lookback: int = 0,
    selection: Selection = Selection.EVERY,
    per: tuple[str, ...] = (),
) -> WindowExpression:
    """The windows that a formula defines; ``lookback`` may exceed what its guards need (Lemma 5).

    Raises UsageError for a formula that cannot be read, or is too large to be compiled.
    """
    formula = parse_formula(text, alphabet)
    guards = m.guards_of(formula)
    k = max([lookback, *map(g.lookback, guards)])
    try:
        with shallow():
            found = window_expression(formula, k, Satisfiability(alphabet))
    except TooManyCellsError:
        raise UsageError(
            f"the formula is too large: its {len(guards)} conditions can be combined in more than "
            f"{MOST_LETTERS} ways, or take too long to check; use fewer conditions"
        ) from None
    except OverBudgetError:
        raise UsageError(
            f"the formula is too large: its automata need more than {MOST_ENTRIES:,} steps; each quantifier "
            "can make them exponentially larger, so use fewer quantifiers, or nest them less"
        ) from None
    return WindowExpression(found.pairs, selection, per=per)


class _Reader:
    """Reads one text. ``scope`` has the variables that are bound where a part of it stands."""

    def __init__(self, alphabet: Alphabet, text: str) -> None:
        self._conditions = Conditions(alphabet, text)
        self._text = text

    def formula(self, node: Node, scope: frozenset[str]) -> m.Formula:  # noqa: PLR0911 - a case each
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
                return self._ordered(tree(node), scope)
        return self._quantified(tree(node), scope)

    def _quantified(self, node: Tree[Token], scope: frozenset[str]) -> m.Formula:
        quantifier, *names, body = node.children
        for name in names:
            if str(name) in _BOUNDS:
                raise self._fault(f"{name} is a record of the window; give the variable another name", name)
        inner = self.formula(body, scope | {str(name) for name in names})
        every = str(quantifier).lower() == "forall"

        def bound(formula: m.Formula, name: str) -> m.Formula:
            return m.SomeSet(name, formula) if _is_set(name) else m.SomePosition(name, formula)

        found = reduce(bound, map(str, reversed(names)), m.Negation(inner) if every else inner)
        return m.Negation(found) if every else found

    def _ordered(self, node: Tree[Token], scope: frozenset[str]) -> m.Formula:
        """``b <= x < e``: each name compared with the next."""
        names = [self._position(name, scope) for name in node.children[::2]]
        operators = map(str, node.children[1::2])
        return m.all_of(map(_compared, operators, names, names[1:]))

    def _position(self, token: Node, scope: frozenset[str]) -> str:
        if _is_set(str(token)):
            raise self._fault(f"expected a record, found the set {token}", token)
        return self._known(token, scope)

    def _set(self, token: Node, scope: frozenset[str]) -> str:
        if not _is_set(str(token)):
            message = f"expected a set, found the record {token}; names of sets begin with a capital letter"
            raise self._fault(message, token)
        return self._known(token, scope)

    def _known(self, token: Node, scope: frozenset[str]) -> str:
        name = str(token)
        if name not in scope:
            alike = [other for other in scope - _BOUNDS if _is_set(other) == _is_set(name)]
            hint = nearest(name, alike) or f"; bind it by 'exists {name}:' or 'forall {name}:'"
            raise self._fault(f"no variable {name!r}{hint}", token)
        return name

    def _fault(self, message: str, node: Node) -> UsageError:
        return fault(message, self._text, position(node))


def _is_set(name: str) -> bool:
    return name[0].isupper()


def _compared(operator: str, x: str, y: str) -> m.Formula:
    """Two records by their order in the stream."""
    match operator:
        case "<":
            return m.Before(x, y)
        case ">":
            return m.Before(y, x)
        case "<=":
            return m.at_most(x, y)
        case ">=":
            return m.at_most(y, x)
    same = m.Conjunction(m.at_most(x, y), m.at_most(y, x))
    return same if operator in ("=", "==") else m.Negation(same)
