"""From the text of a pattern to its expression and conditions.

(login l AND transfer t) ; refund r where l.user = t.user = r.user and t ~ "urgent" within 10 minutes
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, cast

from lark import Token, Tree

from patterns.automata.predicates import Operator
from patterns.grammar import constant_value, parse, span, string_value
from patterns.language.expression import (
    Expression,
    Letter,
    Read,
    alternation,
    conjunction,
    letters,
    sequence,
    star,
)
from patterns.language.syntax import Agreement, Condition, Filter, Keyword, Pattern, Reference
from schema.errors import PatternError, UsageError, nearest
from schema.model import Schema
from windows.window import Window, parse_window

# Nobody writes as many, and compiling takes time with the cube of them.
MOST_ATOMS: Final = 64

_MIRRORED = {
    Operator.LESS: Operator.GREATER,
    Operator.AT_MOST: Operator.AT_LEAST,
    Operator.GREATER: Operator.LESS,
    Operator.AT_LEAST: Operator.AT_MOST,
}


def parse_pattern(text: str, schema: Schema) -> Pattern:
    """The pattern of a text. Raises PatternError with carets at the place."""
    trees = cast("list[Tree[Token]]", parse(text, "pattern").children)
    reader = _Reader(text, schema)
    atoms = sum(1 for _ in trees[0].find_data("atom"))
    if atoms > MOST_ATOMS:
        raise PatternError(f"the pattern has {atoms} atoms; expected at most {MOST_ATOMS}")
    try:
        expression = reader.expression(trees[0])
    except RecursionError:
        raise PatternError("the pattern is nested too deeply") from None
    variables = {letter.variable for letter in letters(expression)}
    conditions: list[Condition] = []
    window = None
    for tree in trees[1:]:
        if tree.data == "window":
            window = reader.window(tree)
        else:
            conditions.append(reader.condition(tree, variables))
    return Pattern(text, expression, tuple(conditions), window)


class _Reader:
    def __init__(self, text: str, schema: Schema) -> None:
        self._text = text
        self._schema = schema

    def expression(self, tree: Tree[Token]) -> Expression:
        if tree.data == "atom":
            return self._atom(tree)
        parts = [self.expression(cast("Tree[Token]", child)) for child in tree.children]
        match tree.data:
            case "alternation":
                return alternation(*parts)
            case "conjunction":
                return conjunction(*parts)
            case "repetition":
                return sequence(parts[0], star(parts[0]))
            case _:
                return sequence(*parts)

    def _atom(self, tree: Tree[Token]) -> Expression:
        name, *rest = cast("list[Token]", tree.children)
        variable = str(rest[0]) if rest else str(name)
        if name.type == "STAR":
            if not rest:
                raise self._fault(span(name), "a tuple of any relation needs a variable, as in '* t'")
            streams = [i for i, relation in enumerate(self._schema.relations) if not relation.table]
            return alternation(*(Read(Letter(i, variable)) for i in streams))
        relation = self._schema.index.get(name)
        if relation is None:
            raise self._fault(
                span(name), f"there is no relation {str(name)!r}{nearest(name, self._schema.index)}"
            )
        if self._schema.relations[relation].table:
            raise self._fault(span(name), f"{name} is a static table: a pattern is over streams")
        return Read(Letter(relation, variable))

    def condition(self, tree: Tree[Token], variables: Iterable[str]) -> Condition:
        found = self._contains(tree) if tree.data == "contains" else self._comparison(tree)
        used = found.references if isinstance(found, Agreement) else (found,)
        for part in used:
            variable = part.reference.variable if isinstance(part, Filter) else part.variable
            if variable not in variables:
                raise self._fault(
                    part.span, f"the pattern has no variable {variable!r}{nearest(variable, variables)}"
                )
        return found

    def _contains(self, tree: Tree[Token]) -> Keyword:
        place, quoted = tree.children
        text = string_value(cast("Token", quoted))
        if isinstance(place, Token):
            return Keyword(str(place), None, text, span(tree))
        reference = _reference(place)
        return Keyword(reference.variable, reference.attribute, text, span(tree))

    def _comparison(self, tree: Tree[Token]) -> Agreement | Filter:
        operators = [Operator(str(child)) for child in tree.children[1::2]]
        operands = tree.children[::2]
        references = [_reference(o) for o in operands if isinstance(o, Tree)]
        if len(references) == len(operands):
            if any(operator is not Operator.EQUAL for operator in operators):
                raise self._fault(
                    span(tree),
                    "attributes of two tuples can only be equal: an automaton keeps no other comparison",
                )
            return Agreement(tuple(references))
        if len(operands) > 2 or not references:
            raise self._fault(span(tree), "a constant is compared with one attribute, as in t.amount > 5")
        constant = next(o for o in operands if isinstance(o, Token))
        compared = operators[0]
        if isinstance(operands[0], Token):
            compared = _MIRRORED.get(compared, compared)
        return Filter(references[0], compared, constant_value(constant), span(tree))

    def window(self, tree: Tree[Token]) -> Window:
        start, end = span(tree)
        try:
            return parse_window(self._text[start:end])
        except UsageError as error:
            raise self._fault((start, end), str(error)) from None

    def _fault(self, place: tuple[int, int], message: str) -> PatternError:
        return PatternError.at(self._text, *place, message)


def _reference(tree: Tree[Token]) -> Reference:
    variable, attribute = tree.children
    return Reference(str(variable), str(attribute), span(tree))
