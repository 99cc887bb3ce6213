"""The ``where`` and ``within`` of a pattern, from its syntax tree."""

from __future__ import annotations

from typing import cast

from lark import Token, Tree

from patterns.automata.predicates import Operator
from patterns.grammar import constant_value, span, string_value
from patterns.language.syntax import Agreement, Condition, Filter, Keyword, Reference
from schema.errors import PatternError, UsageError
from windows.window import Window, parse_window

_MIRRORED = {
    Operator.LESS: Operator.GREATER,
    Operator.AT_MOST: Operator.AT_LEAST,
    Operator.GREATER: Operator.LESS,
    Operator.AT_LEAST: Operator.AT_MOST,
}


def read_condition(text: str, tree: Tree[Token]) -> Condition:
    """One condition. Raises PatternError with carets at the place."""
    return _contains(tree) if tree.data == "contains" else _comparison(text, tree)


def read_window(text: str, tree: Tree[Token]) -> Window:
    """The window. Raises PatternError with carets at the place."""
    start, end = span(tree)
    try:
        return parse_window(text[start:end])
    except UsageError as error:
        raise PatternError.at(text, start, end, str(error)) from None


def _contains(tree: Tree[Token]) -> Keyword:
    place, quoted = tree.children
    text = string_value(cast("Token", quoted))
    if isinstance(place, Token):
        return Keyword(str(place), None, text, span(tree))
    reference = _reference(place)
    return Keyword(reference.variable, reference.attribute, text, span(tree))


def _comparison(text: str, tree: Tree[Token]) -> Agreement | Filter:
    operators = [Operator(str(child)) for child in tree.children[1::2]]
    operands = tree.children[::2]
    references = [_reference(o) for o in operands if isinstance(o, Tree)]
    if len(references) == len(operands):
        if any(operator is not Operator.EQUAL for operator in operators):
            raise PatternError.at(
                text,
                *span(tree),
                "attributes of two tuples can only be equal: an automaton keeps no other comparison",
            )
        return Agreement(tuple(references))
    if len(operands) > 2 or not references:
        message = "a constant is compared with one attribute, as in t.amount > 5"
        raise PatternError.at(text, *span(tree), message)
    constant = next(o for o in operands if isinstance(o, Token))
    compared = operators[0]
    if isinstance(operands[0], Token):
        compared = _MIRRORED.get(compared, compared)
    return Filter(references[0], compared, constant_value(constant), span(tree))


def _reference(tree: Tree[Token]) -> Reference:
    variable, attribute = tree.children
    return Reference(str(variable), str(attribute), span(tree))
